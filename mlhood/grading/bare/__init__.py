"""Bare kernels: processes in which only the libraries of a task exist, where its functions are graded.

In: what a task may use (`libraries`). Out: the files of such a process (`files`), and the process (`kernel`). In a
sandbox nothing else is on the disk; elsewhere other libraries cannot be imported.
"""
