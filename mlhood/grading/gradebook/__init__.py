"""The gradebook of a class: one SQLite file that survives a crash, beside the submissions it was made from.

In: submissions, task results as soon as a worker has them, points given by hand, the policy for late submissions.
Out: a `Record` for every student and project, with the points that count; exporters and reports read nothing else.
"""
