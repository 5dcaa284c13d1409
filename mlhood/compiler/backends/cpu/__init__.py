"""The CPU back end: a graph as one sequence of native kernels on one arena."""
