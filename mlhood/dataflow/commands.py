"""The commands of the slicing analysis and of the systolic array."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlhood.errors import DataflowError, SlicingError
from mlhood.files.terminal import echo

if TYPE_CHECKING:
    from mlhood.dataflow.systolic import Array, Product

SIZE = typer.Option(min=1, max=10**9)
PRESETS = "architecture_presets"


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("slice")(slice_convolution)
    app.command("systolic")(systolic)


def slice_convolution(
    filters: Annotated[int, SIZE],
    channels: Annotated[int, SIZE],
    kernel: Annotated[str, typer.Option(help="The kernel's size: 3, or 3x5.")],
    output: Annotated[str, typer.Option(help="The result's size: 75, or 75x50.")],
    caches: Annotated[
        str, typer.Option(help="L1, L2 and L3, such as 32KiB,1MiB,4MiB (- for none); or `machine`.")
    ] = "machine",
    fill: Annotated[float, typer.Option(help="Fraction of each cache that tiles may occupy.")] = 0.9,
    register_tile: Annotated[str, typer.Option(help="Windows x filters: 16x8; this machine's by default.")] = "",
) -> None:
    """Choose how to slice a convolution for the caches: (k1, k2, k3), and input or weight stationary.

    Example: mlhood slice --filters 256 --channels 32 --kernel 3 --output 75 --caches 32KiB,1MiB,4MiB --register-tile
    16x8
    """
    from mlhood.dataflow.slicing.analysis import analyse
    from mlhood.dataflow.slicing.caches import declared, of_machine
    from mlhood.dataflow.slicing.problem import Problem

    sizes = of_machine(fill) if caches.strip().lower() == "machine" else declared(caches, fill)
    height, width = _pair(output, "--output")
    tile = _pair(register_tile, "--register-tile") if register_tile else _register_tile(height * width, filters)
    problem = Problem(filters, channels, _pair(kernel, "--kernel"), (height, width), *tile)
    analysis = analyse(problem, sizes)
    slicing = analysis.slicing
    echo(f"{slicing.order}: k1 = {slicing.k1} channels, k2 = {slicing.k2}, k3 = {slicing.k3} tiles of {tile}; {sizes}")
    for candidate, traffic in analysis.candidates.values():
        moved = f"from L1 {traffic.l1:,} loads, L2 {traffic.l2:,}, L3 {traffic.l3:,}, memory {traffic.memory:,} lines"
        echo(f"{candidate}: {moved}; {traffic.cycles:,} cycles")


def _pair(text: str, option: str) -> tuple[int, int]:
    """Parse `3` or `3x5`."""
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise SlicingError("invalid size", where=option, expected="one number, or two: 3x5", got=text[:40])
    return int(parts[0]), int(parts[-1])


def _register_tile(windows: int, filters: int) -> tuple[int, int]:
    from mlhood.kernels.codegen.microkernel import cheapest
    from mlhood.kernels.codegen.target import host

    tile = cheapest(host(), max(1, windows), filters)
    return tile.rows, tile.columns


def systolic(
    config: Annotated[Path, typer.Option(help="SCALE-Sim's configuration: the array and its dataflow.")],
    topology: Annotated[Path, typer.Option(help="SCALE-Sim's topology: a convolution or a matrix product per row.")],
    dataflow: Annotated[str | None, typer.Option(help="ws, is or os, instead of the configuration's.")] = None,
) -> None:
    """Count cycles and utilisation of layers on a systolic array whose memories never stall it.

    SCALE-Sim reports one cycle less, the index of the last.

    Example: mlhood systolic --config scale.cfg --topology alexnet.csv --dataflow ws
    """
    import pandas as pd

    from mlhood.dataflow.systolic import count

    array = _read_array(config, dataflow)
    counted = [(product, count(product, array)) for product in _read_products(topology)]
    rows = [
        [each.name, each.m, each.n, each.k, counts.folds, counts.cycles, f"{counts.utilisation:.1%}"]
        for each, counts in counted
    ]
    echo(f"{array.rows} x {array.columns} elements, {array.dataflow}")
    echo(pd.DataFrame(rows, columns=["layer", *"MNK", "folds", "cycles", "use"]).to_string(index=False))
    echo(f"cycles in all: {sum(counts.cycles for _, counts in counted):,}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataflowError("the file cannot be read", where=path, got=str(error)) from None


def _read_array(path: Path, dataflow: str | None) -> Array:
    import configparser

    from mlhood.dataflow.systolic import Array

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(_read(path))
        presets = parser[PRESETS]
        sizes = presets.getint("ArrayHeight"), presets.getint("ArrayWidth")
        return Array(*sizes, (dataflow or presets["Dataflow"]).strip().lower())  # type: ignore[arg-type]
    except (configparser.Error, KeyError, ValueError) as error:
        expected = f"[{PRESETS}] with ArrayHeight, ArrayWidth and Dataflow"
        raise DataflowError("not a configuration of SCALE-Sim", where=path, expected=expected, got=str(error)) from None


def _read_products(path: Path) -> list[Product]:
    from mlhood.dataflow.systolic import Product

    products = []
    for number, line in enumerate(_read(path).splitlines()[1:], 2):
        name, *cells = [cell.strip() for cell in line.strip().strip(",").split(",")]
        sizes = [int(cell) for cell in cells if cell.isdecimal() and len(cell) < 10]
        if not name:
            continue
        if len(sizes) == 3:
            m, n, k = sizes
        elif len(sizes) in (7, 8) and sizes[6] and sizes[-1]:
            height, width, kernel_height, kernel_width, channels, n, stride = sizes[:7]
            m = ((height - kernel_height) // stride + 1) * ((width - kernel_width) // sizes[-1] + 1)
            k = kernel_height * kernel_width * channels
        else:
            expected = "name, M, N, K; or name, height and width of image and window, channels, filters, stride"
            raise DataflowError("invalid layer", where=f"{path}, line {number}", expected=expected, got=line)
        products.append(Product(name, m, n, k))
    return products
