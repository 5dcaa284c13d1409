"""Collect submissions.

In: a folder or zip archive in the layout of nbgrader, GitHub Classroom, Moodle, Canvas, or flat.
Out: a `SubmittedFile` for every student and assignment, each copied into a store under the hash of its content.
"""
