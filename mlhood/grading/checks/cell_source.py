"""The source of a cell as Python: magics and shell commands are replaced by the code that they run, or refused.

IPython turns `%time f()` into `get_ipython().run_line_magic("time", "f()")`. Here the magics that run code yield it
as a piece of its own, those that cannot change the notebook's objects are harmless, and all others cannot be read.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlhood.grading.checks import closed_world_lists as lists
from mlhood.grading.checks.scopes import MAX_LINE_CHARACTERS, constant_string, line_of

# options of magics that run code, exactly as these are parsed; anything else is taken for code
CODE_OPTIONS = re.compile(r"\s*(?:-(?:[nrp]\s*\d+|[tcqo]+)(?=\s|$)|--no-(?:stdout|stderr|display|raise-error))")
REQUIREMENT = re.compile(r"-{0,2}[A-Za-z0-9][\w.\[\],-]*(?:[=<>~!]=?[\w.*]+)?")  # no path, and no address


TOO_DEEP = "a cell is nested too deeply to be read"


class UnreadableCell(Exception):
    """A cell runs code that is not in its source; `line` is where."""

    def __init__(self, why: str, line: str = "") -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class Piece:
    """Code that a cell runs, and its lines, shortened for messages."""

    tree: ast.Module
    lines: tuple[str, ...]


@dataclass(frozen=True)
class CellCode:
    """The code of a cell: that outside of magics first, then that of each magic.

    Attributes:
        pieces: A cell that is not Python does not run either, so it has none.
        unreadable: Why there is more code than these pieces, if there is.
    """

    pieces: tuple[Piece, ...]
    unreadable: UnreadableCell | None = None


def read_cell(source: str) -> CellCode:
    """Read the code of a cell from its source, magics included."""
    pieces: list[Piece] = []
    try:
        pieces.extend(_pieces_of(source))
    except UnreadableCell as reason:
        return CellCode(tuple(pieces), reason)
    except (RecursionError, MemoryError):
        return CellCode(tuple(pieces), UnreadableCell(TOO_DEEP))
    return CellCode(tuple(pieces))


def _pieces_of(source: str) -> Iterator[Piece]:
    from IPython.core.inputtransformer2 import TransformerManager

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in a student's strings
        try:
            code = TransformerManager().transform_cell(source)
            tree = ast.parse(code)
        except (SyntaxError, ValueError):
            return
    calls = _CallsOfIPython([line.strip()[:MAX_LINE_CHARACTERS] for line in code.splitlines()])
    yield Piece(calls.visit(tree), tuple(calls.lines))
    for inner in calls.sources:
        yield from _pieces_of(inner)


class _CallsOfIPython(ast.NodeTransformer):
    """Replaces calls of IPython's shell by None, and collects the code that they run in `sources`."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.sources: list[str] = []

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if not _is_shell(node.func):
            return self.generic_visit(node)  # pyright: ignore[reportReturnType]
        arguments = [constant_string(argument) for argument in node.args]
        attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        line = line_of(node, self.lines)
        if node.keywords or None in arguments:
            raise UnreadableCell("runs a command that only the run knows", line)
        texts = [text for text in arguments if text is not None]
        if attribute in ("run_line_magic", "run_cell_magic") and len(texts) > 1:
            shown = f"%{texts[0]} {texts[1]}".strip()
            self._magic(texts[0], "\n".join(texts[1:]), shown if len(texts) == 2 else f"%{shown}")
        elif attribute in ("system", "getoutput") and texts:
            _check_shell(texts[0], f"!{texts[0]}")
        else:
            raise UnreadableCell(f"uses IPython's `{attribute}`, which reaches into the notebook's machinery", line)
        return ast.copy_location(ast.Constant(None), node)

    def _magic(self, name: str, text: str, shown: str) -> None:
        if name in lists.CODE_MAGICS:
            self.sources.append(_without_options(text, name))
        elif name in lists.SHELL_MAGICS:
            prefix = name if name not in ("bash", "sh", "sx", "system", "!") else ""
            _check_shell(f"{prefix} {text}", shown)
        elif name in ("load_ext", "reload_ext"):
            if text.strip() not in lists.EXTENSIONS:
                raise UnreadableCell("loads an extension that can change how cells run", shown)
        elif name not in lists.HARMLESS_MAGICS | lists.EXTENSIONS:
            raise UnreadableCell(f"uses the magic `%{name}`, whose effect cannot be read", shown)


def _is_shell(function: ast.expr) -> bool:
    """Whether it is an attribute of `get_ipython()`."""
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Call):
        return False
    inner = function.value.func
    return isinstance(inner, ast.Name) and inner.id == "get_ipython"


def _without_options(text: str, name: str) -> str:
    while match := CODE_OPTIONS.match(text):
        text = text[match.end() :]
    first, newline, rest = text.partition("\n")
    if name == "capture" and newline and first.strip().isidentifier():
        return f"{first.strip()} = None\n{rest}"
    return text.lstrip(" \t")


def _check_shell(text: str, shown: str) -> None:
    """Check that every command of a shell line is known to start no code of the student's.

    Raises:
        UnreadableCell: One is not, or is put together when it runs.
    """
    if re.search(r"[`$<({]", text):
        raise UnreadableCell("runs a shell command that only the run knows", shown)
    for command in re.split(r"\n|;|\|\|?|&&?", text):
        try:
            words = shlex.split(command, comments=True)
        except ValueError:
            words = ["?"]
        if not words:
            continue
        installs = words[0] in lists.INSTALLERS and all(REQUIREMENT.fullmatch(word) for word in words[1:])
        if words[0] not in lists.COMMANDS and not installs:
            raise UnreadableCell(f"runs the shell command `{words[0]}`, whose effect cannot be read", shown)
