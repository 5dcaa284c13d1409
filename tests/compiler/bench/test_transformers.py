"""The benchmark of transformers: its rows and its command; no time is asserted."""

import json
import os
from unittest.mock import patch

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.compiler.bench.transformers import CASES, GROWING, STEPS, TransformerCase, measure, needed_bytes, perplexity
from mlhood.errors import CompilerError
from mlhood.models.transformers import Config, Decoder, gpt2


def test_the_command_writes_and_prints_rows(tmp_path, monkeypatch):
    small = TransformerCase(lambda config: gpt2(config, 60, 40), Config(2, 64, 2, packed=True, gelu="tanh"), 1, 5)
    monkeypatch.setitem(CASES, "gpt2-decode-128", small)
    path = tmp_path / "rows.json"
    options = ["--threads", "1", "--no-inductor", "--layers", "1", "--json", str(path)]
    with patch.dict(os.environ):
        result = CliRunner().invoke(app, ["bench", "transformers", "gpt2-decode-128", *options])
    assert result.exit_code == 0, result.exception
    data = json.loads(path.read_text(encoding="utf-8"))
    (row,) = data["rows"]
    assert (row["model"], row["threads"], row["ours"]) == ("gpt2-decode-128", 1, "cpu")
    assert {"cpu", GROWING, "onnxruntime", "torch", "onnxruntime optimised"} <= row["seconds"].keys()
    small = {"cpu int8", "cpu int4", "onnxruntime int8", "onnxruntime int4"}
    assert row["sqnr"].keys() == small < row["seconds"].keys()
    assert row["sqnr"]["cpu int8"] > row["sqnr"]["cpu int4"] + 12
    assert row["moved_bytes"]["cpu int4"] < row["moved_bytes"]["cpu int8"] < 0.5 * row["moved_bytes"]["cpu"]
    assert any(note.startswith("perplexity on text that the float32 model draws: float32 ") for note in row["notes"])
    assert row["tokens_per_second"]["cpu"] == pytest.approx(1 / row["seconds"]["cpu"])
    share = row["moved_bytes"]["cpu"] / row["seconds"]["cpu"] / row["bandwidth"]
    assert row["share_of_bandwidth"]["cpu"] == pytest.approx(share)
    assert any(note.startswith(f"{STEPS} steps of a growing cache: ") for note in row["notes"])
    assert "tokens/s" in result.output


def test_bytes_that_a_step_needs():
    model = gpt2(Config(2, 64, 2, packed=True), 50, 40)
    assert isinstance(model, Decoder)
    inputs = {name: x.numpy() for name, x in model.example(1, 1, 7).items()}
    weights = sum(each.weight.numel() + each.bias.numel() for each in model.modules() if isinstance(each, nn.Linear))
    norms = 2 * 64 * (2 * 2 + 1)
    # the words are read whole, for the logits; one position; a token; keys and values of two layers
    assert needed_bytes(model, inputs, 1) == 4 * (weights + norms + 50 * 64 + 64) + 8 + 4 * 4 * 7 * 64


def test_perplexity_is_that_of_drawn_text():
    uniform = np.zeros((1, 2, 8), np.float32)
    assert perplexity(uniform, uniform) == pytest.approx(8)
    sure = np.full((1, 2, 8), -50, np.float32)
    sure[..., 3] = 50
    assert perplexity(sure, sure) == pytest.approx(1)
    assert perplexity(sure, uniform) == pytest.approx(8)


def test_an_unknown_case_is_refused():
    with pytest.raises(CompilerError, match="unknown case"):
        list(measure(["gpt3"], peak=1e11))
