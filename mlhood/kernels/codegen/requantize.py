"""From 32-bit sums to bytes: the last step of all kernels of quantised tensors, exact to the bit.

Channels are in the lanes, in blocks of 16; every channel has its own constants. There are two methods:

    shift   byte = clamp(((sum * multiplier + z * z_multiplier + half) >> shift) + offset)      in 64 bits
    real    byte = clamp(rint(sum * scale) + offset)                                           in float64, ties to even

Even and odd channels are multiplied apart, as x86 multiplies 32 by 32 bits (`vpmuldq`). Where the caller knows that
all results fit into 32 bits before they are clamped, three instructions per product are enough: an arithmetic shift
of 64 bits, which AVX2 lacks, becomes a logical one of the sum plus 2^63. `wide` drops that assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import BYTE, INDEX, INT32, FunctionBuilder, Int, Pointer

BLOCK = 16  # channels of a pixel that are adjacent in the blocked layout of bytes, on every processor
DOUBLE = ir.DoubleType()
_SETS = {False: ("",), True: ("", "negative_")}
_WIDE_LIMIT = 2**20  # far beyond any byte, and its sum with an offset fits into 32 bits
_MAGIC = 1.5 * 2.0**52  # added to a float64, it leaves the nearest integer in the low bits


@dataclass(frozen=True)
class Requantization:
    """How sums become bytes.

    Args:
        signed: Whether bytes are int8, else uint8.
        method: `shift` or `real`.
        wide: Whether a result may exceed 32 bits before it is clamped, or a multiplier 31 bits.
        residual: Whether there is a second term z, bytes of the result's type; with `shift` only.
        leaky: Whether negative sums have different multipliers; with `shift` and `wide` only.
    """

    signed: bool
    method: Literal["shift", "real"] = "shift"
    wide: bool = False
    residual: bool = False
    leaky: bool = False

    @property
    def sections(self) -> dict[str, int]:
        """Where each constant of a block of channels begins, in words of 64 bits.

        `bias` and `correction` are 16 int32 each, in the order of channels. The others are 16 words: those of the even
        channels first, then those of the odd ones; `scale` is float64, in the order of channels.
        """
        sizes = {"bias": BLOCK // 2}
        if self.method == "real":
            sizes["scale"] = BLOCK
        else:
            for prefix in _SETS[self.leaky]:
                names = ("multiplier", "half", "shift", *(("z_multiplier",) if self.residual else ()))
                sizes |= {prefix + name: BLOCK for name in names}
                sizes[prefix + "correction"] = BLOCK // 2
        starts, first = {}, 0
        for name, size in sizes.items():
            starts[name] = first
            first += size
        return starts | {"end": first}


@dataclass(frozen=True)
class Output:
    """What all results of a kernel have in common, as 32-bit values: offsets of the result and of z, and limits."""

    offset: Any
    z_offset: Any
    floor: Any
    ceiling: Any


OUTPUT_FIELDS = ("offset", "z_offset", "floor", "ceiling")


def read_output(integer: Any) -> Output:
    """Return the `OUTPUT_FIELDS` of an argument block; `integer` loads one by its name."""
    fields = {name: integer(name) for name in OUTPUT_FIELDS}
    return Output(**{name: value.builder.trunc(value.value, INT32) for name, value in fields.items()})


class Requantizer:
    """Generates the code for one block of channels, a vector of `lanes` channels at a time.

    Args:
        code: The function that gets it.
        kind: How sums become bytes.
        constants: Address of the block's constants.
        lanes: Channels in a vector; it divides 16.
        output: See `Output`.
    """

    def __init__(
        self, code: FunctionBuilder, kind: Requantization, constants: Pointer, lanes: int, output: Output
    ) -> None:
        self.code, self.kind, self.lanes, self.output = code, kind, lanes, output
        self.constants = constants.cast(INDEX)
        self._preloaded: dict[tuple[str, int], Any] = {}

    def preload(self) -> None:
        """Load all constants here, to be used in a loop that follows.

        In the loop they would be loaded for each pixel anew: LLVM cannot know that its stores leave them as they are.
        """
        for section in self.kind.sections.keys() - {"end"}:
            narrow = section == "bias" or section.endswith("correction")
            count = self.lanes if narrow else self.lanes // 2
            for first in range(0, BLOCK, count):
                self._preloaded[section, first] = self._load(section, first, count, INT32 if narrow else INDEX)

    def bias(self, vector: int) -> Any:
        """Return the bias of a vector of channels."""
        return self._narrow("bias", vector)

    def bytes_of(self, sums: list[Any], z: Any = None) -> Any:
        """Return the bytes of a block of 16 channels.

        Args:
            sums: Its vectors of int32.
            z: The bytes of the residual branch.
        """
        scale = self._real if self.kind.method == "real" else self._shifted
        results = [scale(total, v, self._part(z, v)) for v, total in enumerate(sums)]
        return clamp_bytes(self.code, concatenate(self.code, results), self.kind.signed, self.output)

    def _part(self, z: Any, vector: int) -> Any:
        """Return z minus its offset for a vector of channels."""
        if not self.kind.residual:
            return None
        first = vector * self.lanes
        values = extend_bytes(self.code, self.code.shuffle(z, z, range(first, first + self.lanes)), self.kind.signed)
        return self.code.builder.sub(values, self.code.splat(self.output.z_offset, self.lanes))

    def _narrow(self, section: str, vector: int) -> Any:
        return self._load(section, vector * self.lanes, self.lanes, INT32)

    def _words(self, section: str, vector: int, parity: int) -> Any:
        half = self.lanes // 2
        return self._load(section, parity * (BLOCK // 2) + vector * half, half, INDEX)

    def _load(self, section: str, first: int, count: int, element: Any) -> Any:
        """Return `count` constants of a section, from the first one on."""
        if (section, first) in self._preloaded:
            return self._preloaded[section, first]
        return self.constants.at(self.kind.sections[section]).cast(element).at(first).load(count)

    def _shifted(self, total: Any, vector: int, z: Any) -> Any:
        b = self.code.builder
        y, products = self._shifted_by("", total, vector, z)
        if not self.kind.leaky:
            return y
        negative, _ = self._shifted_by("negative_", total, vector, z)
        zero = ir.Constant(products[0].type, None)
        signs = [b.icmp_signed("<", product, zero) for product in products]
        return b.select(self.code.shuffle(signs[0], signs[1], self._interleaved()), negative, y)

    def _interleaved(self) -> list[int]:
        half = self.lanes // 2
        return [lane for i in range(half) for lane in (i, half + i)]

    def _shifted_by(self, prefix: str, total: Any, vector: int, z: Any) -> tuple[Any, list[Any]]:
        """Return the shifted sums with the offset added, and the even and the odd products."""
        code, b, shifted, products = self.code, self.code.builder, [], []
        for parity in (0, 1):
            product = self._product(total, self._words(prefix + "multiplier", vector, parity), parity)
            if z is not None:
                product = b.add(product, self._product(z, self._words(prefix + "z_multiplier", vector, parity), parity))
            products.append(product)
            rounded = b.add(product, self._words(prefix + "half", vector, parity))
            shift = self._words(prefix + "shift", vector, parity)
            shifted.append(self._limited(b.ashr(rounded, shift)) if self.kind.wide else b.lshr(rounded, shift))
        narrow = [b.bitcast(half, ir.VectorType(INT32, self.lanes)) for half in shifted]
        order = [lane for i in range(0, self.lanes, 2) for lane in (i, self.lanes + i)]
        return b.add(code.shuffle(narrow[0], narrow[1], order), self._narrow(prefix + "correction", vector)), products

    def _product(self, factors: Any, multiplier: Any, parity: int) -> Any:
        """Return the products of the even (0) or odd (1) lanes with 64-bit multipliers."""
        b = self.code.builder
        words = b.bitcast(factors, multiplier.type)
        thirty_two = ir.Constant(multiplier.type, [32] * multiplier.type.count)
        words = b.ashr(words if parity else b.shl(words, thirty_two), thirty_two)
        if not self.kind.wide:  # known to fit into 32 bits; LLVM needs the hint
            multiplier = b.ashr(b.shl(multiplier, thirty_two), thirty_two)
        return b.mul(words, multiplier)

    def _limited(self, values: Any) -> Any:
        b, count = self.code.builder, values.type.count
        low, high = (ir.Constant(values.type, [limit] * count) for limit in (-_WIDE_LIMIT, _WIDE_LIMIT))
        values = b.select(b.icmp_signed("<", values, low), low, values)
        return b.select(b.icmp_signed(">", values, high), high, values)

    def _real(self, total: Any, vector: int, z: Any) -> Any:
        code, b, half = self.code, self.code.builder, self.lanes // 2
        rounded = []
        for part in (0, 1):
            kind = ir.VectorType(DOUBLE, half)
            lanes = code.shuffle(total, total, range(part * half, (part + 1) * half))
            scale = self._load("scale", vector * self.lanes + part * half, half, INDEX)
            scaled = b.fmul(b.sitofp(lanes, kind), b.bitcast(scale, kind))
            rounded.append(round_double(code, scaled, limited=self.kind.wide))
        y = concatenate(code, rounded)
        return b.add(y, code.splat(self.output.offset, self.lanes))


def round_double(code: FunctionBuilder, values: Any, *, limited: bool) -> Any:
    """Return float64 rounded to int32, ties to even.

    Args:
        code: The function.
        values: float64, within 2^31, or any numbers with `limited`.
        limited: Whether to clamp them first, to limits far beyond any byte.
    """
    b, kind = code.builder, values.type
    if limited:
        low, high = (ir.Constant(kind, [limit] * kind.count) for limit in (-float(_WIDE_LIMIT), float(_WIDE_LIMIT)))
        values = b.select(b.fcmp_ordered("<", values, low), low, values)
        values = b.select(b.fcmp_ordered(">", values, high), high, values)
    shifted = b.fadd(values, ir.Constant(kind, [_MAGIC] * kind.count))
    words = b.bitcast(shifted, ir.VectorType(INT32, 2 * kind.count))
    return code.shuffle(words, words, range(0, 2 * kind.count, 2))


def concatenate(code: FunctionBuilder, vectors: list[Any]) -> Any:
    """Return one vector of all lanes; the number of vectors is a power of two."""
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [code.shuffle(a, b, range(2 * a.type.count)) for a, b in pairs]
    return vectors[0]


def extend_bytes(code: FunctionBuilder, values: Any, signed: bool, bits: int = 32) -> Any:
    """Return bytes as wider integers."""
    kind = ir.VectorType(ir.IntType(bits), values.type.count)
    return code.builder.sext(values, kind) if signed else code.builder.zext(values, kind)


def clamp_bytes(code: FunctionBuilder, values: Any, signed: bool, output: Output) -> Any:
    """Return int32 as bytes: saturated, then clamped to the limits of the output."""
    b, count = code.builder, values.type.count
    for relation, limit in (("<", -128 if signed else 0), (">", 127 if signed else 255)):
        bound = ir.Constant(values.type, [limit] * count)
        values = b.select(b.icmp_signed(relation, values, bound), bound, values)
    result = b.trunc(values, ir.VectorType(BYTE, count))
    compare = b.icmp_signed if signed else b.icmp_unsigned
    for relation, limit in (("<", output.floor), (">", output.ceiling)):
        bound = code.splat(b.trunc(limit, BYTE), count)
        result = b.select(compare(relation, result, bound), bound, result)
    return result


def copy_bytes(code: FunctionBuilder, out: Pointer, source: Pointer, count: Int) -> None:
    """Copy `count` bytes one by one."""
    with code.loop(0, count) as i:
        out.cast(BYTE).at(i).store(source.cast(BYTE).at(i).load())
