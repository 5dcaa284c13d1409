"""The zoo's score: exports of torch on both targets; `python -m tests.tools.compiler zoo` runs all."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.tools.compiler.__main__ import app
from tests.tools.compiler.architectures import ARCHITECTURES, architecture
from tests.tools.compiler.zoo import EXPORTERS, export_architecture, score_zoo

# Exports that are refused, with the operator whose rule does not apply: the number of iterations is computed.
REFUSED = {"wide_and_deep": "Loop"}
DYNAMO = ("lenet", "vit", "rnn", "mobilenet_v2", "densenet", "unet")


@pytest.mark.parametrize(
    "name",
    # the suite takes every third
    [pytest.param(name, marks=pytest.mark.exhaustive if n % 3 else ()) for n, name in enumerate(ARCHITECTURES)],
)
def test_an_export_with_an_open_batch_is_right_on_both_targets(name):
    outcomes = list(score_zoo([name], ["torchscript-17"], batches=["open"]))
    assert len(outcomes) == 2
    assert {outcome.verdict for outcome in outcomes} == {"refused" if name in REFUSED else "right"}, str(outcomes[0])
    assert all(REFUSED.get(name, "") in outcome.detail for outcome in outcomes)


@pytest.mark.parametrize("name", DYNAMO)
def test_an_export_of_dynamo_is_right(name):
    (outcome,) = score_zoo([name], ["dynamo-18"], ["cpu"], ["open"])
    assert outcome.verdict == "right", str(outcome)


def test_the_batch_is_fixed_or_open_in_the_file():
    axes = [
        export_architecture(architecture("mlp"), EXPORTERS["torchscript-11"], is_open).graph.input[0]
        for is_open in (False, True)
    ]
    first = [value.type.tensor_type.shape.dim[0] for value in axes]
    assert [(axis.dim_value, axis.dim_param) for axis in first] == [(1, ""), (0, "batch")]


def test_wrong_numbers_are_wrong(monkeypatch):
    class Liar:
        def run(self, **inputs):
            return {"y": np.zeros((len(inputs["x"]), 10), np.float32)}

    monkeypatch.setattr("tests.tools.compiler.zoo.compile_model", lambda proto, target: Liar())
    verdicts = {outcome.verdict for outcome in score_zoo(["lenet"], ["torchscript-17"], ["cpu"])}
    assert verdicts == {"wrong"}


def test_the_command_prints_the_score_and_fails_if_it_is_not_full():
    arguments = ["zoo", "--architecture", "mlp", "--exporter", "torchscript-11", "--target", "cpu"]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0
    assert [outcome["verdict"] for outcome in json.loads(result.stdout)] == ["right", "right"]
    assert "100.0%" in CliRunner().invoke(app, arguments).stdout
