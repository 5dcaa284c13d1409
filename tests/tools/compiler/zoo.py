"""Score the compiler on the zoo: each architecture, exported in several ways, beside ONNX Runtime.

`python -m tests.tools.compiler zoo` prints it. An export counts if torch makes it; it is right if on the target the
outputs are those of ONNX Runtime, or of torch where ONNX Runtime refuses the file.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx

from mlhood.compiler.compile import Executable
from mlhood.compiler.compile import compile as compile_model
from mlhood.errors import CompilerError, MlhoodError, nearest

if TYPE_CHECKING:
    from tests.tools.compiler.architectures import Architecture

TOLERANCE = 1e-4  # absolute and relative
TARGETS = ("interpreter", "cpu")
BATCHES = ("fixed", "open")

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Exporter:
    """A way to make an ONNX file of a torch module.

    Args:
        dynamo: torch's newer exporter, from `torch.export`; False: TorchScript.
        opset: Version of ONNX's operator set.
    """

    dynamo: bool
    opset: int

    def __str__(self) -> str:
        return f"{'dynamo' if self.dynamo else 'torchscript'}-{self.opset}"


EXPORTERS = {
    str(exporter): exporter
    for exporter in (
        *(Exporter(False, opset) for opset in (11, 17, 20)),
        *(Exporter(True, opset) for opset in (18, 23)),
    )
}


@dataclass(frozen=True)
class Outcome:
    """What became of one export on one target.

    Args:
        architecture: Its name.
        exporter: Key of `EXPORTERS`.
        batch: Whether the batch is "fixed" in the file, at 1, or "open".
        target: The compiler's target.
        verdict: "right", "wrong", "refused" by the compiler, "crashed" with another error, or "not exported" by torch.
        detail: The largest difference, or the error's first line.
    """

    architecture: str
    exporter: str
    batch: str
    target: str
    verdict: str
    detail: str = ""

    def __str__(self) -> str:
        case = f"{self.architecture}, {self.exporter}, {self.batch} batch, {self.target}"
        return f"{case}: {self.verdict}: {self.detail}"


def score_zoo(
    architectures: Sequence[str] = (),
    exporters: Sequence[str] = (),
    targets: Sequence[str] = (),
    batches: Sequence[str] = BATCHES,
) -> Iterator[Outcome]:
    """Yield the outcome of each export on each target.

    Args:
        architectures: Names of the zoo's; all if empty.
        exporters: Keys of `EXPORTERS`; all if empty.
        targets: Targets of the compiler; the interpreter and cpu if empty.
        batches: "fixed", "open" or both.

    Raises:
        ModelError: An architecture is unknown.
        CompilerError: An exporter is unknown.
    """
    from tests.tools.compiler.architectures import ARCHITECTURES, architecture

    if unknown := [name for name in exporters if name not in EXPORTERS]:
        raise CompilerError(
            "unknown exporter",
            expected=", ".join(EXPORTERS),
            got=", ".join(unknown),
            todo=nearest(unknown[0], EXPORTERS),
        )
    chosen = [architecture(name) for name in architectures or ARCHITECTURES]
    for entry in chosen:
        for name in exporters or EXPORTERS:
            for batch in batches:
                yield from _score(entry, name, batch, tuple(targets) or TARGETS)


def _score(entry: Architecture, exporter: str, batch: str, targets: Iterable[str]) -> Iterator[Outcome]:
    try:
        proto = export_architecture(entry, EXPORTERS[exporter], batch == "open")
    except Exception as error:  # torch raises errors of many kinds for what it cannot export
        yield from (Outcome(entry.name, exporter, batch, t, "not exported", _first_line(error)) for t in targets)
        return
    runs = [_reference(entry, proto, size) for size in ((1, 3) if batch == "open" else (1,))]
    for target in targets:
        yield Outcome(entry.name, exporter, batch, target, *_grade(proto, target, runs))


def _grade(proto: onnx.ModelProto, target: str, runs: list[tuple[Arrays, list[np.ndarray]]]) -> tuple[str, str]:
    try:
        executable = cast(Executable, compile_model(proto, target))
        worst = max(_difference(list(executable.run(**inputs).values()), expected) for inputs, expected in runs)
    except MlhoodError as error:
        return "refused", " ".join(str(error).split())
    except Exception as error:  # what users must never see is counted as well
        return "crashed", f"{type(error).__name__}: {_first_line(error)}"
    return ("right" if worst <= 1 else "wrong"), f"{worst * TOLERANCE:.1e}"


def _difference(actual: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Return the largest difference in units of what is tolerated; infinite if shapes or dtypes differ."""
    if [(a.shape, a.dtype) for a in actual] != [(e.shape, e.dtype) for e in expected]:
        return np.inf
    differences = [np.abs(a - e) / (TOLERANCE * (1 + np.abs(e))) for a, e in zip(actual, expected, strict=True)]
    worst = max(float(d.max(initial=0)) for d in differences)
    return np.inf if np.isnan(worst) else worst


def export_architecture(entry: Architecture, exporter: Exporter, open_batch: bool) -> onnx.ModelProto:
    """Return an architecture as an ONNX model, with the batch fixed to 1, or open.

    Args:
        entry: One of the zoo.
        exporter: How to export it.
        open_batch: Whether the file's batch axes are named "batch".
    """
    import torch

    names = [spec.name for spec in entry.inputs]
    options: dict[str, Any] = {"input_names": names, "opset_version": exporter.opset, "dynamo": exporter.dynamo}
    axes = {spec.name: spec.batch_axis for spec in entry.inputs}
    if exporter.dynamo:
        options |= {"external_data": False, "verbose": False, "optimize": True}
        batch = torch.export.Dim("batch", min=1, max=64)
        shapes = tuple({} if axis is None else {axis: batch} for axis in axes.values())
        options["dynamic_shapes"] = shapes if open_batch else None
    elif open_batch:
        options["dynamic_axes"] = {name: {axis: "batch"} for name, axis in axes.items() if axis is not None}
    samples = entry.samples(2 if open_batch else 1)
    with tempfile.TemporaryDirectory() as folder, _silence():
        path = Path(folder) / "model.onnx"
        torch.onnx.export(entry.model(), samples, path, **options)
        return onnx.load(path)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the exporters' progress, warnings and log records from the terminal."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            with contextlib.redirect_stderr(io.StringIO()):
                yield
    finally:
        logging.disable(level)


def _reference(entry: Architecture, proto: onnx.ModelProto, size: int) -> tuple[Arrays, list[np.ndarray]]:
    """Return inputs for a batch of this size, and what ONNX Runtime, or else torch, computes of them."""
    import onnxruntime
    import torch

    samples = entry.samples(size, seed=size)
    pairs = zip(entry.inputs, samples, strict=True)
    declared = {value.name for value in proto.graph.input}
    inputs = {spec.name: sample.numpy() for spec, sample in pairs if spec.name in declared}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        return inputs, list(map(np.asarray, session.run(None, inputs)))
    except Exception:  # it has no kernel for some exports; its errors share no base class
        with torch.inference_mode():
            results = entry.model()(*samples)
        return inputs, [result.numpy() for result in (results if isinstance(results, tuple) else (results,))]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def format_table(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each architecture, with how many of its exports are right by exporter, and the score."""
    import pandas as pd

    frame = pd.DataFrame([vars(outcome) for outcome in outcomes if outcome.verdict != "not exported"])
    if frame.empty:
        return "torch exports none of these"
    right = (frame.verdict == "right").groupby([frame.architecture, frame.exporter], sort=False)
    cells = right.sum().astype(str) + "/" + right.count().astype(str)
    rows = cells.unstack("exporter").fillna("-").to_string()
    count, total = share(outcomes)
    return f"{rows}\nright: {count} of {total}, {count / total:.1%}"


def share(outcomes: Iterable[Outcome]) -> tuple[int, int]:
    """Return how many of what torch exports is right, and how many there are."""
    verdicts = [outcome.verdict for outcome in outcomes if outcome.verdict != "not exported"]
    return verdicts.count("right"), len(verdicts)
