"""What students get and call.

In: the course's folder (`release`) or a student's notebook (`check`, `validate`). Out: the student version, a
repository without solutions, with its other files and its part of the package (`version_files`), and
Gradescope's autograder (`gradescope_zip`); the points and hints of `mlhood.check`; a list of what to repair before
handing in.
"""
