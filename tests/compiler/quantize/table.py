"""Print the SQNR of LeNet's logits with ONNX Runtime's quantiser and ours: python -m tests.compiler.quantize.table."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pandas as pd

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.compiler.quantize import Recipe, profile, quantize, sqnr
from mlhood.exchange import export
from mlhood.models import digits
from tests.compiler.quantize.conftest import trained_lenet
from tests.compiler.quantize.ort import logits_of, quantized_by_onnxruntime
from tests.compiler.quantize.test_against_onnxruntime import SETTINGS


def rows(seed, folder):
    data = digits("")
    calibration, images = data.train_images[:200], data.test_images
    model = onnx.load(
        export(trained_lenet(data, seed), np.zeros((1, 1, 32, 32), np.float32), Path(folder) / "lenet.onnx")
    )
    graph = optimize(import_model(model))
    statistics, expected = profile(graph, [{"image": calibration}]), logits_of(model, images)
    for element, schema, per_channel in SETTINGS:
        options = {"element": element, "per_channel": per_channel, "symmetric": schema == "symmetric"}
        theirs = logits_of(quantized_by_onnxruntime(model, calibration, folder, **options), images)
        quantized = quantize(graph, statistics, Recipe(schema, element, per_channel, headroom=0.0))
        ours = Interpreter(quantized).run({"image": images})["logits"]
        setting = f"{element} {schema}{', per channel' if per_channel else ''}"
        yield {"setting": setting, "seed": seed, "onnxruntime": sqnr(expected, theirs), "ours": sqnr(expected, ours)}


def main(seeds):
    with tempfile.TemporaryDirectory() as folder:
        table = pd.DataFrame([row for seed in range(seeds) for row in rows(seed, folder)])
    table["difference"] = table["ours"] - table["onnxruntime"]
    means = table.groupby("setting", sort=False)[["onnxruntime", "ours"]].mean()
    ends = table.groupby("setting", sort=False)["difference"].agg(["min", "max"])
    print(means.join(ends).round(2).to_string())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
