"""What a solution leans on although its task names it as out of bounds, found in the source of its cells.

Cells are read in the order in which they run, and nothing of them is executed. For every name that a notebook defines
this keeps which dotted names its definition refers to (`torch.nn.functional.unfold`, through imports, aliases,
`getattr` and `import_module` with constant strings) and which other names of the notebook, so that a helper counts for
whoever calls it. A check that asks for a function then knows what that function leans on. What is only tried out
beside it, such as a comparison with torch in a cell of its own, is nobody's definition and counts for nothing.

Names that are put together while the code runs are not seen here; see `guard` for what is seen then.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

ALWAYS = ("mlhood.grading",)  # the checks and what they compare with
LINE_CHARACTERS = 120
MAGICS = ("time", "timeit", "capture", "prun")  # that run the rest of their cell
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Use:
    """A name that may not be used, and the line that does."""

    name: str
    line: str


@dataclass
class Definition:
    """What a name's definition refers to: dotted names and names of the notebook, each with its line."""

    dotted: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def add(self, other: Definition) -> None:
        """Take over what another one refers to."""
        self.dotted.update(other.dotted)
        self.names.update(other.names)


class Leaning:
    """What the cells read so far have defined."""

    def __init__(self) -> None:
        self.origins: dict[str, str] = {}
        self.definitions: dict[str, Definition] = {}
        self.starred: list[str] = []

    def read(self, source: str, *, trusted: bool = False) -> None:
        """Read a cell.

        Args:
            source: As it stands in the notebook, magics included. What is no Python defines nothing.
            trusted: The course's own: what it defines may lean on anything.
        """
        try:
            code = _as_python(source)
            for statement in ast.parse(code).body:
                self._read_statement(statement, code.splitlines(), trusted)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return

    def find(self, asked: Iterable[str], forbidden: Iterable[str]) -> Use | None:
        """The first name out of bounds that any of these names of the notebook leans on, directly or through others."""
        bounds, waiting, seen = tuple(forbidden), sorted(asked), set()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            known = self.definitions.get(name, Definition())
            starred = {f"{module}.{other}": line for module in self.starred for other, line in known.names.items()
                       if other not in self.definitions and other not in self.origins}  # fmt: skip
            for dotted, line in {**known.dotted, **starred}.items():
                hit = next((one for one in bounds if within(dotted, one)), None)
                if hit:
                    return Use(hit, line)
            waiting.extend(known.names)
        return None

    def _read_statement(self, statement: ast.stmt, lines: list[str], trusted: bool) -> None:
        for inner in _sources(statement):
            self.read(inner, trusted=trusted)
        reader = _Reader(dict(self.origins), lines)
        reader.visit(statement)
        self.starred += reader.starred
        found = Definition() if trusted else reader.found
        bound = _bound(statement)
        for name in bound:
            if isinstance(statement, (*DEFINITIONS, ast.Assign)):
                self.definitions[name] = Definition()
            self.definitions.setdefault(name, Definition()).add(found)
        for name, line in reader.imported.items():
            self.definitions[name] = Definition({reader.origins.get(name, name): line})
        for name in {*bound, *reader.imported}:
            self.origins.pop(name, None)
            if trusted and any(within(reader.origins.get(name, ""), one) for one in ALWAYS):
                self.definitions[name] = Definition()  # a stand-in: who calls it calls what the task before asked for
            elif name in reader.origins:
                self.origins[name] = reader.origins[name]


class _Reader(ast.NodeVisitor):
    """Collects what a statement refers to. `origins` says which dotted name a name stands for here."""

    def __init__(self, origins: dict[str, str], lines: list[str]) -> None:
        self.origins = origins
        self.lines = lines
        self.found = Definition()
        self.imported: dict[str, str] = {}
        self.starred: list[str] = []

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            name = one.asname or one.name.partition(".")[0]
            self._import(name, one.name if one.asname else name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for one in node.names:
            if one.name == "*":
                self.starred.append(node.module or "")
            else:
                self._import(one.asname or one.name, f"{node.module}.{one.name}", node)

    def _import(self, name: str, dotted: str, node: ast.stmt) -> None:
        self.origins[name] = dotted
        self.imported[name] = self._line(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for outside in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if outside is not None:
                self.visit(outside)
        self._inside(node, node.body)
        self.origins.pop(node.name, None)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._inside(node, [node.body])

    def _inside(self, scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, body: list) -> None:
        """Arguments, and what a function makes itself, stand for nothing outside of it."""
        inner = _Reader(dict(self.origins), self.lines)
        own = {one.arg for one in ast.walk(scope.args) if isinstance(one, ast.arg)}
        for name in own:
            inner.origins.pop(name, None)
        for part in body:
            inner.visit(part)
        made = own.union(*(_bound(part) for part in body if isinstance(part, ast.stmt)))
        self.found.dotted.update(inner.found.dotted)
        self.found.names.update({name: line for name, line in inner.found.names.items() if name not in made})
        self.starred += inner.starred

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for one, value in pairs:
                self._assign(one, value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        dotted = self.dotted(value)
        for name in _bound_by(target):
            self.origins.pop(name, None)
            if dotted:
                self.origins[name] = dotted
        if not isinstance(target, ast.Name):
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._refer(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._refer(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._refer(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._refer(node)
            self.found.names.setdefault(node.id, self._line(node))

    def _refer(self, node: ast.expr) -> None:
        dotted = self.dotted(node)
        if dotted:
            self.found.dotted.setdefault(dotted, self._line(node))
        if not isinstance(node, ast.Name):
            self.generic_visit(node)

    def _line(self, node: ast.expr | ast.stmt) -> str:
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        return line.strip()[:LINE_CHARACTERS]

    def dotted(self, node: ast.expr) -> str | None:
        """The dotted name that an expression stands for, if it can be read off."""
        if isinstance(node, ast.Name):
            return self.origins.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return base and (base if node.attr == "__dict__" else f"{base}.{node.attr}")
        if isinstance(node, ast.Subscript):
            base, key = self.dotted(node.value), _text(node.slice)
            return (key if base == "sys.modules" else f"{base}.{key}") if base and key else None
        return self._called(node) if isinstance(node, ast.Call) else None

    def _called(self, node: ast.Call) -> str | None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        first = node.args[0] if node.args else None
        if first is None:
            return None
        if name == "vars":
            return self.dotted(first)
        if name == "getattr" and len(node.args) > 1:
            base, attribute = self.dotted(first), _text(node.args[1])
            return f"{base}.{attribute}" if base and attribute else None
        if name == "__import__":
            return (_text(first) or "").partition(".")[0] or None
        return _text(first) if self.dotted(node.func) == "importlib.import_module" else None


def within(dotted: str, bound: str) -> bool:
    """Whether a dotted name is another one, or lies in it."""
    return dotted == bound or dotted.startswith(bound + ".")


def _text(node: ast.expr) -> str | None:
    """The string that an expression of constants stands for."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None or right is None else left + right
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _bound(statement: ast.AST) -> set[str]:
    """The names that a statement binds, other than by importing; what functions bind inside is theirs."""
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    if isinstance(statement, SCOPES):
        return set()
    own = set(_bound_by(statement)) if isinstance(statement, (ast.Name, ast.Subscript)) else set()
    return own.union(*(_bound(child) for child in ast.iter_child_nodes(statement)))


def _bound_by(target: ast.AST) -> Iterator[str]:
    """The names of a target: x, (x, y), and `globals()["x"]`."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Call):
            called, name = node.value.func, _text(node.slice)
            if name and isinstance(called, ast.Name) and called.id in ("globals", "locals", "vars"):
                yield name


def _sources(statement: ast.stmt) -> Iterator[str]:
    """Source that a statement runs: that of `exec`, and of a cell with a magic before it, such as `%%time`."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval"):
            yield _text(node.args[0]) or ""
        elif isinstance(node.func, ast.Attribute) and _text(node.args[0]) in MAGICS:
            yield _text(node.args[-1]) or ""


def _as_python(source: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in a student's strings
        code = TransformerManager().transform_cell(source)
        ast.parse(code)
    return code
