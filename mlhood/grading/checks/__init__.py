"""Tasks and their checks.

In: a task (`task`) and a running notebook (`submission.Session`). Out: the task's result (`marks.TaskResult`), with
the points of every check and the reason why it failed.

A check is a function of a `submission.Submission`, written with the assertions of `expect`, or compares calls with
those of the course's solution (`compared`). `oracle` reads submitted files in an isolated process, `tables` and
`timing` verify tables of measurements, and `probes` holds our functions that run in the student's process.
"""
