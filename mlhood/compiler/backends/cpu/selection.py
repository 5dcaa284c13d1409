"""The choice of kernels: for an instruction, the native calls that compute it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlhood.compiler.backends.cpu.attention import mask_axes, shared_heads
from mlhood.compiler.backends.cpu.integer_selection import select_integers, windows_of
from mlhood.compiler.backends.cpu.lowering import OPERATIONS, epilogue_of
from mlhood.compiler.backends.cpu.machine import CpuSetup, Rule, Selection, constant, identity, shape, unary
from mlhood.compiler.backends.cpu.movement_selection import select_movement
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.lir.instructions import Buffer, Compute, Instruction
from mlhood.compiler.operators.activation import is_step, steps_of
from mlhood.compiler.operators.attention import Attention
from mlhood.compiler.operators.blocked import (
    BlockedAveragePool,
    BlockedConv,
    BlockedGlobalAveragePool,
    BlockedMaxPool,
)
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.matrix import FullyConnected, Gemm, MatMul
from mlhood.compiler.operators.normalization import LayerNormalization, LogSoftmax, Softmax
from mlhood.compiler.operators.pooling import GlobalAveragePool, PoolOperator
from mlhood.compiler.operators.quantized import BlockDense
from mlhood.compiler.operators.reduction import REDUCTIONS, Reduction
from mlhood.errors import KernelError
from mlhood.files.mapped import release_pages
from mlhood.kernels import (
    attention,
    direct,
    direct_variants,
    elementwise,
    product,
    rows,
    small_weights,
    windows,
    winograd,
)
from mlhood.kernels.codegen.steps import Step
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.geometry import Geometry, Layout
from mlhood.kernels.native import NativeCall
from mlhood.kernels.product import ProductSizes

_WORKSPACE_BYTES = 2**22  # of Winograd's transforms: they should stay in the cache between the calls


def select(instruction: Instruction, machine: CpuSetup) -> Selection | None:
    """Return the native calls of an instruction; None if there is no kernel for it, or it declines these sizes."""
    try:
        return _select(instruction, machine)
    except KernelError:
        return None


def _select(instruction: Instruction, machine: CpuSetup) -> Selection | None:
    if (selection := select_movement(instruction, machine)) is not None or not isinstance(instruction, Compute):
        return selection
    if (selection := select_integers(instruction, machine)) is not None:
        return selection
    rule = RULES.get(type(instruction.operator)) or (_elementwise if is_step(instruction.operator) else None)
    whole = isinstance(instruction.operator, BlockDense)  # the weights of which are int8
    types = [buffer.type for buffer in (*instruction.results, *instruction.reads[: 1 if whole else None])]
    if rule is None or any(type.element != "float32" or type.quantization for type in types):
        return None
    return rule(instruction.operator, instruction, machine)


# -- convolution


def _convolution(operator: BlockedConv, instruction: Compute, machine: CpuSetup) -> Selection | None:
    x, weight, bias, residual = (*instruction.inputs, None, None)[:4]
    w, result = constant(weight), instruction.results[0]
    if x is None or w is None or (bias is not None and constant(bias) is None):
        return None
    if not (math.prod(shape(x)) and w.size):
        return None
    g = _geometry(operator, shape(x), w.shape)
    epilogue = epilogue_of(operator.activation)
    operands = {"x": x, "y": result} | ({} if residual is None else {"residual": residual})
    if g.groups == g.channels == g.filters and not operator.plain_input:
        options: Any = machine.options | {"epilogue": epilogue}
        call = windows.depthwise(g, w, constant(bias), **options)
        return Selection((call,), operands)
    m = None if operator.plain_input or machine.exact else _winograd_tile(g, machine.target)
    if m is not None:
        return Selection(tuple(_winograd(g, w, constant(bias), epilogue, m, machine)), operands)
    layouts: tuple[Layout, Layout] = ("plain" if operator.plain_input else "blocked"), "blocked"
    return Selection((_direct(g, w, constant(bias), epilogue, layouts, machine),), operands)


def _plain_convolution(operator: Conv, instruction: Compute, machine: CpuSetup) -> Selection | None:
    """Select the direct convolution of plain activations, for groups that begin in the middle of a block."""
    x, weight, bias, residual = (*instruction.inputs, None, None)[:4]
    w, result = constant(weight), instruction.results[0]
    if x is None or w is None or w.ndim != 4 or (bias is not None and constant(bias) is None):
        return None
    if not (math.prod(shape(x)) and w.size):
        return None
    g = _geometry(operator, shape(x), w.shape)
    call = _direct(g, w, constant(bias), epilogue_of(operator.activation), ("plain", "plain"), machine)
    operands = {"x": x, "y": result} | ({} if residual is None else {"residual": residual})
    return Selection((call,), operands)


def _direct(
    g: Geometry,
    w: np.ndarray,
    bias: np.ndarray | None,
    epilogue: tuple[Step, ...],
    layouts: tuple[Layout, Layout],
    machine: CpuSetup,
) -> NativeCall:
    """Return the direct convolution for the layouts of the input and of the result."""
    source, result = layouts

    def prepare() -> direct.Direct:
        weights, target = np.ascontiguousarray(w), machine.target
        options: Any = {"input_layout": source, "output_layout": result, "epilogue": epilogue}
        prepared = direct.Direct(g, weights, bias, target, **options)
        release_pages(w)
        return prepared

    convolution = machine.weights.memo((layouts, g, identity(w), identity(bias), epilogue), prepare)
    return convolution.prepare(machine.threads)


def _geometry(operator: Conv, x: tuple[int, ...], w: tuple[int, ...]) -> Geometry:
    window: Any = w[2:], operator.strides, operator.pads, operator.dilations
    kernel, strides, pads, dilations = window
    return Geometry(x[0], w[1] * operator.group, x[2], x[3], w[0], kernel, strides, pads, dilations, operator.group)


def _winograd_tile(g: Geometry, target: Target) -> int | None:
    """Return the tile of the cheapest Winograd convolution; None if the direct one is cheaper."""
    if not winograd.supports(g, target.lanes):
        return None
    weights = 4 * 9 * g.channels * g.filters / winograd.BANDWIDTH
    costs: dict[int | None, float] = {m: winograd.estimated_cycles(g, m, target) for m in winograd.TILES}
    costs[None] = max(direct_variants.estimated_cycles(g, target, "blocked", "blocked"), weights)
    return min(costs, key=lambda m: costs[m])


def _winograd(
    g: Geometry, w: np.ndarray, bias: np.ndarray | None, epilogue: tuple[Step, ...], m: int, machine: CpuSetup
) -> list[NativeCall]:
    name = f"winograd {m}, panels of {winograd.panel_width(g, m, machine.target)}"
    packed = machine.weights.packed(w, name, lambda: winograd.pack_weights(g, w, m, machine.target))
    options: Any = machine.options | {"m": m, "epilogue": epilogue}
    rows_of_tiles, columns = winograd.tile_counts(g, m)
    lines = g.images * rows_of_tiles
    line_bytes = 4 * (m + 2) ** 2 * columns * (g.channels + g.filters)
    chunk = max(1, min(lines, _WORKSPACE_BYTES // line_bytes))
    return winograd.prepare_winograd(g, packed, bias, chunk=chunk, **options)


# -- pooling


def _pool(operator: PoolOperator, instruction: Compute, machine: CpuSetup) -> Selection | None:
    x, y = instruction.reads[0], instruction.results[0]
    over = windows_of(operator, x, y)
    count_pads = isinstance(operator, BlockedAveragePool) and operator.count_pads
    operation = "mean" if isinstance(operator, BlockedAveragePool) else "maximum"
    call = windows.pool(over, operation, count_pads=count_pads, **machine.options)
    return Selection((call,), {"x": x, "y": y})


def _global_pool(operator: BlockedGlobalAveragePool, instruction: Compute, machine: CpuSetup) -> Selection | None:
    x, y = instruction.reads[0], instruction.results[0]
    batch, blocks, high, wide, _ = shape(x)
    if not high * wide:
        return None
    # a window of one long row: only its length matters
    over = windows.Windows(batch * blocks, (high * wide, 1), (1, 1), (high * wide, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    call = windows.pool(over, "mean", **machine.options)
    return Selection((call,), {"x": x, "y": y})


# -- matrix products


def _dense(operator: FullyConnected, instruction: Compute, machine: CpuSetup) -> Selection | None:
    x, weight, bias = (*instruction.inputs, None)[:3]
    w = constant(weight)
    if x is None or w is None or (bias is not None and constant(bias) is None):
        return None
    *leading, depth = shape(x)
    sizes = ProductSizes(math.prod(leading), w.shape[0], depth)
    return _constant_product(sizes, w, w.T, constant(bias), epilogue_of(operator.activation), x, instruction, machine)


def _block_dense(operator: BlockDense, instruction: Compute, machine: CpuSetup) -> Selection | None:
    x, weight, scales, bias = (*instruction.inputs, None)[:4]
    w, scale = constant(weight), constant(scales)
    if x is None or w is None or scale is None or (bias is not None and constant(bias) is None):
        return None
    *leading, depth = shape(x)
    sizes = ProductSizes(math.prod(leading), w.shape[0], depth)
    bits, width = small_weights.bits_of(w, operator.block), small_weights.tile_of(sizes.m, machine.target)[1]
    width *= machine.target.lanes
    form = f"panels of {width}, {bits} bits"
    packed = machine.weights.packed(w, form, lambda: small_weights.pack_weights(w, bits, width))
    options: Any = machine.options | {"epilogue": epilogue_of(operator.activation)}
    call = small_weights.prepare(sizes, packed, scale, operator.block, constant(bias), **options)
    return Selection((call,), {"a": x, "out": instruction.results[0]})


def _constant_product(
    sizes: ProductSizes,
    source: np.ndarray,
    b: np.ndarray,
    bias: np.ndarray | None,
    epilogue: tuple[Step, ...],
    a: Buffer,
    instruction: Compute,
    machine: CpuSetup,
) -> Selection:
    tile = product.choose(sizes, machine.target)
    name = f"panels of {tile.columns}{'' if b is source else ', transposed'}"
    packed = machine.weights.packed(source, name, lambda: product.pack(b, tile.columns))
    options: Any = machine.options | {"tile": tile, "epilogue": epilogue}
    call = product.prepare(sizes, packed, bias, **options)
    return Selection((call,), {"a": a, "c": instruction.results[0]})


def _matmul(operator: MatMul, instruction: Compute, machine: CpuSetup) -> Selection | None:
    a, b = instruction.reads
    left, right = shape(a), shape(b)
    if len(left) < 2 or len(right) < 2:
        return None
    factor = constant(b)
    if factor is not None and math.prod(right[:-2]) == 1:
        sizes = ProductSizes(math.prod(left[:-1]), right[-1], left[-1])
        matrix = factor.reshape(right[-2:])
        return _constant_product(sizes, factor, matrix, None, epilogue_of(()), a, instruction, machine)
    if left[:-2] != right[:-2]:
        return None  # a broadcast batch
    sizes = ProductSizes(left[-2], right[-1], left[-1], math.prod(left[:-2]))
    return _product(sizes, a, b, False, instruction, machine)


def _product(
    sizes: ProductSizes, a: Buffer, b: Buffer, transposed: bool, instruction: Compute, machine: CpuSetup
) -> Selection:
    """Return the product of two factors that are known at run time only: the right one is packed first."""
    tile = product.choose(sizes, machine.target)
    pack = product.pack_at_run_time(sizes, tile, transposed=transposed, target=machine.target)
    multiply = product.prepare(sizes, None, **machine.options, tile=tile)
    size = 4 * sizes.batch * -(-sizes.n // tile.columns) * tile.columns * sizes.k
    operands = {"source": pack.operands["source"], "panels": pack.operands["out"]}
    packing = NativeCall(pack.kernel, pack.words, operands, {"panels": size}, pack.keep, pack.name)
    operands = {"a": multiply.operands["a"], "panels": multiply.operands["b"], "c": multiply.operands["c"]}
    multiplying = NativeCall(multiply.kernel, multiply.words, operands, {}, multiply.keep, multiply.name)
    return Selection((packing, multiplying), {"a": a, "source": b, "c": instruction.results[0]})


def _attention(operator: Attention, instruction: Compute, machine: CpuSetup) -> Selection | None:
    q, k, v, *masks = instruction.reads
    shared = shared_heads(shape(q), shape(k), shape(v))
    if not isinstance(shared, int):
        return None
    *leading, queries, depth = shape(q)
    keys, width = shape(v)[-2:]
    operands, layout = {"q": q, "k": k, "v": v, "out": instruction.results[0]}, None
    for mask in masks:
        axes = mask_axes(shape(mask), shape(q), keys)
        if axes is None:
            return None
        batch, by_batch, by_head, by_query = axes
        operands["mask"], heads, matrix = mask, math.prod(leading[batch:]), (queries if by_query else 1) * keys
        strides = by_batch * (heads if by_head else 1) * matrix, by_head * matrix, by_query * keys
        layout = attention.Mask(heads, *strides)
    sizes = attention.AttentionSizes(math.prod(leading), queries, keys, depth, width, shared)
    options: Any = {"mask": layout, "causal": operator.causal, "target": machine.target}
    return Selection(tuple(attention.attend(sizes, operator.scale, **options)), operands)


def _gemm(operator: Gemm, instruction: Compute, machine: CpuSetup) -> Selection | None:
    a, b = instruction.reads[:2]
    if len(instruction.reads) > 2 or operator.alpha != 1 or operator.transpose_a:
        return None
    left, right = shape(a), shape(b)
    sizes = ProductSizes(left[0], right[0 if operator.transpose_b else 1], left[1])
    return _product(sizes, a, b, operator.transpose_b, instruction, machine)


# -- rows


def _softmax(operator: Softmax, x: Buffer, y: Buffer, machine: CpuSetup) -> NativeCall | None:
    sizes = shape(x)
    axes = sorted(axis % len(sizes) for axis in operator.axes)
    if axes != list(range(len(sizes) - len(axes), len(sizes))) or not axes:
        return None
    log = isinstance(operator, LogSoftmax)
    return rows.softmax(math.prod(sizes[: axes[0]]), math.prod(sizes[axes[0] :]), log=log, target=machine.target)


def _layer_norm(operator: LayerNormalization, instruction: Compute, machine: CpuSetup) -> Selection | None:
    x, scale, bias = (*instruction.inputs, None)[:3]
    if operator.statistics or x is None or scale is None:
        return None
    sizes = shape(x)
    axis = operator.axis % len(sizes)
    length = math.prod(sizes[axis:])
    if any(buffer is not None and math.prod(shape(buffer)) != length for buffer in (scale, bias)):
        return None
    count = math.prod(sizes[:axis])
    call = rows.layer_norm(count, length, operator.epsilon, bias=bias is not None, target=machine.target)
    operands = {"x": x, "out": instruction.results[0], "scale": scale} | ({} if bias is None else {"bias": bias})
    return Selection((call,), operands)


def _global_mean(operator: GlobalAveragePool, x: Buffer, y: Buffer, machine: CpuSetup) -> NativeCall:
    return rows.reduce("Mean", math.prod(shape(x)[:2]), math.prod(shape(x)[2:]), machine.target)


def _reduction(operator: Reduction, x: Buffer, y: Buffer, machine: CpuSetup) -> NativeCall | None:
    sizes, name = shape(x), operator.name.removeprefix("Reduce")
    axes = sorted(axis % len(sizes) for axis in operator.axes)
    if name not in rows.REDUCTIONS or not axes or axes != list(range(len(sizes) - len(axes), len(sizes))):
        return None
    return rows.reduce(name, math.prod(sizes[: axes[0]]), math.prod(sizes[axes[0] :]), machine.target)


# -- element-wise operators


def _elementwise(operator: Operator, instruction: Compute, machine: CpuSetup) -> Selection | None:
    """Select one loop for all steps; numbers that are known when compiling are part of its code."""
    buffers = [buffer for buffer in instruction.inputs if buffer is not None]
    steps = steps_of(operator)
    if any(step[0] not in OPERATIONS for step in steps):
        return None
    inputs = [i for i, buffer in enumerate(buffers) if constant(buffer) is None or math.prod(shape(buffer)) != 1]
    if not inputs:
        return None
    scalars = [i for i in range(len(buffers)) if i not in inputs]
    order = [*inputs, *scalars, *range(len(buffers), len(buffers) + len(steps))]
    numbers = {old: new for new, old in enumerate(order)}
    values = [constant(buffers[i]) for i in scalars]
    chain = [("Constant", (float(value.item()),), ()) for value in values if value is not None]
    chain += [(name, attributes, tuple(numbers[i] for i in read)) for name, attributes, read in steps]
    shapes = [shape(buffers[i]) for i in inputs]
    call = elementwise.prepare(chain, shapes, shape(instruction.results[0]), machine.target)
    operands = {f"x{position}": buffers[i] for position, i in enumerate(inputs)}
    return Selection((call,), {**operands, "out": instruction.results[0]})


RULES: dict[type, Rule] = {
    BlockedConv: _convolution,
    Conv: _plain_convolution,
    BlockedMaxPool: _pool,
    BlockedAveragePool: _pool,
    BlockedGlobalAveragePool: _global_pool,
    Softmax: unary(_softmax),
    LogSoftmax: unary(_softmax),
    LayerNormalization: _layer_norm,
    GlobalAveragePool: unary(_global_mean),
    **dict.fromkeys(REDUCTIONS, unary(_reduction)),
    FullyConnected: _dense,
    BlockDense: _block_dense,
    MatMul: _matmul,
    Attention: _attention,
    Gemm: _gemm,
}
