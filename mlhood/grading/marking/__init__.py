"""`mlhood marks --open`: a local web page on which a person marks written answers and undecided tasks.

In: a gradebook and the submissions beside it; the written questions with their rubrics.
Out: points and comments, each stored in the gradebook at the key press that gives it.
"""
