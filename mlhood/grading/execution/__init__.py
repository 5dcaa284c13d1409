"""Running notebooks and grading them.

In: a notebook of the course (`grade_notebook`) or the course's own notebooks (`run`), and
`RunSettings`. Out: `Marks`; for `mlhood run`, executed copies, the files that the notebooks wrote, and a report.

`kernel` runs cells in a process of their own and sends the checks' requests to it; `progress` shows how far a run is,
`output_folder` keeps results of different runs apart.
"""
