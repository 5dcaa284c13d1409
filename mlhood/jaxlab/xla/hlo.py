"""HLO's text, read: a module's computations, and their instructions with name, shape, opcode, operands and calls.

The grammar is that of XLA's printer (openxla.org/xla/operation_semantics; xla/hlo/parser/hlo_parser.cc):

    [ROOT] name = shape opcode(operands), attribute=value, ...

Names stand here without the % that XLA puts before them in compiled modules.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
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
# opcodes whose computations work on arrays; what the others apply, such as a reduction's sum, works on single numbers
RUNS = ("call", "fusion", "while", "conditional", "async-start")


@dataclass(frozen=True)
class Array:
    """An array's type.

    Args:
        kind: HLO's name of its elements: f32, s32, pred and so on.
        dims: Its sizes.
        layout: Its dimensions from the one whose neighbours lie side by side to the outermost: "minor to major".
    """

    kind: str
    dims: tuple[int, ...]
    layout: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind}[{','.join(map(str, self.dims))}]"

    @property
    def bytes(self) -> int:
        """What it takes in memory; a type of fewer than eight bits takes a byte."""
        bits = re.search(r"\d+", self.kind)
        return math.prod(self.dims) * max(1, int(bits[0]) // 8 if bits else 1)


@dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Args:
        name: Its own.
        shape: Its type as HLO writes it, with the layout.
        opcode: What it does.
        operands: Names of the instructions that it reads.
        calls: Names of the computations that it calls.
        literal: What stands in the parentheses of a parameter or a constant.
        attributes: The rest of the line.
        root: Whether its value is the computation's.
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
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that it makes: one, or the parts of a tuple."""
        found = []
        for kind, dims, layout in _ARRAY.findall(self.shape):
            sizes = tuple(int(one.lstrip("<=")) for one in dims.split(",") if one)
            order = tuple(int(one) for one in layout.split(",") if one)
            found.append(Array(kind, sizes, order or tuple(reversed(range(len(sizes))))))
        return tuple(found)

    def attribute(self, name: str) -> str | None:
        """Return an attribute's value as it is written, or None."""
        found = re.search(rf"(?:^|[ ,{{]){name}=(\{{[^}}]*\}}|\"[^\"]*\"|[^,\s]+)", self.attributes)
        return found[1].strip('"') if found else None


@dataclass(frozen=True)
class Computation:
    """Instructions by name, in the order of the text: each after those that it reads."""

    name: str
    instructions: dict[str, Instruction]

    @property
    def root(self) -> Instruction:
        """The instruction whose value is the computation's: the one marked, else the last."""
        marked = [one for one in self.instructions.values() if one.root]
        return marked[0] if marked else list(self.instructions.values())[-1]

    @property
    def opcodes(self) -> tuple[str, ...]:
        """What it does, in order, without its parameters."""
        return tuple(one.opcode for one in self.instructions.values() if one.opcode != "parameter")


@dataclass(frozen=True)
class Module:
    """A module.

    Args:
        name: Its own.
        computations: By name.
        main: Name of the computation that runs first; HLO's ENTRY.
    """

    name: str
    computations: dict[str, Computation]
    main: str

    @property
    def entry(self) -> Computation:
        """The computation that runs first."""
        return self.computations[self.main]

    def running(self, *, inside: bool = True) -> Iterator[tuple[Computation, Instruction]]:
        """Give each instruction that runs, with its computation: those of a called computation once for each call.

        Both branches of a condition and the body of a loop count once.

        Args:
            inside: Whether to go into fusions too; without, each is one instruction.
        """
        yield from self._running(self.entry, inside)

    def _running(self, computation: Computation, inside: bool) -> Iterator[tuple[Computation, Instruction]]:
        for one in computation.instructions.values():
            yield computation, one
            if one.opcode in RUNS and (inside or one.opcode != "fusion"):
                for name in one.calls:
                    yield from self._running(self.computations[name], inside)

    def operations(self, *, inside: bool = True) -> dict[str, int]:
        """Return how often each opcode runs, the most frequent first; parameters are none."""
        counts = Counter(one.opcode for _, one in self.running(inside=inside) if one.opcode != "parameter")
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def fusions(self) -> dict[str, tuple[str, ...]]:
        """Return the opcodes in each fusion, by the fusion's name."""
        return {
            one.name: tuple(code for name in one.calls for code in self.computations[name].opcodes)
            for computation in self.computations.values()
            for one in computation.instructions.values()
            if one.opcode == "fusion"
        }


def without_sources(text: str) -> str:
    """Return a module's text without the tables of source files and lines, which differ from machine to machine."""
    return _FRAME.sub("", _TABLES.sub("", text)).replace(", metadata={}", "")


def parse(text: str) -> Module:
    """Read a module.

    Args:
        text: As `Lowered.as_text("hlo")` or `Compiled.as_text()` give it.

    Raises:
        XlaError: It is not HLO.
    """
    named = re.match(r"HloModule ([^\s,]+)", text)
    computations, main, lines = {}, "", None
    for line in text.splitlines():
        if line == "}":
            lines = None
        elif header := _HEADER.match(line):
            lines = computations.setdefault(header[2], {})
            main = header[2] if header[1] else main
        elif lines is not None and line.strip():
            one = _instruction(line)
            lines[one.name] = one
    if named is None or not main or not all(computations.values()):
        raise XlaError(
            "this is not a module of HLO",
            expected="the text that jax.jit(f).lower(x).as_text('hlo') or .compile().as_text() gives",
            got=text[:80] or "nothing",
        )
    return Module(named[1], {name: Computation(name, lines) for name, lines in computations.items()}, main)


def _instruction(line: str) -> Instruction:
    line = _COMMENT.sub("", line)
    found = _LINE.match(line)
    rest = found[3] if found else ""
    end = _closing(rest) if rest.startswith("(") else rest.find(" ")
    opcode = _OPCODE.match(rest, max(end, 0))
    if found is None or opcode is None:
        raise XlaError("a line of HLO cannot be read", expected="name = shape opcode(operands), ...", got=line.strip())
    after = _closing(rest, opcode.end())
    inner, attributes = rest[opcode.end() + 1 : after - 1], rest[after:].removeprefix(", ")
    literal = opcode[1] in ("parameter", "constant")
    return Instruction(
        name=found[2],
        shape=rest[:end].strip(),
        opcode=opcode[1],
        operands=() if literal else tuple(_operands(inner)),
        calls=tuple(_calls(attributes)),
        literal=inner if literal else "",
        attributes=attributes,
        root=bool(found[1]),
    )


def _closing(text: str, start: int = 0) -> int:
    """Return the place after the parenthesis that closes the one at `start`; the end of the text if none does."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


def _operands(inner: str) -> Iterator[str]:
    """Give the names between the parentheses; each may stand after its type, which has commas of its own."""
    depth, word = 0, ""
    for character in inner + ",":
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            if word.strip():
                yield word.split()[-1].lstrip("%")
            word = ""
        else:
            word += character


def _calls(attributes: str) -> Iterator[str]:
    for _, names in _CALLS.findall(attributes):
        yield from (name.strip().lstrip("%") for name in names.strip("{}").split(",") if name.strip())
