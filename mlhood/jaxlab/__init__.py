"""JAX under the hood: operators with and without JAX, tracing, XLA's views, differentiation, training, and clusters.

In: functions and arrays; out: programs, gradients, drawings and measurements.
"""
