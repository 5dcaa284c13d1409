"""Measure how fast, how small and how safe grading is: `mlhood bench grading`.

In: a solved master notebook, of which a class of known marks is made.
Out: tables of time and memory, an audit of the gradebook, and whether each promise was held.
"""
