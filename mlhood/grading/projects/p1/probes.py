"""Functions that P1's checks call in the student's process, about torch modules.

They read a module where torch keeps its parameters and layers, not through methods that a class can override. Even so,
what they return is only a claim, which checks compare with what they compute from their own weights and inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mlhood.grading.rpc.guard import call_guarded


def parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of a module by name."""
    return {name: value.detach().clone() for name, (_, value) in _owned(model).items()}


def load(model: Any, values: dict[str, Any]) -> None:
    """Set the parameters of a module from arrays, by name."""
    import torch

    with torch.no_grad():
        for name, (_, parameter) in _owned(model).items():
            if name in values:
                parameter.copy_(torch.as_tensor(values[name]))


def lenet(values: dict[str, Any], note: Callable[[Any], None] = lambda logits: None) -> Any:
    """Return the course's network with these parameters; it calls `note` with all logits that it computes."""
    import torch
    from torch import nn

    class LeNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
            self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

        def forward(self, x: Any) -> Any:
            for layer in (self.conv1, self.conv2):
                x = nn.functional.max_pool2d(torch.relu(layer(x)), 2)
            x = torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1)))))
            logits = self.fc3(x)
            note(logits)
            return logits

    model = LeNet()
    load(model, values)
    return model


def trained(train: Any, values: dict[str, Any], images: Any, labels: Any, *told: float) -> dict[str, Any]:
    """Train the course's network, with these parameters, by the student's function.

    Returns:
        What is `returned`, the `parameters` after it, and of each batch with a gradient its `sizes`, and the mean cross
        entropy before the step (`losses`). The gradient of the logits is negative at the label alone.

    Raises:
        RuleBroken: The function changes the images or the labels.
    """
    import torch

    sizes, losses = [], []

    def note(logits: Any) -> None:
        values = logits.detach()

        def note_loss(gradient: Any) -> None:
            sizes.append(len(values))
            losses.append(torch.nn.functional.cross_entropy(values, gradient.argmin(1)).item())

        if logits.requires_grad:
            logits.register_hook(note_loss)

    model = lenet(values, note)
    returned = call_guarded(train, model, images, labels, *told)
    return {"returned": returned, "parameters": parameters(model), "sizes": sizes, "losses": losses}


def trained_again(lenet: Any, train: Any, images: Any, labels: Any, *told: float) -> dict[str, Any]:
    """Train a network as the notebook does, with the student's class and function; return its parameters."""
    import torch

    torch.manual_seed(0)
    model = lenet()
    train(model, images, labels, *told)
    return parameters(model)


def layer_outputs(model: Any, values: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Set the parameters of a module, and run the layer that owns each weight of `inputs` on its input.

    Returns:
        By the weight's name: the layer's output, the text of the error that it raised, or None if the weight belongs
        to no layer that can be run: it is a parameter of the module itself or of a mere container.
    """
    from torch import nn

    load(model, values)
    owned = _owned(model)
    runnable = {name: owned[name][0] for name in inputs}
    return {
        name: None if layer is model or type(layer).forward is nn.Module.forward else _attempt(layer, inputs[name])
        for name, layer in runnable.items()
    }


def forward(model: Any, images: Any, training: bool = False, options: dict[str, Any] | None = None) -> Any:
    """Return the output of a module in evaluation or training mode, without gradients; the mode is restored.

    Raises:
        RuleBroken: It changes the images.
    """
    import torch

    before = model.training
    try:
        model.train(training)
        with torch.no_grad():
            return call_guarded(model, images, **(options or {}))
    finally:
        model.train(before)


def with_dropout(model: Any) -> Any:
    """Let a LeNet drop some of its features, and be in training mode."""
    from torch import nn

    model.fc1 = nn.Sequential(model.fc1, nn.Dropout(0.02))
    return model.train()


def scan(exportable: Any, values: dict[str, Any], images: Any) -> Any:
    """Return what the student's scanner makes of images with the course's network, which has these parameters."""
    return forward(exportable(lenet(values)), images)


def export_scanner(exportable: Any, values: dict[str, Any], path: str) -> None:
    """Export the student's scanner with the course's network, which has these parameters.

    Raises:
        Exception: What the exporter says is wrong with it, without its general advice.
    """
    import torch

    from mlhood.exchange import silence

    model, example = exportable(lenet(values)).eval(), torch.zeros(2, 1, 32, 32)
    try:
        with silence():
            torch.onnx.export(model, (example,), path, dynamic_shapes=({0: "batch"},), external_data=False)
    except torch.onnx.OnnxExporterError as error:
        raise error.__cause__ or error from None


def _attempt(layer: Any, value: Any) -> Any:
    try:
        return forward(layer, value)
    except Exception as error:  # the student's layer may raise anything
        return f"{type(error).__name__}: {error}"


def _owned(model: Any) -> dict[str, tuple[Any, Any]]:
    """Return the parameters of a module by name, each with the module that registered it."""
    found: dict[str, tuple[Any, Any]] = {}
    known: set[int] = set()
    for prefix, module in _modules(model, "", set()):
        for name, parameter in vars(module)["_parameters"].items():
            if parameter is not None and id(parameter) not in known:
                known.add(id(parameter))
                found[prefix + name] = module, parameter
    return found


def _modules(module: Any, prefix: str, known: set[int]) -> Iterator[tuple[str, Any]]:
    from torch import nn

    if not issubclass(type(module), nn.Module):
        raise TypeError(f"a torch.nn.Module was expected, not an object of type {type(module).__name__}")
    if id(module) in known:
        return
    known.add(id(module))
    yield prefix, module
    for name, child in vars(module)["_modules"].items():
        if child is not None:
            yield from _modules(child, f"{prefix}{name}.", known)
