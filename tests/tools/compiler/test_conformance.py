"""ONNX's backend test suite."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.compiler.operators import IMPORT_RULES, OPERATORS
from mlhood.compiler.operators.elementwise import Relu
from tests.tools.compiler import conformance as suite
from tests.tools.compiler.__main__ import app


@pytest.fixture(scope="module")
def table():
    return suite.conformance()


def test_the_sizes_of_the_tiers_and_that_all_tests_pass(table):
    assert table["tests"].tolist()[:5] == [160, 182, 192, 269, 17]
    excluded = sum(case.tier is not None for case in suite.cases() if case.name in suite.EXCLUDES)
    assert (table["tests"] - table["passed"]).iloc[3:5].sum() == excluded


def test_the_score_of_all_node_tests_does_not_decrease(table):
    assert table.loc["all node tests", "tests"] == 1884
    assert table.loc["all node tests", "passed"] >= 1748


def test_the_score_of_inference_on_common_elements_does_not_decrease(table):
    row = table.loc["6 nodes of float32, int64 and bool"]
    assert row["tests"] == 1260
    assert row["passed"] + len(suite.EXCLUDES) >= 1247


def test_excluded_tests_have_a_reason_and_fail():
    by_name = {case.name: case for case in suite.cases()}
    for name, reason in suite.EXCLUDES.items():
        assert reason
        assert not suite.passes(by_name[name])


def test_an_incorrect_operator_fails(monkeypatch):
    case = next(case for case in suite.cases() if case.name == "test_relu")
    assert suite.passes(case)
    monkeypatch.setattr(Relu, "evaluate", lambda self, x: np.minimum(x, x.dtype.type(0)))
    assert not suite.passes(case)


def test_no_onnx_operator_is_claimed_twice():
    claimed = [name for operator in OPERATORS.values() for name in operator.onnx]
    assert len(claimed) == len(set(claimed))
    assert set(claimed) <= IMPORT_RULES.keys()
    assert all(operator.__doc__ for operator in OPERATORS.values())


def test_the_command_prints_the_score(monkeypatch, table):
    monkeypatch.setattr(suite, "conformance", lambda: table)
    result = CliRunner().invoke(app, ["conformance", "--json"])
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert report["failed"] == []
    assert report["score"]["4 + classic CNNs, tf2onnx"]["tests"] == 269
    assert "4 + classic CNNs, tf2onnx" in CliRunner().invoke(app, ["conformance"]).output
