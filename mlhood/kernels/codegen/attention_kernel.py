"""Attention of single queries, softmax(scale q k^T + mask) v, in one pass over the keys and values.

A task is a query of a head. Its keys are taken in blocks of as many as a vector has lanes. Of the blocks so far the
largest score, the sum of the powers and the sums of the values are kept, and multiplied by exp(old - new) when the
largest score grows: so no row of scores is stored (T. Dao et al., "FlashAttention", NeurIPS 2022, algorithm 1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.kernels.codegen import vector_math
from mlhood.kernels.codegen.arguments import Arguments, kernel_function
from mlhood.kernels.codegen.ir_builder import FLOAT, INT32
from mlhood.kernels.codegen.remainder import load_first
from mlhood.kernels.codegen.rows_kernel import across_lanes, add
from mlhood.kernels.codegen.target import Target

FIELDS = ("tasks", "queries", "keys", "mask_head", "mask_query", "scale", "q", "k", "v", "mask", "out")
_LOWEST = float(np.finfo(np.float32).min)  # unlike -inf, it may be subtracted from itself


def build(target: Target, depth: int, width: int, masked: bool, causal: bool) -> str:
    """Return the LLVM IR of the kernel; `depth` of the keys and `width` of the values are multiples of the lanes."""
    lanes, module = target.lanes, ir.Module()
    code = kernel_function(module)
    builder, arguments, kind = code.builder, Arguments(code, FIELDS), ir.VectorType(FLOAT, lanes)
    queries, keys = arguments.integer("queries"), arguments.integer("keys")
    scale = code.splat(arguments.float32("scale"), lanes)
    block, zero = code.buffer(lanes), ir.Constant(kind, [0.0] * lanes)
    with arguments.tasks(arguments.integer("tasks")) as task:
        head, row = task // queries, task % queries
        k = arguments.pointer("k").at(head * keys * depth)
        v = arguments.pointer("v").at(head * keys * width)
        mask = arguments.pointer("mask").at(
            head * arguments.integer("mask_head") + row * arguments.integer("mask_query")
        )
        q = arguments.pointer("q").at(task * depth)
        query = [builder.fmul(q.at(i).load(lanes), scale) for i in range(0, depth, lanes)]
        largest, total = code.variable(kind, vector_math.constant(zero, _LOWEST)), code.variable(kind, zero)
        sums = [code.variable(kind, zero) for _ in range(0, width, lanes)]
        stop = (row + 1).minimum(keys) if causal else keys
        with code.loop(0, stop, lanes) as first:
            count = (stop - first).minimum(lanes)
            block.store(vector_math.constant(zero, -math.inf))
            with code.loop(0, count) as i:
                key, product = k.at((first + i) * depth), zero
                for part, each in enumerate(query):
                    product = code.fma(each, key.at(part * lanes).load(lanes), product)
                block.at(i).store(builder.extract_element(across_lanes(code, add, product), INT32(0)))
            scores = block.load(lanes)
            if masked:
                scores = builder.fadd(scores, load_first(code, mask.at(first), count, lanes))
            new: Any = vector_math.maximum(code, largest.get(), across_lanes(code, vector_math.maximum, scores))
            factor = vector_math.exp(code, builder.fsub(largest.get(), new))
            powers = vector_math.exp(code, builder.fsub(scores, new))
            largest.set(new)
            total.set(code.fma(total.get(), factor, powers))
            block.store(powers)
            for each in sums:
                each.set(builder.fmul(each.get(), factor))
            with code.loop(0, count) as i:
                power, value = code.splat(block.at(i).load(), lanes), v.at((first + i) * width)
                for part, each in enumerate(sums):
                    each.set(code.fma(power, value.at(part * lanes).load(lanes), each.get()))
        divisor = across_lanes(code, add, total.get())
        shows_nothing = builder.fcmp_ordered("==", divisor, zero)
        for part, each in enumerate(sums):
            y = builder.select(shows_nothing, zero, builder.fdiv(each.get(), divisor))
            arguments.pointer("out").at(task * width + part * lanes).store(y)
    code.ret()
    return str(module)
