"""Export marks.

In: the records of a gradebook.
Out: CSV, nbgrader's CSV, Gradescope's and GitHub Classroom's JSON, a Canvas gradebook with scores filled in, and the
table in which a person gives points for written questions and undecided tasks, which is also read back.
"""
