"""From the text form back to the graph; the grammar is that of `mlhood.compiler.hir.text`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.text import digest
from mlhood.compiler.hir.types import ELEMENTS, Dim, Quantization, TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators import OPERATORS
from mlhood.errors import CompilerError

_T = TypeVar("_T")
_TOKEN = re.compile(
    r"""\s*(?:(?P<value>%(?:[\w./:-]+|"(?:[^"\\]|\\.)*"))
        |(?P<string>"(?:[^"\\]|\\.)*")
        |(?P<hash>sha256:[0-9a-f]+)
        |(?P<number>-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|inf\b|nan\b))
        |(?P<access>@[a-z]+)
        |(?P<word>[A-Za-z_]\w*)
        |(?P<mark>[\[\](){}=:,]))""",
    re.VERBOSE,
)
_LITERALS = {"true": True, "false": False, "none": None}


class Token(NamedTuple):
    """A token: its kind, its text, and the column where it starts, counted from 1."""

    kind: str
    text: str
    column: int


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with a statement, and their numbers."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            yield number, line


class LineParser:
    """A recursive-descent parser of one line.

    Args:
        line: The line.
        line_number: Its number, counted from 1.
        constants: The arrays that the text identifies by hash.

    Class attributes:
        subject: What the text describes, in error messages.
    """

    subject: ClassVar[str]

    def __init__(self, line: str, line_number: int, constants: Mapping[str, np.ndarray]) -> None:
        self.where = f"line {line_number}"
        self.constants = constants
        self.next = 0
        self.tokens = self._tokens(line.rstrip())
        self._end = Token("end", "", len(line.rstrip()) + 1)

    def parse(self) -> None:
        """Parse the whole line.

        Raises:
            CompilerError: The line is invalid; the error names it, and the column if the syntax is invalid.
        """
        try:
            self._statement()
        except (ValueError, TypeError, AttributeError) as error:  # attributes of the wrong type or number
            raise CompilerError("the line is invalid", where=self.where, got=error) from error
        if self.next < len(self.tokens):
            raise self._syntax_error("the end of the line")

    def _statement(self) -> None:
        raise NotImplementedError

    def _declaration(self) -> tuple[str, TensorType]:
        name = self._name()
        self._mark(":")
        element = self._take("word")
        if element not in ELEMENTS:
            raise CompilerError("unknown element type", where=self.where, got=element)
        shape = self._list("[", "]", self._dim)
        quantization = self._attribute() if self._is("word", "quantized") else None
        return name, TensorType(element, tuple(shape), quantization)

    def _dim(self) -> Dim:
        token = self._peek()
        if token.kind not in ("word", "string", "number"):
            raise self._syntax_error("an axis")
        self.next += 1
        return token.text if token.kind == "word" else json.loads(token.text)

    def _content(self, name: str, type: TensorType) -> np.ndarray:
        """Parse the elements of a constant: its hash, or a list of numbers."""
        if self._peek().kind != "hash":
            return np.array(self._attribute(), type.dtype).reshape([int(axis) for axis in type.shape])
        key = self._take("hash").removeprefix("sha256:")
        if key not in self.constants:
            raise CompilerError("the text refers to a constant that was not given", where=self.where, got=name)
        return self.constants[key]

    def _operator(self, name: str, attributes: Mapping[str, Any]) -> Operator:
        if name not in OPERATORS:
            raise CompilerError("unknown operator", where=self.where, got=name)
        try:
            return OPERATORS[name](**attributes)
        except TypeError as error:
            raise CompilerError("invalid attributes of the operator", where=self.where, got=error) from error

    def _attributes(self) -> dict[str, Any]:
        return dict(self._list("{", "}", self._pair)) if self._is("mark", "{") else {}

    def _pair(self) -> tuple[str, Any]:
        key = self._take("word")
        self._mark("=")
        return key, self._attribute()

    def _attribute(self) -> Any:
        if self._is("mark", "["):
            return tuple(self._list("[", "]", self._attribute))
        kind, text, _ = self._peek()
        self.next += 1
        if (kind, text) == ("word", "quantized"):
            return Quantization(**dict(self._list("(", ")", self._pair)))
        if kind == "word" and text in _LITERALS:
            return _LITERALS[text]
        if kind == "string":
            return json.loads(text)
        if kind == "number":
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        self.next -= 1
        raise self._syntax_error("an attribute")

    def _list(self, start: str, end: str, item: Callable[[], _T]) -> list[_T]:
        self._mark(start)
        items: list[_T] = []
        while not self._accept(end):
            if items:
                self._mark(",")
            items.append(item())
        return items

    def _name(self) -> str:
        return unquoted(self._take("value"))

    def _string(self) -> str:
        return json.loads(self._take("string"))

    def _peek(self) -> Token:
        return self.tokens[self.next] if self.next < len(self.tokens) else self._end

    def _is(self, kind: str, text: str) -> bool:
        return self._peek()[:2] == (kind, text)

    def _accept(self, mark: str) -> bool:
        if not self._is("mark", mark):
            return False
        self.next += 1
        return True

    def _mark(self, mark: str) -> None:
        if not self._accept(mark):
            raise self._syntax_error(repr(mark))

    def _take(self, kind: str) -> str:
        actual, text, _ = self._peek()
        if actual != kind:
            raise self._syntax_error(f"a {kind}")
        self.next += 1
        return text

    def _tokens(self, line: str) -> list[Token]:
        tokens, position = [], 0
        while position < len(line):
            match = _TOKEN.match(line, position)
            if match is None or match.lastgroup is None:
                start = position + len(line[position:]) - len(line[position:].lstrip())
                where = f"{self.where}, column {start + 1}"
                got = line[start : start + 20]
                raise CompilerError(f"syntax error in the text of {self.subject}", where=where, got=got)
            tokens.append(Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) + 1))
            position = match.end()
        return tokens

    def _syntax_error(self, expected: str) -> CompilerError:
        token = self._peek()
        got = repr(token.text) if token.text else "the end of the line"
        where = f"{self.where}, column {token.column}"
        return CompilerError(f"syntax error in the text of {self.subject}", where=where, expected=expected, got=got)


def unquoted(text: str) -> str:
    """Return the name that a value has in the text form, without its mark and quotes."""
    name = text.removeprefix("%")
    return json.loads(name) if name.startswith('"') else name


def constants_by_digest(graph: Graph) -> dict[str, np.ndarray]:
    """Return a graph's constants by the hashes that identify them in its text."""
    return {digest(constant.data): constant.data for constant in graph.constants.values()}


def parse(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """Return the graph that a text describes.

    Args:
        text: The result of `to_text`, or written by hand.
        constants: The arrays that the text identifies by hash, as `constants_by_digest` returns them.

    Raises:
        CompilerError: The syntax is invalid, an operator, value or constant is unknown, or a type is not the one that
            the operator infers. The error names the line, and the column where the syntax is invalid.
    """
    graph = Graph()
    for line_number, line in statements(text):
        _GraphLine(line, line_number, constants or {}, graph).parse()
    return graph


class _GraphLine(LineParser):
    """Parses a line and adds its statement to the graph."""

    subject = "a graph"

    def __init__(self, line: str, line_number: int, constants: Mapping[str, np.ndarray], graph: Graph) -> None:
        super().__init__(line, line_number, constants)
        self.graph = graph

    def _statement(self) -> None:
        kind, keyword, _ = self._peek()
        self.next += 1
        match kind, keyword:
            case ("word", "graph"):
                self.graph.name = self._string()
            case ("word", "placeholder"):
                self.graph.placeholder(*self._declaration())
            case ("word", "constant"):
                name, type = self._declaration()
                self._mark("=")
                self.graph.constant(name, self._content(name, type), type.quantization)
            case ("word", "output"):
                self._output()
            case _:
                self.next -= 1
                self._node()

    def _output(self) -> None:
        name = None
        if self._peek().kind == "string":
            name = self._string()
            self._mark("=")
        self.graph.output(self._value(), name)

    def _node(self) -> None:
        outputs = [self._declaration()]
        while self._accept(","):
            outputs.append(self._declaration())
        self._mark("=")
        operator_name = self._take("word")
        name = self._string() if self._peek().kind == "string" else outputs[0][0]
        inputs = self._list("(", ")", self._operand)
        operator = self._operator(operator_name, self._attributes())
        node = self.graph.add(operator, *inputs, name=name, outputs=[name for name, _ in outputs])
        for value, (name, type) in zip(node.outputs, outputs, strict=True):
            if (value.name, value.type) != (name, type):
                raise CompilerError("the operator infers another type", where=self.where, expected=value.type, got=type)

    def _operand(self) -> Value | None:
        if self._is("word", "none"):
            self.next += 1
            return None
        return self._value()

    def _value(self) -> Value:
        text = self._peek().text
        name = self._name()
        try:
            return self.graph.value(name)
        except CompilerError as error:
            raise CompilerError(error.what, where=self.where, got=text) from error
