"""Execute graphs; the interpreter is the oracle for all other back ends.

interpreter   each operator's reference semantics in NumPy, node by node
kernels       the same with a selectable convolution kernel: one of `mlhood.kernels.CONV2D`, or a custom function
cpu           native kernels for all of a graph, on one arena, in one call
xla           the whole graph as one function of JAX
targets       the table of targets, by name
timing        execution time per node, for any of them, as a table or as a file for a trace viewer
"""
