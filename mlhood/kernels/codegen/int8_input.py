"""The first stage of the kernels of bytes: the input is copied into a workspace, padded, and widened where needed."""

from __future__ import annotations

from typing import Any, Literal

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import BYTE, INT32, Int, Pointer
from mlhood.kernels.codegen.requantize import BLOCK, extend_bytes

SHORT = ir.IntType(16)
Input = Literal["plain", "blocked", "flat"]
_SOURCE = ("source", "channels", "high", "wide", "copied", "step_y", "step_x", "base", "padding")
_WORKSPACE = ("x", "in_blocks", "padded_high", "padded_wide", "top", "left", "in_pixel")
INPUT_FIELDS = (*_SOURCE, *_WORKSPACE, "pads", "rows")


class InputStage:
    """Generates the code of the first stage, `pads` tasks.

    Args:
        arguments: The kernel, whose argument block has `INPUT_FIELDS`.
        input: `plain` [N, C, H, W], `blocked` [N, C / 16, H, W, 16] or `flat`, rows that are copied as they are.
        signed: Whether the bytes are int8.
        bytes: Whether the workspace holds bytes, unsigned, else 16-bit integers.
    """

    def __init__(self, arguments: Arguments, input: Input, *, signed: bool, bytes: bool = False) -> None:
        self.arguments, self.input, self.signed, self.bytes, self.code = arguments, input, signed, bytes, arguments.code
        self.field = {name: arguments.integer(name) for name in INPUT_FIELDS}
        self.element = BYTE if bytes else SHORT

    def fill(self, task: Int) -> None:
        """Fill a part of the rows of the workspace [N, blocks, padded_high, padded_wide, in_pixel]."""
        f = self.field
        start, stop = task * f["rows"] // f["pads"], (task + 1) * f["rows"] // f["pads"]
        b = self.code.builder
        if self.input == "flat":
            self._widen_flat(start * BLOCK, (stop * BLOCK).minimum(f["copied"]))
            return
        with self.code.loop(start, stop) as row:
            plane, y = row // f["padded_high"], row % f["padded_high"]
            source_y = (y - f["top"]) * f["step_y"]
            out = self.arguments.pointer("x", self.element).at(row * f["padded_wide"] * f["in_pixel"])
            inside = b.and_(f["top"] < y + 1, source_y < f["high"])
            left = f["left"].where(inside, f["padded_wide"])
            right = (f["left"] + f["copied"]).where(inside, f["padded_wide"])
            self._pad(out, self.code.constant(0), left)
            self._pad(out, right, f["padded_wide"])
            with b.if_then(inside):
                inner = out.at(left * f["in_pixel"])
                (self._widen_plain if self.input == "plain" else self._widen_blocked)(inner, plane, source_y)

    def _pad(self, out: Pointer, start: Int, stop: Int) -> None:
        """Fill pixels with the zero point."""
        b, f = self.code.builder, self.field
        value = b.trunc(f["padding"].value, self.element)
        if self.input == "plain":
            with self.code.loop(start * f["in_pixel"], stop * f["in_pixel"]) as i:
                out.at(i).store(value)
        else:
            with self.code.loop(start, stop) as pixel:
                out.at(pixel * BLOCK).store(self.code.splat(value, BLOCK))

    def _widen_blocked(self, out: Pointer, plane: Int, y: Int) -> None:
        f = self.field
        source = self.arguments.pointer("source", BYTE).at((plane * f["high"] + y) * f["wide"] * BLOCK)
        with self.code.loop(0, f["copied"]) as pixel:
            out.at(pixel * BLOCK).store(self._widened(source.at(pixel * f["step_x"] * BLOCK).load(BLOCK)))

    def _widen_flat(self, start: Int, stop: Int) -> None:
        source, out = self.arguments.pointer("source", BYTE), self.arguments.pointer("x", self.element)
        full = start + (stop - start) // BLOCK * BLOCK
        with self.code.loop(start, full, BLOCK) as i:
            out.at(i).store(self._widened(source.at(i).load(BLOCK)))
        with self.code.loop(full, stop) as i:
            out.at(i).store(self._widened_scalar(source.at(i)))

    def _widen_plain(self, out: Pointer, plane: Int, y: Int) -> None:
        """Transpose the channels of a row of pixels: they are the last axis of the workspace."""
        f, code = self.field, self.code
        image, first = plane // f["in_blocks"], plane % f["in_blocks"] * f["in_pixel"]
        with code.loop(0, (f["channels"] - first).minimum(f["in_pixel"])) as channel:
            row = (image * f["channels"] + first + channel) * f["high"] + y
            source = self.arguments.pointer("source", BYTE).at(row * f["wide"])
            with code.loop(0, f["copied"]) as pixel:
                value = self._widened_scalar(source.at(pixel * f["step_x"]))
                out.at(pixel * f["in_pixel"] + channel).store(value)

    def _widened_scalar(self, source: Pointer) -> Any:
        value = self._widened(self.code.splat(source.load(), 1))
        return self.code.builder.extract_element(value, INT32(0))

    def _widened(self, values: Any) -> Any:
        """Return bytes minus the base, which is their zero point in 16 bits, and their least number in bytes."""
        b, count = self.code.builder, values.type.count
        base = self.code.splat(b.trunc(self.field["base"].value, self.element), count)
        if not self.bytes:
            values = extend_bytes(self.code, values, self.signed, 16)
        return b.sub(values, base)
