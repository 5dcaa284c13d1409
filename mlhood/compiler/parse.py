"""From the text form back to the graph; the grammar is that of `mlhood.compiler.hir.text`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from mlhood.compiler.hir.graph import Graph
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
        |(?P<word>[A-Za-z_]\w*)
        |(?P<mark>[\[\](){}=:,]))""",
    re.VERBOSE,
)
_LITERALS = {"true": True, "false": False, "none": None}


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
            the operator infers. The error names the line.
    """
    graph = Graph()
    for line_number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        line_parser = _LineParser(line, line_number, graph, constants or {})
        try:
            line_parser.parse()
        except (ValueError, TypeError, AttributeError) as error:  # attributes of the wrong type or number
            raise CompilerError("the line is invalid", where=line_parser.where, got=error) from error
    return graph


class _LineParser:
    """A recursive-descent parser of one line."""

    def __init__(self, line: str, line_number: int, graph: Graph, constants: Mapping[str, np.ndarray]) -> None:
        self.where = f"line {line_number}"
        self.graph = graph
        self.constants = constants
        self.tokens = self._tokens(line)
        self.next = 0

    def parse(self) -> None:
        """Parse the line and add its statement to the graph."""
        self.next = 1
        match self.tokens[0]:
            case ("word", "graph"):
                self.graph.name = json.loads(self._take("string"))
            case ("word", "placeholder"):
                self.graph.placeholder(*self._declaration())
            case ("word", "constant"):
                self._constant()
            case ("word", "output"):
                self._output()
            case _:
                self.next = 0
                self._node()
        if self.next < len(self.tokens):
            raise self._syntax_error("the end of the line")

    def _constant(self) -> None:
        name, type = self._declaration()
        self._mark("=")
        if self._peek()[0] == "hash":
            key = self._take("hash").removeprefix("sha256:")
            if key not in self.constants:
                raise CompilerError("the text refers to a constant that was not given", where=self.where, got=name)
            data = self.constants[key]
        else:
            data = np.array(self._attribute(), type.dtype).reshape([int(axis) for axis in type.shape])
        self.graph.constant(name, data, type.quantization)

    def _output(self) -> None:
        name = None
        if self._peek()[0] == "string":
            name = json.loads(self._take("string"))
            self._mark("=")
        self.graph.output(self._value(self._take("value")), name)

    def _node(self) -> None:
        outputs = [self._declaration()]
        while self._accept(","):
            outputs.append(self._declaration())
        self._mark("=")
        operator_name = self._take("word")
        name = json.loads(self._take("string")) if self._peek()[0] == "string" else outputs[0][0]
        inputs = self._list("(", ")", self._operand)
        attributes = dict(self._list("{", "}", self._pair)) if self._peek() == ("mark", "{") else {}
        if operator_name not in OPERATORS:
            raise CompilerError("unknown operator", where=self.where, got=operator_name)
        try:
            operator = OPERATORS[operator_name](**attributes)
        except TypeError as error:
            raise CompilerError("invalid attributes of the operator", where=self.where, got=error) from error
        node = self.graph.add(operator, *inputs, name=name, outputs=[name for name, _ in outputs])
        for value, (name, type) in zip(node.outputs, outputs, strict=True):
            if (value.name, value.type) != (name, type):
                raise CompilerError("the operator infers another type", where=self.where, expected=value.type, got=type)

    def _declaration(self) -> tuple[str, TensorType]:
        name = self._take("value")
        self._mark(":")
        element = self._take("word")
        if element not in ELEMENTS:
            raise CompilerError("unknown element type", where=self.where, got=element)
        shape = self._list("[", "]", self._dim)
        quantization = self._attribute() if self._peek() == ("word", "quantized") else None
        return _unquoted(name), TensorType(element, tuple(shape), quantization)

    def _dim(self) -> Dim:
        kind, text = self._peek()
        self.next += 1
        if kind == "word":
            return text
        if kind in ("string", "number"):
            return json.loads(text)
        raise self._syntax_error("an axis")

    def _operand(self) -> Value | None:
        if self._peek() == ("word", "none"):
            self.next += 1
            return None
        return self._value(self._take("value"))

    def _value(self, text: str) -> Value:
        try:
            return self.graph.value(_unquoted(text))
        except CompilerError as error:
            raise CompilerError(error.what, where=self.where, got=text) from error

    def _pair(self) -> tuple[str, Any]:
        key = self._take("word")
        self._mark("=")
        return key, self._attribute()

    def _attribute(self) -> Any:
        kind, text = self._peek()
        if (kind, text) == ("mark", "["):
            return tuple(self._list("[", "]", self._attribute))
        self.next += 1
        if (kind, text) == ("word", "quantized"):
            return Quantization(**dict(self._list("(", ")", self._pair)))
        if kind == "word" and text in _LITERALS:
            return _LITERALS[text]
        if kind == "string":
            return json.loads(text)
        if kind == "number":
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        raise self._syntax_error("an attribute")

    def _list(self, start: str, end: str, item: Callable[[], _T]) -> list[_T]:
        self._mark(start)
        items: list[_T] = []
        while not self._accept(end):
            if items:
                self._mark(",")
            items.append(item())
        return items

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.next] if self.next < len(self.tokens) else ("end", "")

    def _accept(self, mark: str) -> bool:
        if self._peek() != ("mark", mark):
            return False
        self.next += 1
        return True

    def _mark(self, mark: str) -> None:
        if not self._accept(mark):
            raise self._syntax_error(repr(mark))

    def _take(self, kind: str) -> str:
        actual, text = self._peek()
        if actual != kind:
            raise self._syntax_error(f"a {kind}")
        self.next += 1
        return text

    def _tokens(self, line: str) -> list[tuple[str, str]]:
        tokens, position = [], 0
        line = line.rstrip()
        while position < len(line):
            match = _TOKEN.match(line, position)
            if match is None or match.lastgroup is None:
                got = line[position : position + 20]
                raise CompilerError("syntax error in the text of a graph", where=self.where, got=got)
            tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        return tokens

    def _syntax_error(self, expected: str) -> CompilerError:
        got = repr(self._peek()[1])
        return CompilerError("syntax error in the text of a graph", where=self.where, expected=expected, got=got)


def _unquoted(text: str) -> str:
    name = text.removeprefix("%")
    return json.loads(name) if name.startswith('"') else name
