"""AMX's instructions as portable functions on an array in memory, so that kernels with tiles run on every processor."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.ir_builder import ADDRESS, BYTE, INDEX, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.target import PORTABLE, Target

_ROW, _ROWS, _TILES = 64, 16, 8


@functools.cache
def load(build: jit.Build, target: Target, *arguments: Any) -> jit.Kernel:
    """Return what `jit.load` does, compiled for any processor; for one thread."""
    text = str(build(replace(PORTABLE, lanes=target.lanes), *arguments))
    used = set(re.findall(r"llvm\.x86\.(\w+)", text))
    text = re.sub(r'declare void @"llvm\.x86\.\w+"\(.*\)\n', "", text).replace("llvm.x86.", "emulated_")
    definitions = re.sub(r"(?m)^(target|;).*$", "", str(_definitions(used)))
    return jit._link(jit.compile_ir(text + definitions, PORTABLE), PORTABLE)


def _definitions(names: set[str]) -> ir.Module:
    module = ir.Module()
    kind = ir.ArrayType(BYTE, _TILES * _ROWS * _ROW)
    memory: Any = ir.GlobalVariable(module, kind, "emulated_tiles")
    setattr(memory, "initializer", ir.Constant(kind, None))  # noqa: B010
    memory.linkage = "internal"
    for name in sorted(names):
        build = _DEFINITIONS[name]
        parameters = dict(_PARAMETERS[name])
        code = FunctionBuilder(module, f"emulated_{name}", parameters)
        build(code, memory)
        code.ret()
    return module


def _tile(code: FunctionBuilder, memory: Any, name: str) -> Pointer:
    number = Int(code.builder, code.builder.zext(code.parameters[name], INDEX))
    address = code.builder.inttoptr(code.builder.ptrtoint(memory, INDEX), ADDRESS)
    return Pointer(code.builder, address, BYTE).at(number * (_ROWS * _ROW))


def _forget(code: FunctionBuilder, memory: Any) -> None:
    """What tiles hold before they are configured, and after, is not specified: here, it stays."""


def _zero(code: FunctionBuilder, memory: Any) -> None:
    tile = _tile(code, memory, "tile")
    with code.loop(0, _ROWS * _ROW) as i:
        tile.at(i).store(BYTE(0))


def _load(code: FunctionBuilder, memory: Any) -> None:
    tile, source, stride = _tile(code, memory, "tile"), code.pointer("address", BYTE), code.integer("stride")
    with code.loop(0, _ROWS) as row, code.loop(0, _ROW) as i:
        tile.at(row * _ROW + i).store(source.at(row * stride + i).load())


def _store(code: FunctionBuilder, memory: Any) -> None:
    tile, out, stride = _tile(code, memory, "tile"), code.pointer("address", BYTE), code.integer("stride")
    with code.loop(0, _ROWS) as row, code.loop(0, _ROW) as i:
        out.at(row * stride + i).store(tile.at(row * _ROW + i).load())


def _multiply(signed: bool) -> Any:
    def define(code: FunctionBuilder, memory: Any) -> None:
        b, (sums, left, right) = code.builder, (_tile(code, memory, name) for name in ("total", "a", "b"))
        extend = b.sext if signed else b.zext
        with code.loop(0, _ROWS) as row, code.loop(0, _ROWS) as column, code.loop(0, _ROW) as k:
            total = sums.at(row * _ROW + column * 4).cast(INT32)
            x = extend(left.at(row * _ROW + k).load(), INT32)
            w = b.sext(right.at(k // 4 * _ROW + column * 4 + k % 4).load(), INT32)
            total.store(b.add(total.load(), b.mul(x, w)))

    return define


_DEFINITIONS = {"ldtilecfg": _forget, "tilerelease": _forget, "tilezero": _zero, "tileloadd64": _load}
_DEFINITIONS |= {"tilestored64": _store, "tdpbssd": _multiply(True), "tdpbusd": _multiply(False)}
_PARAMETERS = {"ldtilecfg": {"table": ADDRESS}, "tilerelease": {}, "tilezero": {"tile": BYTE}}
_PARAMETERS |= {name: {"tile": BYTE, "address": ADDRESS, "stride": INDEX} for name in ("tileloadd64", "tilestored64")}
_PARAMETERS |= {name: {"total": BYTE, "a": BYTE, "b": BYTE} for name in ("tdpbssd", "tdpbusd")}
