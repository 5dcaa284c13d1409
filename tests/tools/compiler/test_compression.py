"""What `mlhood bench compression` measures: bytes without zeros, the Pareto frontier, and its figure."""

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.compiler.hir.graph import Graph
from mlhood.errors import CompilerError
from mlhood.measure import Ratio
from mlhood.models import digits
from mlhood.plotting.alt_text import alt_text
from tests.tools.compiler import compression as bench
from tests.tools.compiler.__main__ import app
from tests.tools.compiler.compression import DENSE, DISTILLED, MAGNITUDE, SCRATCH, STRUCTURED, Row
from tests.tools.compiler.compression_figures import pareto

LEVELS = (0.5, 0.25)


@pytest.fixture(scope="module")
def data():
    """A hundred digits to train with, so that it takes seconds."""
    every = digits(mnist="")
    return every._replace(train_images=every.train_images[:100], train_labels=every.train_labels[:100])


@pytest.fixture(scope="module")
def rows(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "SPARSITIES", LEVELS[:1])
        patch.setattr(bench, "SHARES", LEVELS)
        return bench.measure(data, default_machine(), seeds=2, epochs=1, width=1, rounds=0)


def row(accuracy, cost, method=STRUCTURED):
    return Row(method, 0.5, (accuracy,), cost, cost, cost, cost, Ratio(1, 0.9, 1.1))


def test_all_methods_at_all_levels_for_each_seed(rows):
    expected = [(DENSE, 1.0), (MAGNITUDE, LEVELS[0])]
    expected += [(method, share) for share in LEVELS for method in (STRUCTURED, DISTILLED, SCRATCH)]
    assert [(each.method, each.level) for each in rows] == expected
    assert all(len(each.accuracies) == 2 for each in rows)
    assert all(0 <= correct <= 1 for each in rows for correct in each.accuracies)
    assert all(each.time is None for each in rows)


def test_zeros_save_bytes_and_no_cycles(rows):
    """The code reads every weight; narrower layers save both."""
    dense, *others = rows
    assert dense.dense_bytes == 61_470 + 4 * 236  # weights in int8, biases in int32
    for each in others:
        if each.method == MAGNITUDE:
            assert (each.dense_bytes, each.cycles, each.traffic) == (dense.dense_bytes, dense.cycles, dense.traffic)
            # at least the mask; weights that are rounded to zero save bytes, too
            most = 61_470 * (1 / 8 + 1 - each.level) + 4 * 236 + 5
            assert 61_470 / 8 < each.stored_bytes <= most
        else:
            assert each.dense_bytes < dense.dense_bytes * each.level * 1.2
            assert each.cycles < dense.cycles
    structured = [each for each in rows if each.method == STRUCTURED]
    assert sorted(structured, key=lambda each: each.cycles, reverse=True) == structured
    for share in LEVELS:
        same = [each for each in others if each.level == share and each.method != MAGNITUDE]
        assert len({(each.dense_bytes, each.cycles) for each in same}) == 1


def test_the_accuracy_is_that_of_the_integers(data):
    (_, model), *_ = bench.networks(data, 0, 1, 1)
    executable, graph = bench.quantized(model, data)
    (logits,) = executable.run(image=data.test_images).values()
    truth = sum(int(np.argmax(each)) == label for each, label in zip(logits, data.test_labels, strict=True))
    assert bench.accuracy(executable, data) == truth / len(data.test_labels)
    assert {value.type.element for value in graph.constants.values()} <= {"int8", "int32"}


def test_a_tensor_is_stored_in_the_shorter_way():
    graph = Graph()
    sparse, full, biases = np.zeros(100, np.int8), np.ones(100, np.int8), np.zeros(10, np.int32)
    sparse[:7] = 3
    for name, data in {"sparse": sparse, "full": full, "biases": biases}.items():
        graph.constant(name, data)
    assert bench.stored_bytes(graph) == (13 + 7) + 100 + 40


def test_the_frontier_is_what_no_other_dominates():
    generator = random.Random(0)
    for _ in range(100):
        rows = [row(generator.randrange(6) / 5, generator.randrange(1, 6)) for _ in range(generator.randrange(1, 12))]
        found = bench.frontier(rows, "cycles")
        for each in rows:
            better = [
                other
                for other in rows
                if (other.cycles < each.cycles and other.accuracy >= each.accuracy)
                or (other.cycles <= each.cycles and other.accuracy > each.accuracy)
            ]
            assert any(each is other for other in found) is not bool(better)
        assert [each.cycles for each in found] == sorted(each.cycles for each in found)


@pytest.mark.parametrize(("seeds", "epochs"), [(0, 1), (1, 0)])
def test_invalid_numbers_are_refused(data, seeds, epochs):
    with pytest.raises(CompilerError, match="invalid numbers"):
        bench.measure(data, default_machine(), seeds=seeds, epochs=epochs)


def test_names_say_what_was_done():
    assert row(0.9, 10).name == "structured, 50 % of the units"
    assert Row(MAGNITUDE, 0.95, (0.9,), 1, 1, 1, 1).name == "magnitude, 95 % of the weights zero"
    assert Row(DENSE, 1.0, (0.9,), 1, 1, 1, 1).name == "dense"
    assert math.isnan(Row(SCRATCH, 0.5, (0.9,), 1, 1, 1, 1).relative_time)


def test_the_figure_has_a_panel_for_each_cost_and_marks_the_frontier():
    rows = [row(0.99, 100, DENSE), row(0.98, 50), row(0.97, 60, DISTILLED), row(0.9, 10, SCRATCH)]
    rows[1] = replace(rows[1], accuracies=(0.98, 0.98, 0.98))  # their mean may be rounded
    figure = pareto(rows)
    assert len(figure.axes) == len(bench.COSTS)
    line = figure.axes[1].lines[0]
    assert list(zip(*line.get_data(), strict=True)) == [(10, 0.9), (50, 0.98), (100, 0.99)]
    markers = {line.get_marker() for line in figure.axes[0].lines} - {"None", "|", "_", 2, 3}
    assert len(markers) == 4  # methods differ in shape, not only in colour
    assert "dense network has 99.0%" in alt_text(figure)
    with pytest.raises(CompilerError, match="nothing to draw"):
        pareto([])


def test_the_figure_leaves_out_a_time_that_was_not_measured(rows):
    assert len(pareto(rows).axes) == 2


def test_the_command_writes_rows_and_picture(data, tmp_path, monkeypatch):
    monkeypatch.setattr("mlhood.models.digits", lambda: data)
    monkeypatch.setattr(bench, "SPARSITIES", (0.9,))
    monkeypatch.setattr(bench, "SHARES", (0.5,))
    written, picture = tmp_path / "rows.json", tmp_path / "pareto.svg"
    options = ["--seeds", "1", "--epochs", "1", "--width", "1", "--draw", str(picture), "--json", str(written)]
    result = CliRunner().invoke(app, ["compression", *options])
    assert result.exit_code == 0, result.output
    content = json.loads(written.read_text())
    assert [each["method"] for each in content["rows"]] == [DENSE, MAGNITUDE, STRUCTURED, DISTILLED, SCRATCH]
    assert content["rows"][0]["time"] is None
    low, high = content["rows"][1]["time"][1:]
    assert 0 < low <= high
    assert content["machine"]["cpu"]
    assert picture.read_text().lstrip().startswith("<?xml")
    assert "Pareto-optimal by cycles" in result.output
