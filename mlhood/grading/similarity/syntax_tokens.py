"""Reduce a program to tokens of its syntax tree that do not depend on what a copy is disguised with.

1. Comments, docstrings, annotations, imports, `pass` and string statements produce no tokens.
2. All names are one kind, except those of Python's builtins; so are attributes and keywords that the program itself
   defines. Those of libraries are kept: `np.pad` and `np.roll` are different operations.
3. A literal is its kind: number, text, or other constant.
4. `a += b` becomes `a = a + b`, and `a: int = b` becomes `a = b`.
5. The statements of a block are sorted by their own tokens, so that reordering them changes nothing.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Iterable
from typing import NamedTuple

MAX_REPAIRS = 20
BUILTINS = frozenset(dir(builtins))
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
IGNORED_FIELDS = ("annotation", "returns", "type_comment", "type_params", "ctx", "kind")


class SyntaxToken(NamedTuple):
    """A node of the reduced syntax tree: its kind and its line."""

    kind: str
    line: int


def syntax_tokens(source: str) -> list[SyntaxToken]:
    """Return the tokens of a program, at most two for a character; none if it cannot be parsed."""
    tree = _parse(source)
    if tree is None:
        return []
    try:
        defined = _defined_names(tree)
    except RecursionError:
        defined = frozenset()
    return _Tokenizer(defined).block(tree.body)


def _parse(source: str) -> ast.Module | None:
    """Return the syntax tree; a line that is not Python, such as an IPython magic, is replaced by `pass`."""
    lines = source.replace("\r\n", "\n").replace("\0", "").split("\n")
    lines = [_as_pass(line) if line.lstrip().startswith(("%", "!")) else line for line in lines]
    for _ in range(MAX_REPAIRS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in a student's strings
                return ast.parse("\n".join(lines))
        except SyntaxError as error:
            index = (error.lineno or 0) - 1
            if not 0 <= index < len(lines) or not lines[index].strip():
                return None
            lines[index] = "" if lines[index] == _as_pass(lines[index]) else _as_pass(lines[index])
        except (ValueError, RecursionError, MemoryError):
            return None
    return None


def _as_pass(line: str) -> str:
    return line[: len(line) - len(line.lstrip())] + "pass"


def _defined_names(tree: ast.AST) -> frozenset[str]:
    """Return the names that the program itself gives to functions, classes, attributes and parameters."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return frozenset(names)


class _Tokenizer:
    def __init__(self, defined: frozenset[str]) -> None:
        self.defined = defined

    def block(self, statements: Iterable[ast.AST]) -> list[SyntaxToken]:
        """Rule 5, and rule 1 for statements."""
        reduced = [self.statement(statement) for statement in statements if not _is_ignored(statement)]
        reduced.sort(key=lambda tokens: [token.kind for token in tokens])
        return [token for tokens in reduced for token in tokens]

    def statement(self, node: ast.AST) -> list[SyntaxToken]:
        try:
            tokens: list[SyntaxToken] = []
            self.node(node, getattr(node, "lineno", 1), tokens)
            return tokens
        except RecursionError:  # such as a sum of thousands of terms: the rest of the program still counts
            return [SyntaxToken("deep", getattr(node, "lineno", 1))]

    def node(self, node: ast.AST, line: int, tokens: list[SyntaxToken]) -> None:
        """Append the tokens of a node, whose line is that of its parent unless it has one."""
        line = getattr(node, "lineno", line)
        if isinstance(node, ast.AugAssign):
            value = ast.BinOp(node.target, node.op, node.value)
            node = ast.Assign([node.target], ast.copy_location(value, node))
        elif isinstance(node, ast.AnnAssign):
            node = ast.Assign([node.target], node.value or ast.Constant(None))
        tokens.append(SyntaxToken(self.kind(node), line))
        if isinstance(node, ast.JoinedStr):
            return
        for field, value in ast.iter_fields(node):
            if field in IGNORED_FIELDS:
                continue
            if field in BLOCKS and isinstance(value, list):
                tokens += [SyntaxToken("{", line), *self.block(value), SyntaxToken("}", line)] if value else []
            else:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self.node(child, line, tokens)

    def kind(self, node: ast.AST) -> str:
        """Rules 2 and 3."""
        if isinstance(node, ast.Name):
            return node.id if node.id in BUILTINS else "name"
        if isinstance(node, ast.Attribute):
            return "attribute" if node.attr in self.defined else f".{node.attr}"
        if isinstance(node, ast.keyword):
            return "keyword" if node.arg in self.defined else f"{node.arg}="
        if isinstance(node, ast.JoinedStr):
            return "text"
        if isinstance(node, ast.Constant):
            return {int: "number", float: "number", complex: "number", str: "text"}.get(type(node.value), "constant")
        return type(node).__name__


def _is_ignored(node: ast.AST) -> bool:
    is_literal = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_literal or isinstance(node, ast.Pass | ast.Import | ast.ImportFrom)
