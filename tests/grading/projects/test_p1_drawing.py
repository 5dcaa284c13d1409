"""A drawing of a graph by other means than Netron is one."""

from __future__ import annotations

import numpy as np
import onnx

from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.drawing import check_drawing
from tests.grading.projects.p1_wrong import DRAWN


def test_a_drawing_of_ones_own_is_one(tmp_path):
    exec(DRAWN, names := {"np": np, "onnx": onnx})
    model, pdf = tmp_path / "network.onnx", tmp_path / "network.pdf"
    for seed in range(3):
        model.write_bytes(reference.random_network_onnx(np.random.default_rng(seed), "image", "scores"))
        names["print_graph"](str(model), str(pdf))
        check_drawing(pdf, model, what="the PDF", hint="")
