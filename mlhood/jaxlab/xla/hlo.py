"""A parser for HLO's text: a module's computations, and their instructions with shape, opcode, operands and calls.

The grammar is that of XLA's printer (openxla.org/xla/operation_semantics; xla/hlo/parser/hlo_parser.cc):

    [ROOT] name = shape opcode(operands), attribute=value, ...

Names are stored without the % that XLA prefixes in compiled modules.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mlhood.errors import XlaError

_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .* )?\{$")
_LINE = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r" ?([\w\-]+)(?=\()")
_CALLS = re.compile(r"(calls|to_apply|body|condition|branch_computations|\w+_computation)=(\{[^}]*\}|%?[\w.\-]+)")
_ARRAY = re.compile(r"(\w+)\[([\d,<=]*)\](?:\{([\d,]*)[^}]*\})?")
_COMMENT = re.compile(r"/\*.*?\*/")
_TABLES = re.compile(r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d.*\n)*\n*", re.MULTILINE)
_FRAME = re.compile(r" ?stack_frame_id=\d+")
# opcodes whose computations are on arrays; those applied by others, such as a reduction's sum, are on scalars
CALLING_OPCODES = ("call", "fusion", "while", "conditional", "async-start")


@dataclass(frozen=True)
class ArrayType:
    """An array's type.

    Args:
        element_type: HLO's name: f32, s32, pred and so on.
        dims: The sizes.
        layout: The dimensions from minor (contiguous) to major.
    """

    element_type: str
    dims: tuple[int, ...]
    layout: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.element_type}[{','.join(map(str, self.dims))}]"

    @property
    def bytes(self) -> int:
        """The size in memory; an element of fewer than eight bits takes one byte."""
        bits = re.search(r"\d+", self.element_type)
        return math.prod(self.dims) * max(1, int(bits[0]) // 8 if bits else 1)


@dataclass(frozen=True)
class HloInstruction:
    """One instruction of a computation.

    Args:
        name: Its name.
        shape: The type of its result in HLO's syntax, with the layout.
        opcode: The operation.
        operands: Names of the instructions that it reads.
        calls: Names of the computations that it calls.
        literal: A parameter's number or a constant's value, as text.
        attributes: The text after the operands.
        root: Whether its value is the result of the computation.
    """

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    literal: str = ""
    attributes: str = ""
    root: bool = False

    @property
    def arrays(self) -> tuple[ArrayType, ...]:
        """The types of its results: one, or the elements of a tuple."""
        arrays = []
        for element_type, dims, layout in _ARRAY.findall(self.shape):
            sizes = tuple(int(size.lstrip("<=")) for size in dims.split(",") if size)
            order = tuple(int(dim) for dim in layout.split(",") if dim)
            arrays.append(ArrayType(element_type, sizes, order or tuple(reversed(range(len(sizes))))))
        return tuple(arrays)

    def attribute(self, name: str) -> str | None:
        """Return an attribute's value as text, or None."""
        match = re.search(rf"(?:^|[ ,{{]){name}=(\{{[^}}]*\}}|\"[^\"]*\"|[^,\s]+)", self.attributes)
        return match[1].strip('"') if match else None


@dataclass(frozen=True)
class Computation:
    """Instructions by name, in textual order: each after those that it reads."""

    name: str
    instructions: dict[str, HloInstruction]

    @property
    def root(self) -> HloInstruction:
        """The instruction whose value is the result: the one marked ROOT, otherwise the last."""
        instructions = list(self.instructions.values())
        return next((instruction for instruction in instructions if instruction.root), instructions[-1])

    @property
    def opcodes(self) -> tuple[str, ...]:
        """The opcodes in order, without parameters."""
        opcodes = (instruction.opcode for instruction in self.instructions.values())
        return tuple(opcode for opcode in opcodes if opcode != "parameter")


@dataclass(frozen=True)
class Module:
    """An HLO module.

    Args:
        name: Its name.
        computations: The computations by name.
        entry_name: Name of the entry computation.
    """

    name: str
    computations: dict[str, Computation]
    entry_name: str

    @property
    def entry(self) -> Computation:
        """The entry computation, where execution starts."""
        return self.computations[self.entry_name]

    def walk(self, *, inside: bool = True) -> Iterator[tuple[Computation, HloInstruction]]:
        """Yield each instruction that is executed, with its computation: a called computation's once for each call.

        Both branches of a conditional and the body of a loop are visited once.

        Args:
            inside: Whether to descend into fusions; otherwise each fusion is one instruction.
        """
        yield from self._walk(self.entry, inside)

    def _walk(self, computation: Computation, inside: bool) -> Iterator[tuple[Computation, HloInstruction]]:
        for instruction in computation.instructions.values():
            yield computation, instruction
            if instruction.opcode in CALLING_OPCODES and (inside or instruction.opcode != "fusion"):
                for name in instruction.calls:
                    yield from self._walk(self.computations[name], inside)

    def operations(self, *, inside: bool = True) -> dict[str, int]:
        """Return how often each opcode is executed, the most frequent first; parameters are not counted."""
        opcodes = (instruction.opcode for _, instruction in self.walk(inside=inside))
        return ranked(opcode for opcode in opcodes if opcode != "parameter")

    def fusions(self) -> dict[str, tuple[str, ...]]:
        """Return the opcodes in each fusion, by the fusion's name."""
        return {
            instruction.name: tuple(opcode for name in instruction.calls for opcode in self.computations[name].opcodes)
            for computation in self.computations.values()
            for instruction in computation.instructions.values()
            if instruction.opcode == "fusion"
        }


def ranked(opcodes: Iterable[str]) -> dict[str, int]:
    """Return how often each opcode occurs, the most frequent first."""
    return dict(sorted(Counter(opcodes).items(), key=lambda item: (-item[1], item[0])))


def strip_sources(text: str) -> str:
    """Return a module's text without the tables of source files and lines, which differ between machines."""
    return _FRAME.sub("", _TABLES.sub("", text)).replace(", metadata={}", "")


def parse(text: str) -> Module:
    """Parse a module.

    Args:
        text: What `Lowered.as_text("hlo")` or `Compiled.as_text()` returns.

    Raises:
        XlaError: The text is not HLO.
    """
    title = re.match(r"HloModule ([^\s,]+)", text)
    computations, entry, instructions = {}, "", None
    for line in text.splitlines():
        if line == "}":
            instructions = None
        elif header := _HEADER.match(line):
            instructions = computations.setdefault(header[2], {})
            entry = header[2] if header[1] else entry
        elif instructions is not None and line.strip():
            instruction = _parse_instruction(line)
            instructions[instruction.name] = instruction
    if title is None or not entry or not all(computations.values()):
        expected = "what jax.jit(f).lower(x).as_text('hlo') or .compile().as_text() returns"
        raise XlaError("the text is not an HLO module", expected=expected, got=text[:80] or "nothing")
    return Module(title[1], {name: Computation(name, lines) for name, lines in computations.items()}, entry)


def _parse_instruction(line: str) -> HloInstruction:
    line = _COMMENT.sub("", line)
    match = _LINE.match(line)
    text = match[3] if match else ""
    shape_end = _closing(text) if text.startswith("(") else text.find(" ")
    opcode = _OPCODE.match(text, max(shape_end, 0))
    if match is None or opcode is None:
        raise XlaError("invalid line of HLO", expected="name = shape opcode(operands), ...", got=line.strip())
    operands_end = _closing(text, opcode.end())
    inner, attributes = text[opcode.end() + 1 : operands_end - 1], text[operands_end:].removeprefix(", ")
    literal = opcode[1] in ("parameter", "constant")
    called = [names.strip("{}") for _, names in _CALLS.findall(attributes)]
    return HloInstruction(
        name=match[2],
        shape=text[:shape_end].strip(),
        opcode=opcode[1],
        operands=() if literal else tuple(_operands(inner)),
        calls=tuple(name.strip().lstrip("%") for name in ",".join(called).split(",") if name.strip()),
        literal=inner if literal else "",
        attributes=attributes,
        root=bool(match[1]),
    )


def _closing(text: str, start: int = 0) -> int:
    """Return the index after the parenthesis that matches the one at `start`; the text's length if none does."""
    depth = 0
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index + 1
    return len(text)


def _operands(inner: str) -> Iterator[str]:
    """Yield the operands' names; each may follow its type, which contains commas itself."""
    depth, word = 0, ""
    for character in inner + ",":
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            if word.strip():
                yield word.split()[-1].lstrip("%")
            word = ""
        else:
            word += character
