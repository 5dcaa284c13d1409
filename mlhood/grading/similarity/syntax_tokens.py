"""The shape of a program: what is left of its syntax tree when all is gone that a copy is disguised with.

1. Comments, docstrings, annotations, imports, `pass` and texts that stand alone leave no trace.
2. Names are one kind, except those of Python's own functions; so are attributes and keywords that the program itself
   names. Those of libraries stay: `np.pad` and `np.roll` are two ways to do a thing.
3. Literals are their kind: number, text, or neither.
4. `a += b` is `a = a + b`, and `a: int = b` is `a = b`.
5. Statements of a block stand in the order of their own shapes, so that moving them about changes nothing.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_SOURCE = 100_000
MAX_TOKENS = 20_000
MAX_REPAIRS = 20
BUILTINS = frozenset(dir(builtins))
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
UNSEEN_FIELDS = ("annotation", "returns", "type_comment", "type_params", "ctx", "kind")


class Token(NamedTuple):
    """A node of a shape: its kind, and the line where it stands."""

    kind: str
    line: int


def shape(source: str) -> list[Token]:
    """The shape of a program; that of what cannot be read is empty."""
    tree = _parsed(source[:MAX_SOURCE])
    if tree is None:
        return []
    try:
        own = _named_here(tree)
    except RecursionError:
        own = frozenset()
    return _Shaper(own).block(tree.body)[:MAX_TOKENS]


def _parsed(source: str) -> ast.Module | None:
    """The syntax tree; a line that is no Python, such as one of IPython's, is passed over."""
    lines = source.replace("\r\n", "\n").replace("\0", "").split("\n")
    lines = [_passed_over(line) if line.lstrip().startswith(("%", "!")) else line for line in lines]
    for _ in range(MAX_REPAIRS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a student's odd escape in a text is nothing to tell an instructor
                return ast.parse("\n".join(lines))
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not 0 <= at < len(lines) or not lines[at].strip():
                return None
            lines[at] = "" if lines[at] == _passed_over(lines[at]) else _passed_over(lines[at])
        except (ValueError, RecursionError, MemoryError):
            return None
    return None


def _passed_over(line: str) -> str:
    return line[: len(line) - len(line.lstrip())] + "pass"


def _named_here(tree: ast.AST) -> frozenset[str]:
    """Names that the program itself gives to methods, attributes and parameters."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return frozenset(found)


class _Shaper:
    def __init__(self, own: frozenset[str]) -> None:
        self.own = own

    def block(self, statements: Iterable[ast.AST]) -> list[Token]:
        """Rule 5, and what rule 1 says of statements."""
        shapes = [self.statement(one) for one in statements if not _silent(one)]
        return [token for one in sorted(shapes, key=lambda one: [token.kind for token in one]) for token in one]

    def statement(self, node: ast.AST) -> list[Token]:
        try:
            return list(self.node(node, getattr(node, "lineno", 1)))
        except RecursionError:  # a sum of thousands of terms: the rest of the program still counts
            return [Token("deep", getattr(node, "lineno", 1))]

    def node(self, node: ast.AST, line: int) -> Iterator[Token]:
        line = getattr(node, "lineno", line)
        if isinstance(node, ast.AugAssign):
            value = ast.BinOp(node.target, node.op, node.value)
            node = ast.Assign([node.target], ast.copy_location(value, node))
        elif isinstance(node, ast.AnnAssign):
            node = ast.Assign([node.target], node.value or ast.Constant(None))
        yield Token(self.kind(node), line)
        if isinstance(node, ast.JoinedStr):
            return
        for field, value in ast.iter_fields(node):
            if field in UNSEEN_FIELDS:
                continue
            if field in BLOCKS and isinstance(value, list):
                yield from [Token("{", line), *self.block(value), Token("}", line)] if value else []
            else:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self.node(child, line)

    def kind(self, node: ast.AST) -> str:
        """Rules 2 and 3."""
        if isinstance(node, ast.Name):
            return node.id if node.id in BUILTINS else "name"
        if isinstance(node, ast.Attribute):
            return "attribute" if node.attr in self.own else f".{node.attr}"
        if isinstance(node, ast.keyword):
            return "keyword" if node.arg in self.own else f"{node.arg}="
        if isinstance(node, ast.JoinedStr):
            return "text"
        if isinstance(node, ast.Constant):
            return {int: "number", float: "number", complex: "number", str: "text"}.get(type(node.value), "constant")
        return type(node).__name__


def _silent(node: ast.AST) -> bool:
    alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return alone or isinstance(node, ast.Pass | ast.Import | ast.ImportFrom)
