"""Tables: declared, filled, displayed, and parsed from untrusted data."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.errors import MeasureError
from mlhood.measure import Count, Measurement, Table, agree, compare, faster
from mlhood.measure.table import MIME


def declared(**changes):
    parts = {
        "id": "P3.convolutions",
        "rows": ("C1", "C2"),
        "columns": ("no-BLAS", "BLAS"),
        "title": "Convolutions <of> ResNet",
        "baseline": "no-BLAS",
        "claims": (faster("BLAS", "no-BLAS"), agree("BLAS", "no-BLAS")),
    }
    return Table(**(parts | changes))


def filled():
    table = declared()
    for i, row in enumerate(table.rows):
        table[row, "no-BLAS"] = Measurement((0.004,) * 21, 1e7, f"run{i}", True)
        table[row, "BLAS"] = Measurement((0.001,) * 21, 1e7, f"run{i}", True)
    return table


def test_an_empty_table_has_missing_cells():
    table = declared()
    assert table.missing == [(row, column) for row in table.rows for column in table.columns]
    assert {verdict.state for verdict in table.verdicts()} == {"missing"}
    assert "–" in str(table)
    with pytest.raises(MeasureError, match="cell is empty"):
        table["C1", "BLAS"]


def test_a_full_table_shows_times_rates_and_speedups():
    table = filled()
    assert table.missing == []
    assert ("C1", "BLAS") in table
    text = str(table)
    assert "1.00 ms (1.00–1.00), 10.0 GFLOP/s" in text
    assert "4.00 [4.00, 4.00]" in text
    assert "holds: BLAS is faster than no-BLAS in every row" in text


def test_a_label_is_shown_before_its_cell_and_not_stored():
    table = filled()
    table.labels["C1", "BLAS"] = "(16, 4, 56)"
    assert "(16, 4, 56): 1.00 ms" in str(table)
    assert table.to_dict() == filled().to_dict()


def test_a_notebook_gets_text_html_and_data():
    bundle = filled()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", MIME}
    assert "Convolutions &lt;of&gt; ResNet" in bundle["text/html"]
    assert "no-BLAS / BLAS" in bundle["text/html"]
    assert json.loads(json.dumps(bundle[MIME], allow_nan=False)) == bundle[MIME]


def test_names_are_escaped():
    table = Table("<script>", ("<b>",), ("<i>",), claims=(faster("<i>", "<i>", "<u>"),))
    assert not any(tag in table._repr_html_() for tag in ("<script>", "<i>", "<u>"))


def test_a_stored_table_is_read():
    table = filled()
    again = declared().read(json.dumps(table.to_dict()))
    assert again.to_dict() == table.to_dict()
    assert Table.from_dict(table.to_dict()).to_dict() == table.to_dict()


def test_a_comparison_fills_a_row():
    table = declared()
    comparison = compare({"direct": lambda: sum(range(50)), "im2col": lambda: sum(range(50))})
    table.fill("C1", comparison, {"no-BLAS": "direct", "BLAS": "im2col"})
    assert table["C1", "BLAS"] is comparison["im2col"]
    with pytest.raises(MeasureError, match="not measured"):
        table.fill("C2", comparison)
    with pytest.raises(MeasureError, match="no such cell"):
        table.fill("C3", comparison, {"BLAS": "direct"})
    assert len(table.missing) == 2


@pytest.mark.parametrize("cell", [1.0, 3, "fast", None, Count(3), [0.001] * 21])
def test_a_cell_holds_measurements_only(cell):
    with pytest.raises(MeasureError, match="invalid value for a cell") as caught:
        declared()["C1", "BLAS"] = cell
    assert "P3.convolutions, C1/BLAS" in str(caught.value)


@pytest.mark.parametrize("position", [("C9", "BLAS"), ("C1", "blas"), "C1", ("C1",), (1, 2), None])
def test_an_unknown_cell_is_refused(position):
    with pytest.raises(MeasureError, match="no such cell"):
        declared()[position] = Measurement((1.0,))


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": ()},
        {"rows": ("a", "a")},
        {"rows": ("*",)},
        {"rows": ("",)},
        {"rows": (1,)},
        {"columns": ("x" * 300,)},
        {"rows": tuple(map(str, range(501)))},
        {"id": ""},
        {"title": 3},
        {"unit": "GFLOP/s"},
        {"kind": "guess"},
        {"baseline": "C1"},
        {"claims": (faster("x", "y"),)},
        {"rows": tuple(map(str, range(400))), "columns": tuple(map(str, range(400))), "baseline": None, "claims": ()},
    ],
)
def test_invalid_declarations_are_refused(changes):
    with pytest.raises(MeasureError):
        declared(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "P4.tiles"},
        {"rows": ["C1", "C2", "C3"]},
        {"unit": "s"},
        {"baseline": None},
        {"claims": []},
        {"claims": [{**faster("BLAS", "no-BLAS").to_dict(), "factor": 0.1}]},
        {"format": 2},
        {"rows": "C1"},
        {"rows": [["C1"]]},
        {"kind": []},
        {"baseline": {}},
        {"unit": []},
        {"id": 3},
        {"cells": {}},
        {"cells": [[1, 2, 3]]},
        {"cells": [["C1", "BLAS"]]},
        {"cells": [["C1", "BLAS", 0.001]]},
        {"cells": [["C1", "BLAS", Measurement((1.0,)).to_dict()]] * 2},
        {"cells": [["C1", "BLAS", Count(1).to_dict()]]},
        {"cells": [["C9", "BLAS", Measurement((1.0,)).to_dict()]]},
    ],
)
def test_invalid_stored_tables_are_refused(changes):
    with pytest.raises(MeasureError):
        declared().read({**filled().to_dict(), **changes})


@pytest.mark.parametrize("text", ["", "{", "[]", "NaN", '{"format": NaN}', "[" * 100_000, b"\xff", "null"])
def test_invalid_json_is_refused(text):
    with pytest.raises(MeasureError):
        declared().read(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(sorted(filled().to_dict())), json_values)
def test_any_data_give_a_table_or_a_measure_error(part, value):
    try:
        table = declared().read({**filled().to_dict(), part: value})
    except MeasureError:
        return
    assert isinstance(table, Table)


def test_a_table_of_counts():
    table = Table("P4.traffic", ("(4,4,4)",), ("WS", "IS"), unit="bytes", kind="count", baseline="WS")
    table["(4,4,4)", "WS"], table["(4,4,4)", "IS"] = Count(2048), Count(1024)
    assert "2,048 bytes" in str(table)
    assert "2.00 [2.00, 2.00]" in str(table)
    assert table.read(json.dumps(table.to_dict())).to_dict() == table.to_dict()
    with pytest.raises(MeasureError, match="expected: a Count"):
        table["(4,4,4)", "WS"] = Measurement((1.0,))
