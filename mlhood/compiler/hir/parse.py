"""From the text form back to the graph; the grammar is that of `mlhood.compiler.hir.text`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.line_parser import LineParser, statements
from mlhood.compiler.hir.text import digest
from mlhood.compiler.hir.values import Value
from mlhood.errors import CompilerError


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


def parse_inner(line: LineParser) -> Graph:
    """Return the graph that is the attribute at which a parser has arrived, and move the parser behind it."""
    inner = _GraphLine("", 0, line.constants, Graph())
    inner.where, inner.tokens, inner.next = line.where, line.tokens, line.next + 1
    inner.graph.name = inner._string()
    inner._mark("{")
    while not inner._accept("}"):
        inner._statement()
    line.next = inner.next
    return inner.graph


class _GraphLine(LineParser):
    """Parses a line and adds its statement to the graph."""

    subject = "a graph"

    def __init__(self, line: str, line_number: int, constants: Mapping[str, np.ndarray], graph: Graph) -> None:
        super().__init__(line, line_number, constants)
        self.graph = graph

    def _attribute(self) -> Any:
        return parse_inner(self) if self._is("word", "graph") else super()._attribute()

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
