"""Show marks to people.

In: marks, records of a gradebook, similarity, and the notebooks that students have submitted. Out: text for terminals,
tables for notebooks, and self-contained HTML pages: feedback for each student, and the report about a class.

Pages are Jinja templates (`templates/`) rendered with autoescape by `render`. A student's code becomes markup only
in `sanitize`; everything else is escaped.
"""
