"""Tracing: a tracer from scratch (`tracer`), and a new primitive for JAX with all its rules (`primitive`).

In: Python functions of arrays; out: programs, straight lists of equations, and what evaluates and draws them.
"""
