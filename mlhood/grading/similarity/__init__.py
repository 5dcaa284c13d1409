"""Find copies.

In: the records of a class, the store of their notebooks, and what the course itself has given to students.
Out: a `Similarity` for each project: pairs of students with similar code, and copies of the package's own source.

Code is reduced to tokens of its syntax (`syntax_tokens`), tokens to fingerprints, which are compared (`compare`).
"""
