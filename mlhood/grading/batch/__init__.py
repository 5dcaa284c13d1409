"""Grade a class.

In: folders and archives of submissions, and how to grade them (`GradeOptions`).
Out: a gradebook with the result of every submission (`ClassResult`), complete or to be continued by the next call.

`grade_class` collects and calls `Batch`, which hands jobs to worker processes (`executor`, `worker`). Only the calling
process writes the gradebook.
"""
