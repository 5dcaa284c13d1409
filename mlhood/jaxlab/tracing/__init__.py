"""A tracer from scratch.

In: Python functions of arrays; out: programs, straight lists of equations, and what evaluates and draws them.
"""
