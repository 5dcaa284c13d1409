"""From an ONNX model to a folder of C, or to one page with WebAssembly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.typing import ArrayLike

from mlhood.compiler.backends.c.bundle import bundle_files
from mlhood.compiler.backends.c.wasm import page_files
from mlhood.compiler.compile import Calibration, Model, Stage, stages
from mlhood.compiler.hir.types import Dim
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.passes import optimize
from mlhood.compiler.lir.verify import verify
from mlhood.compiler.quantize import Recipe
from mlhood.compiler.quantize.samples import DIGITS
from mlhood.errors import CompilerError, OutputError, nearest
from mlhood.files.atomic import write_atomic
from mlhood.models import digits

BUNDLES = ("c", "wasm")


@dataclass(frozen=True)
class Bundle:
    """What was written.

    Args:
        paths: The files.
        dims: The length of each dynamic dimension, by name, that the program was compiled for.
        stages: The stages of the compilation.
    """

    paths: tuple[Path, ...]
    dims: Mapping[str, int]
    stages: tuple[Stage, ...]


def write_bundle(
    model: Model,
    folder: str | Path,
    target: str = "c",
    quantization: Recipe | str | None = None,
    *,
    calibration: Calibration = None,
    dims: Mapping[str, int] | None = None,
    constants: Mapping[str, ArrayLike] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    levels: tuple[float, float] | None = None,
) -> Bundle:
    """Compile an ONNX model to C99, or to a page with WebAssembly, in a folder, which is made if it is missing.

    Args:
        model: Path, bytes or proto.
        folder: Where the files go; those of the same names are replaced.
        target: "c" or "wasm".
        quantization: As for `compile`.
        calibration: As for `compile`.
        dims: Lengths of dynamic dimensions by name; 1 for the others.
        constants: As for `compile`.
        shapes: As for `compile`.
        levels: The numbers that the model knows as a black and as a white pixel, if it takes a grey picture; by default
            those of the course's digits for pictures of 32 x 32, 0 and 1 for others.

    Raises:
        ExchangeError: The model cannot be read.
        CompilerError: It cannot be compiled; it has operators without C, which the error lists; a compiler is missing.
        OutputError: The files cannot be written.
    """
    if target not in BUNDLES:
        raise CompilerError(
            "unknown kind of bundle", expected=", ".join(BUNDLES), got=repr(target), todo=nearest(target, BUNDLES)
        )
    folder = _folder(folder)
    completed = tuple(stages(model, quantization, None, calibration, constants=constants, shapes=shapes))
    graph = completed[-1].graph
    axes = [axis for value in graph.placeholders.values() for axis in value.type.shape if isinstance(axis, str)]
    lengths = {**dict.fromkeys(axes, 1), **(dims or {})}
    program = optimize(lower(graph, lengths))
    verify(program)
    grid, known = None, (0.0, 1.0)
    if [weight.type.shape for weight in program.weights.values() if weight.kind == "input"] == [(1, *DIGITS)]:
        data = digits()
        grid = 8 if data.source.startswith("scikit-learn") else None  # that the digits were drawn on
        # the frame of each picture is black, and some strokes are white
        known = float(data.train_images.min()), float(data.train_images.max())
    chosen = known if levels is None else levels
    files = bundle_files(program, chosen) if target == "c" else page_files(program, chosen, grid)
    paths = tuple(write_atomic(folder / name, text.encode("utf-8")) for name, text in files.items())
    return Bundle(paths, lengths, completed)


def _folder(folder: str | Path) -> Path:
    """Return the folder, made before long work."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        todo = "choose a folder that does not exist, or one with write permission"
        raise OutputError("the folder cannot be made", where=path, got=error.strerror, todo=todo) from error
    return path
