"""The static memory plan: where in one block of memory each activation of a program lies.

plan             offsets for lifetimes, by several orders of which the best is kept
memory_figures   the plan as a chart of lifetimes and addresses

In: the lifetimes of a program's buffers (`mlhood.compiler.lir.program.Program.lifetimes`). Out: an offset for each.
"""
