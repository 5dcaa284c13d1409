"""The declarations of P2's tables."""

from __future__ import annotations

import pytest

from mlhood.compiler.tables import IMAGES, ONNX_RUNTIME, STAGES, costs_table, latency_table
from mlhood.measure import Count, compare


def test_the_table_of_latencies_takes_a_comparison_for_each_number_of_images():
    table = latency_table()
    for row in IMAGES:
        table.fill(row, compare({name: lambda: 1.0 for name in table.columns}, shortest=0))
    assert table.columns == (*STAGES, ONNX_RUNTIME)
    assert table.missing == []
    assert table.verdicts()[1].state == "holds"
    assert table.read(table.to_dict()).verdicts() == table.verdicts()


@pytest.mark.parametrize(
    ("size", "digits", "states"),
    [
        (49, 100, ["holds", "holds"]),
        (50, 100, ["fails", "holds"]),
        (49, 99, ["holds", "fails"]),
    ],
)
def test_the_claims_about_the_quantised_graph_are_graded_from_the_counts(size, digits, states):
    table = costs_table()
    for stage in STAGES:
        table["bytes", stage], table["digits", stage] = Count(100), Count(100)
    table["bytes", "quantised"], table["digits", "quantised"] = Count(size), Count(digits)
    assert [verdict.state for verdict in table.verdicts()] == states
