"""A drawing of a graph by other means than Netron is one."""

from __future__ import annotations

import io

import numpy as np
import onnx
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure

from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.drawing import _read, check_drawing
from tests.grading.projects.p1_wrong import DRAWN


def test_a_drawing_of_ones_own_is_one(tmp_path):
    exec(DRAWN, names := {"np": np, "onnx": onnx})
    model, pdf = tmp_path / "network.onnx", tmp_path / "network.pdf"
    for seed in range(3):
        model.write_bytes(reference.random_network_onnx(np.random.default_rng(seed), "image", "scores"))
        names["print_graph"](str(model), str(pdf))
        check_drawing(pdf, model, what="the PDF", hint="")


def test_a_ligature_is_read_as_its_letters():
    figure = Figure(figsize=(4, 2))
    figure.text(0.1, 0.5, "eoa\ufb01dkrq and Conv")  # as a font draws it
    data = io.BytesIO()
    FigureCanvasPdf(figure).print_figure(data, format="pdf")
    words, _, _, sizes, _ = _read(data.getvalue(), onnx.ModelProto().SerializeToString())
    assert "eoafidkrq and Conv" in "".join(words)
    assert sizes.tolist() == [[288, 144]]
