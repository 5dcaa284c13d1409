"""Notebooks: the course's masters and the submissions made from them.

In: a notebook file. Out: its project and the labels of its cells (`notebook`), its cells for grading with the course's
own cells restored (`restore`), the student's version (`stubs`), a page (`render`), a normalized file (`clean`).

`master` and `sync` keep the package's copy of the masters' cells, which `restore` compares submissions with.
"""
