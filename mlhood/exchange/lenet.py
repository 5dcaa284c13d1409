"""The file that P1 leaves and P2 begins with."""

from __future__ import annotations

from pathlib import Path

import onnx
import torch

from mlhood.errors import ExchangeError
from mlhood.exchange.export import export
from mlhood.exchange.load import load
from mlhood.models import LeNet, digits, train

INPUT, OUTPUT = "image", "logits"


def lenet_onnx(path: str | Path = "lenet.onnx") -> str:
    """Make sure that there is a trained LeNet with input `image` and output `logits`, and say where it comes from.

    A file that is there is taken as it is. Otherwise the package's LeNet is trained on the digits (some seconds), from
    the same random weights each time, and written there.

    Raises:
        ExchangeError: The file that is there is no ONNX model, or has other inputs or outputs.
    """
    target = Path(path)
    if target.exists():
        _check(load(target), target)
        return f"{target.name} is there, and is taken as it is"
    data = digits()
    with torch.random.fork_rng(devices=[]):  # the same network each time: what is read from it can be compared
        torch.manual_seed(0)
        model = LeNet()
    train(model, data.train_images, data.train_labels)
    export(model.eval(), data.test_images[:2], target)
    return f"there was no {target.name}: a LeNet was trained and written to it"


def _check(model: onnx.ModelProto, path: Path) -> None:
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in stored]
    outputs = [value.name for value in model.graph.output]
    if (inputs, outputs) != ([INPUT], [OUTPUT]):
        raise ExchangeError(
            "the model has other inputs or outputs than P1's LeNet",
            where=str(path),
            expected=f"input {INPUT!r}, output {OUTPUT!r}",
            got=f"input {', '.join(map(repr, inputs))}, output {', '.join(map(repr, outputs))}",
            todo="export it with these names (P1.4), or move the file away and a LeNet is trained instead",
        )
