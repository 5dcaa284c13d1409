"""Who has written the same: submissions that are suspiciously alike, and copies of the package's own source.

A program becomes a normal form that disguises do not change (`shape`), and that a set of fingerprints (`winnow`); who
shares too many of them is named together with the passages (`compare`). It is a hint where to look, never a proof.
"""
