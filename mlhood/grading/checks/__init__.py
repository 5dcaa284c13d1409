"""Tasks and their checks.

In: a task (`task`) and a running notebook (`submission.Session`). Out: the task's result (`marks.TaskResult`), with
the points of every check and the reason why it failed.

A check is a function of a `submission.Submission`, written with the assertions of `expect`. `oracle` reads submitted
files in an isolated process, `libraries` declares what exists where a task is graded, `tables` and `timing` verify
tables of measurements, `probes` and `reference_runs` hold our functions that run in other processes.
"""
