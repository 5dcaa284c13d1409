"""The transforms of Winograd's minimal filtering for 3x3 convolutions, on blocked activations.

F(m x m, 3 x 3) computes a tile of m x m outputs from t x t inputs, t = m + 2, with t^2 multiplications in place of
9 m^2: Y = A' [(G w G') * (B' d B)] A, where * is the element-wise product. Summed over channels, the products become
t^2 matrix products. (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks, CVPR 2016.)

    input     d -> v[t * t, tiles, channels]         a task transforms a row of tiles of one block of channels
    output    p[t * t, tiles, filters] -> y          with bias, residual, and steps or clamping

A number that is not finite, or an overflow, reaches all results of its tile. If there is any, the word `nonfinite` is
set, and the convolution has to be computed in another way.

Channels are in the lanes: every element of a tile is a vector, and the transforms are sums of vectors.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FLOAT, INDEX, Int, Pointer
from mlhood.kernels.codegen.steps import Step, add_and_finish
from mlhood.kernels.codegen.target import Target

Matrix = tuple[tuple[float, ...], ...]

# for each m: B', G and A' with the interpolation points 0, 1, -1 (m = 2), and 2, -2 in addition (m = 4)
INPUT: dict[int, Matrix] = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
WEIGHTS: dict[int, Matrix] = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}
OUTPUT: dict[int, Matrix] = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}

_TILES = ("tasks", "first", "blocks", "tile_rows", "tile_columns", "high", "wide", "plane", "image")
INPUT_FIELDS = (*_TILES, "x", "top", "left", "v", "v_element", "v_ld")
OUTPUT_FIELDS = (*_TILES, "p", "p_element", "p_ld", "y", "bias", "residual", "nonfinite", "floor", "ceiling")


def build_input(target: Target, m: int) -> str:
    """Return the LLVM IR of the input's transform: x [N, C / lanes, H, W, lanes] -> v [t * t, tiles, v_ld]."""
    return _InputTransform(target, m).build()


def build_output(target: Target, m: int, epilogue: tuple[Step, ...] = ()) -> str:
    """Return the LLVM IR of the output's transform: p [t * t, tiles, p_ld] -> y [N, F / lanes, OH, OW, lanes].

    Args:
        target: The processor.
        m: Width of a tile of outputs.
        epilogue: Steps that are applied to the result instead of clamping it.
    """
    return _OutputTransform(target, m, epilogue).build()


class _Transform:
    """What both transforms share: tasks, and the two-dimensional transform of a tile of vectors."""

    fields: tuple[str, ...]

    def __init__(self, target: Target, m: int) -> None:
        self.arguments, self.lanes, self.m, self.t = Arguments(self.fields), target.lanes, m, m + 2
        self.code = self.arguments.code
        self.field = {name: self.arguments.integer(name) for name in self.fields}

    def build(self) -> str:
        """Build the function."""
        f = self.field
        with self.arguments.tasks(f["tasks"]) as task:
            block, line = task % f["blocks"], task // f["blocks"]  # a line: a row of tiles of one image
            image, row = (line + f["first"]) // f["tile_rows"], (line + f["first"]) % f["tile_rows"]
            with self.code.loop(0, f["tile_columns"]) as column:
                index = line * f["tile_columns"] + column
                self._tile(image * f["image"] + block * f["plane"], block, row, column, index)
        return self.arguments.finished()

    def _tile(self, plane: Int, block: Int, row: Int, column: Int, index: Int) -> None:
        raise NotImplementedError

    def _transform(self, matrix: Matrix, tile: list[list[Any]]) -> list[list[Any]]:
        """Return M tile M' for a tile of vectors."""
        by_column = [self._combine(matrix, list(column)) for column in zip(*tile, strict=True)]
        return [self._combine(matrix, list(row)) for row in zip(*by_column, strict=True)]

    def _combine(self, matrix: Matrix, vectors: list[Any]) -> list[Any]:
        """Return the product of a matrix and a column of vectors."""
        return [self._sum(coefficients, vectors) for coefficients in matrix]

    def _sum(self, coefficients: tuple[float, ...], vectors: list[Any]) -> Any:
        """Return a linear combination: terms with the factors 1 and -1 first, the others by fused multiply-adds."""
        builder = self.code.builder
        terms = sorted(zip(coefficients, vectors, strict=True), key=lambda term: (abs(term[0]) != 1, -term[0]))
        terms = [term for term in terms if term[0]]
        (first, total), *others = terms
        if first != 1:
            total = builder.fmul(self._constant(first), total)
        for coefficient, vector in others:
            if abs(coefficient) == 1:
                total = (builder.fadd if coefficient > 0 else builder.fsub)(total, vector)
            else:
                total = self.code.fma(self._constant(coefficient), vector, total)
        return total

    def _constant(self, value: float) -> Any:
        return ir.Constant(ir.VectorType(FLOAT, self.lanes), [float(value)] * self.lanes)


class _InputTransform(_Transform):
    fields = INPUT_FIELDS

    def _tile(self, plane: Int, block: Int, row: Int, column: Int, index: Int) -> None:
        f, b, lanes, t = self.field, self.code.builder, self.lanes, self.t
        x = self.arguments.pointer("x").at(plane)
        top, left = row * self.m - f["top"], column * self.m - f["left"]
        edge = self.code.buffer(t * t * self.lanes)
        inside = [self.code.constant(-1) < top, self.code.constant(-1) < left]
        inside += [top + (t - 1) < f["high"], left + (t - 1) < f["wide"]]
        is_inside = b.and_(b.and_(inside[0], inside[1]), b.and_(inside[2], inside[3]))
        with b.if_then(b.not_(is_inside)):
            self._copy_window(x, edge, top, left)
        source = b.select(is_inside, x.at((top * f["wide"] + left) * lanes).value, edge.value)
        ld = (f["wide"] * lanes).where(is_inside, t * lanes)
        window = Pointer(b, source)
        tile = [[window.at(ld * i + j * lanes).load(lanes) for j in range(t)] for i in range(t)]
        out = self.arguments.pointer("v").at(index * f["v_ld"] + block * lanes)
        for i, line in enumerate(self._transform(INPUT[self.m], tile)):
            for j, vector in enumerate(line):
                out.at(f["v_element"] * (i * t + j)).store(vector)

    def _copy_window(self, x: Pointer, edge: Pointer, top: Int, left: Int) -> None:
        """Copy a window to a buffer, with zeros where it lies outside of the image."""
        f, b, lanes, t = self.field, self.code.builder, self.lanes, self.t
        with self.code.loop(0, t) as i, self.code.loop(0, t) as j:
            line, pixel = top + i, left + j
            bounds = [self.code.constant(-1) < line, line < f["high"], self.code.constant(-1) < pixel]
            valid = b.and_(b.and_(bounds[0], bounds[1]), b.and_(bounds[2], pixel < f["wide"]))
            target = edge.at((i * t + j) * lanes)
            with b.if_else(valid) as (copy, zero):
                with copy:
                    target.store(x.at((line * f["wide"] + pixel) * lanes).load(lanes))
                with zero:
                    target.store(self._constant(0))


class _OutputTransform(_Transform):
    fields = OUTPUT_FIELDS

    def __init__(self, target: Target, m: int, epilogue: tuple[Step, ...]) -> None:
        super().__init__(target, m)
        self.epilogue = epilogue

    def _tile(self, plane: Int, block: Int, row: Int, column: Int, index: Int) -> None:
        f, lanes, t, m = self.field, self.lanes, self.t, self.m
        p = self.arguments.pointer("p").at(index * f["p_ld"] + block * lanes)
        tile = [[p.at(f["p_element"] * (i * t + j)).load(lanes) for j in range(t)] for i in range(t)]
        results, buffer = self._transform(OUTPUT[m], tile), self.code.buffer(m * m * self.lanes)
        for i, line in enumerate(results):
            for j, vector in enumerate(line):
                buffer.at((i * m + j) * lanes).store(vector)
        self._check_finite([vector for line in results for vector in line])
        top, left = row * m, column * m
        bias = self.arguments.pointer("bias").at(block * lanes).load(lanes)
        with (
            self.code.loop(0, (f["high"] - top).minimum(m)) as i,
            self.code.loop(0, (f["wide"] - left).minimum(m)) as j,
        ):
            pixel = plane + ((top + i) * f["wide"] + left + j) * lanes
            total = buffer.at((i * m + j) * lanes).load(lanes)
            result = add_and_finish(self.arguments, self.epilogue, total, bias, pixel)
            self.arguments.pointer("y").at(pixel).store(result)

    def _check_finite(self, vectors: list[Any]) -> None:
        """Set the word `nonfinite` if an element is infinite or NaN: times zero, only those do not give zero."""
        builder, zero = self.code.builder, self._constant(0)
        total = zero
        for vector in vectors:
            total = self.code.fma(vector, zero, total)
        lanes = builder.bitcast(builder.fcmp_unordered("uno", total, total), ir.IntType(self.lanes))
        with builder.if_then(builder.icmp_unsigned("!=", lanes, ir.IntType(self.lanes)(0)), likely=False):
            self.arguments.pointer("nonfinite", INDEX).store(INDEX(1))
