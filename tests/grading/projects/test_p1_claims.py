"""What a solution of P1 says about itself earns nothing: the checks believe what they compute themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects.p1 import P1, reference, surgery
from mlhood.grading.projects.p1.drawing import check_drawing
from mlhood.grading.rpc.transport import LocalTransport
from tests.grading.projects.examples import Mistake
from tests.grading.projects.p1_claims import BOX, CLAIMS, LINE, WORDS
from tests.grading.projects.p1_snippets import (
    BY_ITSELF,
    FORKED,
    GOOD_FORWARD,
    GOOD_LAYERS,
    forked,
    forward,
    layers,
    scanner,
)

GIVEN = """
import numpy as np, onnx, pandas as pd, torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from mlhood import models
data = models.digits()
torch.manual_seed(0)
"""
# the cells of a task are executed after those of the tasks that it builds on
BEFORE = {
    "P1.2": layers(GOOD_LAYERS),
    "P1.3": layers(GOOD_LAYERS) | forward(GOOD_FORWARD),
    "P1.4": scanner(BY_ITSELF),
    "P1.7": forked(FORKED),
}
TRAINED = """
model = LeNet()
losses = train(model, torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels))
def mistakes(model, images, labels):
    return torch.nonzero(model(images).argmax(1) != labels).flatten()
"""
AFTER = {"P1.3": TRAINED}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A network this small trains fastest on one core, above all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.task} {claim.name}")
def test_a_claim_earns_nothing(claim: Mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(surgery, "find_browser", lambda: "none is needed here")
    names: dict = {}
    cells = [GIVEN, *(BEFORE.get(claim.task, {}) | claim.cells).values(), AFTER.get(claim.task, "")]
    for source in cells:
        exec(source, names)
    weights = reference.random_weights(np.random.default_rng(1))
    (tmp_path / "lenet.onnx").write_bytes(reference.lenet_onnx(weights))
    if claim.task == "P1.7":
        names["print_graph"]("lenet.onnx", "lenet.pdf")
    if claim.task == "P1.4":
        names["to_onnx"](names["model"], str(tmp_path / "lenet.onnx"))
    task = P1.task(claim.task)
    assert task is not None
    result = grade_task(task, Session(LocalTransport(names), tmp_path, tmp_path), 5)
    failed = [check for check in result.checks if check.status == "failed"]
    assert {check.name for check in failed} == set(claim.loses), failed
    messages = "\n".join(" ".join([check.what, *check.parts.values()]) for check in failed)
    assert re.search(claim.message, messages), messages


def test_a_drawing_of_ones_own_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(GIVEN + WORDS.replace("DRAW_BOX", BOX + LINE), names)
    model, pdf = tmp_path / "network.onnx", tmp_path / "network.pdf"
    for seed in range(3):
        model.write_bytes(reference.random_network_onnx(np.random.default_rng(seed), "image", "scores"))
        names["print_graph"](str(model), str(pdf))
        check_drawing(pdf, model, what="the PDF", hint="")
