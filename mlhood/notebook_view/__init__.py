"""Notebooks as GitHub shows them.

In: a notebook. Out: the page that GitHub makes of it (`github_view`), with its formulas drawn (`formulas`), and what a
reader cannot see or understand there: by the page's HTML (`view_defects`), and in a browser (`browser_view`).
"""
