"""`mlhood marks`: a person marks written answers and undecided tasks, on a local web page or in a table.

In: a gradebook and the submissions beside it; the written questions with their rubrics.
Out: points and comments in the gradebook, from the page each at the key press that gives it.
"""
