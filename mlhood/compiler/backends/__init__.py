"""What runs a graph; the interpreter is the oracle for all others.

One module each:

    interpreter   each operator's reference semantics in NumPy, one node after the other
    kernels       the same with a kernel of choice for convolutions: a rung of `mlhood.kernels.CONV2D`, or one's own
    targets       the names of what there is
    timing        how long each node takes, on any of them
"""
