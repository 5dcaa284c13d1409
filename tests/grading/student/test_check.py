from __future__ import annotations

import linecache

from mlhood.grading.student.check import check

SOURCE = "def double(x):\n    return x.missing"


def test_an_error_in_ones_own_notebook_names_the_cell_by_its_number(course, monkeypatch):
    name = "<ipython-input-3-5d2a>"
    monkeypatch.setitem(linecache.cache, name, (len(SOURCE), None, SOURCE.splitlines(keepends=True), name))
    names = {"In": ["", "import mlhood", "x = 1", SOURCE]}
    exec(compile(SOURCE, name, "exec"), names)
    got = check("T9.1", names).result.checks[0].parts["got"]
    assert got.endswith("in line 2 of cell [3]: `return x.missing`")
