"""Packing: copying a strip of a matrix so that the microkernel reads it from one end to the other.

A panel of width p holds a strip of p rows (or columns) of a matrix, k by k: panel[k, i], with zeros where the matrix
ends before the panel does. Where the numbers of one k are neighbours they are copied; where those of one row are,
square blocks are transposed in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Plan, kernel
from mlhood.kernels.codegen.ir_builder import ADDRESS, BYTE, FLOAT, INDEX, Code, Int
from mlhood.kernels.codegen.microkernel import read_lanes, write_lanes
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.codegen.transpose import transpose

# `count` rows are there, the next one `ld` elements on (across), or the next k (not across)
PARAMETERS = {"source": ADDRESS, "ld": INDEX, "count": INDEX, "depth": INDEX, "out": ADDRESS}
FIELDS = ("tasks", "blocks", "source", "group", "ld", "count", "depth", "out")
_AHEAD = 2  # vectors of a row: rows are far apart, which no processor sees coming
_ZERO = ir.Constant(FLOAT, 0.0)


def packer(module: ir.Module, name: str, width: int, across: bool, target: Target) -> Code:
    """Write a function that packs one panel; its parameters are `PARAMETERS`.

    Args:
        module: Where it goes.
        name: Its name.
        width: The panel's width.
        across: Whether numbers of one row are neighbours (else those of one k).
        target: The processor.
    """
    code = Code(module, name, PARAMETERS, public=False)
    b = code.builder
    whole = code.integer("count").equals(width)
    done = code.variable(INDEX, INDEX(0))
    with code.when(whole):
        (_transpose_blocks if across else _copy_rows)(code, width, target)
        depth = code.integer("depth")
        done.set((depth - depth % target.lanes if across else depth).value)
    _one_by_one(code, Int(b, done.get()), width, across)
    code.done()
    return code


def _groups(width: int, lanes: int) -> list[tuple[int, int]]:
    return [(first, min(lanes, width - first)) for first in range(0, width, lanes)]


def _transpose_blocks(code: Code, width: int, target: Target) -> None:
    source, ld, depth, out = code.pointer("source"), code.integer("ld"), code.integer("depth"), code.pointer("out")
    with code.loop(0, depth - depth % target.lanes, target.lanes) as k:
        for first, count in _groups(width, target.lanes):
            places = [source.at(ld * (first + row) + k) for row in range(count)]
            for place in places:
                code.fetch(place.at(_AHEAD * target.lanes))
            rows = [place.load(target.lanes) for place in places]
            for lane, column in enumerate(transpose(code, rows, target.lanes)):
                write_lanes(code, out.at((k + lane) * width + first), column, count, target)


def _copy_rows(code: Code, width: int, target: Target) -> None:
    source, ld, out = code.pointer("source"), code.integer("ld"), code.pointer("out")
    with code.loop(0, code.integer("depth")) as k:
        for first, count in _groups(width, target.lanes):
            vector = read_lanes(code, source.at(ld * k + first), target.lanes, count, target)
            write_lanes(code, out.at(k * width + first), vector, count, target)


def _one_by_one(code: Code, start: Int, width: int, across: bool) -> None:
    """Copy what is left of the depth, and zeros where the strip is narrower than the panel."""
    source, ld, count, out = code.pointer("source"), code.integer("ld"), code.integer("count"), code.pointer("out")
    with code.loop(start, code.integer("depth")) as k:
        with code.loop(0, count) as row:
            place = ld * row + k if across else ld * k + row
            out.at(k * width + row).store(source.at(place).load())
        with code.loop(count, width) as row:
            out.at(k * width + row).store(_ZERO)


def byte_packer(module: ir.Module, name: str, width: int, target: Target) -> Code:
    """Write a function that packs a panel of s8 [4 * depth, count] as [depth, width, 4], with zeros beyond `count`.

    Its parameters are those of `mlhood.kernels.codegen.packing.packer`, all but depth counting bytes.
    """
    code = Code(module, name, PARAMETERS, public=False)
    source, ld, count = code.pointer("source", BYTE), code.integer("ld"), code.integer("count")
    whole = count.equals(width)
    with code.loop(0, code.integer("depth")) as k:
        rows = [source.at(ld * (k * 4 + row)) for row in range(4)]
        out = code.pointer("out", BYTE).at(k * (4 * width))
        with code.builder.if_else(whole) as (full, some):
            with full:
                for first in range(0, width, target.lanes):
                    quads = _interleave(code, [row.at(first).load(target.lanes) for row in rows])
                    out.at(4 * first).store(quads)
            with some, code.loop(0, width) as column:
                for number, row in enumerate(rows):
                    with code.builder.if_else(column < count) as (inside, beyond):
                        with inside:
                            out.at(column * 4 + number).store(row.at(column).load())
                        with beyond:
                            out.at(column * 4 + number).store(BYTE(0))
    code.done()
    return code


def _interleave(code: Code, rows: list[Any]) -> Any:
    """Return the first bytes of four rows, then the second ones, and so on."""
    lanes = rows[0].type.count
    pairs = [code.shuffle(rows[i], rows[i + 1], range(2 * lanes)) for i in (0, 2)]
    return code.shuffle(pairs[0], pairs[1], [row * lanes + lane for lane in range(lanes) for row in range(4)])


def build(target: Target, width: int, across: bool) -> str:
    """Return a kernel that packs all panels of the matrices of some groups, one a task, as LLVM IR."""
    module = ir.Module()
    pack = packer(module, "pack", width, across, target)
    code = kernel(module)
    plan = Plan(code, FIELDS)
    f: dict[str, Any] = {name: plan.integer(name) for name in FIELDS}
    source, out = plan.pointer("source"), plan.pointer("out")
    with plan.tasks(f["tasks"]) as task:
        group, first = task // f["blocks"], task % f["blocks"] * width
        place = source.at(group * f["group"] + first * f["ld"])
        count = (f["count"] - first).least(width)
        code.call(pack, place, f["ld"], count, f["depth"], out.at(task * f["depth"] * width))
    code.done()
    return str(module)
