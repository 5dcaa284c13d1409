"""What `mlhood compile --target c` and `--target wasm` do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlhood.files.terminal import echo

if TYPE_CHECKING:
    import numpy as np

    from mlhood.compiler.quantize import Recipe


def write(
    model: Path,
    out: Path | None,
    target: str,
    recipe: Recipe | None,
    calibration: Mapping[str, np.ndarray] | None,
    inputs: Mapping[str, Any],
    levels: str | None,
    others: Mapping[str, object],
) -> None:
    """Write a bundle, and print its stages and files.

    Args:
        model: The ONNX file.
        out: The folder.
        target: "c" or "wasm".
        recipe: How to quantise.
        calibration: Data for it.
        inputs: What is given of the inputs: arguments "dims", "constants" and "shapes" of `compile`.
        levels: The numbers for black and white, as text.
        others: Options that do not go with these targets, by name; None or False where they are not given.

    Raises:
        CompilerError: As `write_bundle`, or for options that do not go together.
    """
    from mlhood.compiler.bundle import write_bundle
    from mlhood.errors import CompilerError

    if given := [name for name, value in others.items() if value]:
        todo = "leave them out, or choose another target"
        raise CompilerError(f"options that do not go with --target {target}", got=", ".join(given), todo=todo)
    if out is None:
        raise CompilerError(f"--target {target} writes files", expected="a folder", got="none", todo="add --out FOLDER")
    bundle = write_bundle(
        model, out, target, recipe, calibration=calibration, levels=None if levels is None else _pair(levels), **inputs
    )
    for stage in bundle.stages:
        echo(stage)
    for name, length in bundle.dims.items():
        note = "" if name in inputs["dims"] else f"; choose another with --dim {name}=..."
        echo(f"axis {name!r} has length {length}{note}")
    for path in bundle.paths:
        echo(f"wrote {path} ({path.stat().st_size:,} bytes)")


def _pair(text: str) -> tuple[float, float]:
    from mlhood.errors import CompilerError

    try:
        black, white = map(float, text.split(","))
    except ValueError as error:
        raise CompilerError("invalid --levels", expected="two numbers, such as 0,1", got=text) from error
    return black, white
