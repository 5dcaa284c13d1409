"""Notebooks: the course's source notebooks and the submissions made from them.

In: a notebook file. Out: its project, the labels of its cells and a normalized file (`notebook`), its cells for grading
with the course's own cells restored (`restore`), the student's version (`source_notebook`).

`source_notebook` and `sync` keep the package's copy of the source notebooks' cells, which `restore` compares
submissions with.
"""
