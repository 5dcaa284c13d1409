"""From the text form back to the graph; the grammar is in `text`."""

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
_WORDS = {"true": True, "false": False, "none": None}


def constants_by_digest(graph: Graph) -> dict[str, np.ndarray]:
    """Return a graph's constants under the hashes by which its text names them."""
    return {digest(constant.data): constant.data for constant in graph.constants.values()}


def parse(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """Return the graph that a text describes.

    Args:
        text: What `to_text` wrote, or what somebody wrote by hand.
        constants: The arrays that the text names by hash, as `constants_by_digest` gives them.

    Raises:
        CompilerError: The text breaks the grammar, names an unknown operator, value or constant, or a type that is
            not the one of the operator's rule. The error names the line.
    """
    graph = Graph()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        reader = _Line(line, number, graph, constants or {})
        try:
            reader.read()
        except (ValueError, TypeError, AttributeError) as error:  # attributes of the wrong kind or number
            raise CompilerError("the line says what cannot be", where=reader.where, got=error) from error
    return graph


class _Line:
    """One line of text, read from left to right."""

    def __init__(self, line: str, number: int, graph: Graph, constants: Mapping[str, np.ndarray]) -> None:
        self.where = f"line {number}"
        self.graph = graph
        self.constants = constants
        self.tokens = self._tokens(line)
        self.next = 0

    def read(self) -> None:
        """Add what the line says to the graph."""
        kind, word = self.tokens[0]
        statements = {
            "graph": self._graph,
            "placeholder": self._placeholder,
            "constant": self._constant,
            "output": self._output,
        }
        if kind == "word" and word in statements:
            self.next = 1
            statements[word]()
        else:
            self._node()
        if self.next < len(self.tokens):
            raise self._wrong("the end of the line")

    def _graph(self) -> None:
        self.graph.name = json.loads(self._take("string"))

    def _placeholder(self) -> None:
        self.graph.placeholder(*self._declaration())

    def _constant(self) -> None:
        name, type = self._declaration()
        self._mark("=")
        if self._peek()[0] == "hash":
            wanted = self._take("hash").removeprefix("sha256:")
            if wanted not in self.constants:
                raise CompilerError("the text names a constant that was not given", where=self.where, got=name)
            data = self.constants[wanted]
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
        made = [self._declaration()]
        while self._accept(","):
            made.append(self._declaration())
        self._mark("=")
        operator_name = self._take("word")
        name = json.loads(self._take("string")) if self._peek()[0] == "string" else made[0][0]
        inputs = self._listed("(", ")", self._operand)
        attributes = dict(self._listed("{", "}", self._pair)) if self._peek() == ("mark", "{") else {}
        if operator_name not in OPERATORS:
            raise CompilerError("there is no such operator", where=self.where, got=operator_name)
        try:
            operator = OPERATORS[operator_name](**attributes)
        except TypeError as error:
            raise CompilerError("these are not the operator's attributes", where=self.where, got=error) from error
        node = self.graph.add(operator, *inputs, name=name, outputs=[name for name, _ in made])
        for value, (name, type) in zip(node.outputs, made, strict=True):
            if (value.name, value.type) != (name, type):
                raise CompilerError("the operator gives another type", where=self.where, expected=value.type, got=type)

    def _declaration(self) -> tuple[str, TensorType]:
        name = self._take("value")
        self._mark(":")
        element = self._take("word")
        if element not in ELEMENTS:
            raise CompilerError("there is no such element type", where=self.where, got=element)
        shape = self._listed("[", "]", self._dim)
        quantization = self._attribute() if self._peek() == ("word", "quantized") else None
        return _unquoted(name), TensorType(element, tuple(shape), quantization)

    def _dim(self) -> Dim:
        kind, text = self._peek()
        self.next += 1
        if kind == "word":
            return text
        if kind in ("string", "number"):
            return json.loads(text)
        raise self._wrong("an axis")

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
            return tuple(self._listed("[", "]", self._attribute))
        self.next += 1
        if (kind, text) == ("word", "quantized"):
            return Quantization(**dict(self._listed("(", ")", self._pair)))
        if kind == "word" and text in _WORDS:
            return _WORDS[text]
        if kind == "string":
            return json.loads(text)
        if kind == "number":
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        raise self._wrong("an attribute")

    def _listed(self, start: str, end: str, item: Callable[[], _T]) -> list[_T]:
        self._mark(start)
        found: list[_T] = []
        while not self._accept(end):
            if found:
                self._mark(",")
            found.append(item())
        return found

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.next] if self.next < len(self.tokens) else ("end", "")

    def _accept(self, mark: str) -> bool:
        if self._peek() != ("mark", mark):
            return False
        self.next += 1
        return True

    def _mark(self, mark: str) -> None:
        if not self._accept(mark):
            raise self._wrong(repr(mark))

    def _take(self, kind: str) -> str:
        found, text = self._peek()
        if found != kind:
            raise self._wrong(f"a {kind}")
        self.next += 1
        return text

    def _tokens(self, line: str) -> list[tuple[str, str]]:
        found, at = [], 0
        line = line.rstrip()
        while at < len(line):
            match = _TOKEN.match(line, at)
            if match is None or match.lastgroup is None:
                raise CompilerError("the text of the graph cannot be read", where=self.where, got=line[at : at + 20])
            found.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        return found

    def _wrong(self, expected: str) -> CompilerError:
        return CompilerError(
            "the text of the graph cannot be read", where=self.where, expected=expected, got=repr(self._peek()[1])
        )


def _unquoted(text: str) -> str:
    name = text.removeprefix("%")
    return json.loads(name) if name.startswith('"') else name
