"""The sliced convolution, input or weight stationary, around the generated microkernel.

In: a convolution's arrays and, optionally, (k1, k2, k3) and the order. Out: its result.
"""
