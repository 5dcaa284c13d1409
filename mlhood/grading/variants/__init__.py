"""Variants of the course: the same tasks with other parameters, so that last year's solutions do not fit.

In: a name, and the parameters that tasks declare (`parameter`). Out: the values of a variant, its text (`templates`),
and the signed name of its version in a submitted notebook (`seed`).
"""
