"""Notebooks: the course's masters and the submissions made from them.

In: a notebook file. Out: its project, the labels of its cells and a normalized file (`notebook`), its cells for grading
with the course's own cells restored (`restore`), the student's version (`master`).

`master` and `sync` keep the package's copy of the masters' cells, which `restore` compares submissions with.
"""
