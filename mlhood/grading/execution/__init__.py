"""Running notebooks and grading them.

In: a notebook of the course and `RunSettings` (`grade_notebook`). Out: `Marks`.

`kernel` runs cells in a separate process and sends the checks' requests to it; `kernels` has those of one notebook,
the bare ones among them; `progress` shows how far a run is.
"""
