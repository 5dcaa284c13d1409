"""From a submission to its marks: the rooms of grading, in the order in which each may use those before it.

In: notebooks. Out: marks with reasons, reports, a gradebook, exports. `rpc` calls into a student's process; `checks`
has tasks and their checks, `projects` those of the course; `notebooks` reads and restores submissions; `execution` runs
and grades one, in a `sandbox`. `intake` collects the submissions of a class, `batch` grades them into a `gradebook`;
`similarity`, `reports` and `exporters` read it. `student` and `autograders` are what students and platforms call.
"""
