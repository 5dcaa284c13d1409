"""Grade a class.

In: folders and archives of submissions, and how to grade them (`GradeOptions`).
Out: a gradebook with the result of every submission (`ClassResult`), complete or to be continued by the next call.

`grade_class` collects and calls `Batch`, which hands jobs to an executor: worker processes on this machine, or a Dask
cluster whose workers start the same processes. Only the calling process writes the gradebook.
"""
