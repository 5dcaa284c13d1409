"""`lenet.onnx`, the file that P1 writes and P2 reads."""

from __future__ import annotations

from pathlib import Path

import onnx

from mlhood.errors import ExchangeError
from mlhood.exchange.export import export
from mlhood.exchange.load import load
from mlhood.models.digits import digits

INPUT, OUTPUT = "image", "logits"


def lenet_onnx(path: str | Path = "lenet.onnx") -> str:
    """Ensure that `path` holds a trained LeNet with input `image` and output `logits`; return a message on its origin.

    An existing file is used unchanged. Otherwise the package's LeNet is trained on the digits (a few seconds) from
    fixed initial weights and exported to `path`.

    Raises:
        ExchangeError: The existing file is not an ONNX model, or has other inputs or outputs.
    """
    target = Path(path)
    if target.exists():
        _check(load(target), target)
        return f"using the existing {target.name}"
    import torch

    from mlhood.models.networks import LeNet
    from mlhood.models.training import train

    data = digits()
    with torch.random.fork_rng(devices=[]):  # fixed weights make the results reproducible
        torch.manual_seed(0)
        model = LeNet()
    train(model, data.train_images, data.train_labels)
    export(model.eval(), data.test_images[:2], target)
    return f"{target.name} not found: trained a LeNet and exported it"


def _check(model: onnx.ModelProto, path: Path) -> None:
    initializers = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in initializers]
    outputs = [value.name for value in model.graph.output]
    if (inputs, outputs) != ([INPUT], [OUTPUT]):
        raise ExchangeError(
            "the model has other inputs or outputs than P1's LeNet",
            where=str(path),
            expected=f"input {INPUT!r}, output {OUTPUT!r}",
            got=f"input {', '.join(map(repr, inputs))}, output {', '.join(map(repr, outputs))}",
            todo="export it with these names (P1.4), or delete the file to have a LeNet trained instead",
        )
