"""Export marks.

In: the records of a gradebook.
Out: CSV, nbgrader's CSV, Gradescope's and GitHub Classroom's JSON, and a Canvas gradebook with scores filled in.
"""
