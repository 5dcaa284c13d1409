"""Running notebooks and grading them.

In: a notebook of the course and `RunSettings` (`grade_notebook`). Out: `Marks`.

`kernel` runs cells in separate processes and sends the checks' requests to them.
"""
