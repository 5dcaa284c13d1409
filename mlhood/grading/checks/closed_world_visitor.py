"""The rules of the closed world: what in a piece of code cannot be read before it runs, or reaches what is not its own.

The rules are lists of what is allowed where that is possible (modules, magics, special attributes, parts of `sys` and
`os`), since nobody can list everything that is not; see `closed_world.toml`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlhood.grading.checks import closed_world_lists as lists
from mlhood.grading.checks.cell_source import Piece
from mlhood.grading.checks.course_modules import is_function
from mlhood.grading.checks.scopes import (
    Function,
    Origins,
    annotations_of,
    bound_names,
    constant_string,
    defaults,
    first_parameter,
    is_module,
    line_of,
    parameters,
    root_of,
)

PATTERN_CLASSES = {"bool", "bytearray", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"}
TAKES_CLASSES = {"isinstance", "issubclass", "map"}
TIMERS = frozenset({"timeit", "repeat", "Timer"})
TIMED = ("stmt", "setup", "global_setup")


@dataclass(frozen=True)
class Finding:
    """A construct outside of the closed world: its line, what is wrong with it, and the module that it names."""

    line: str
    why: str
    module: str = ""

    def __str__(self) -> str:
        line = f"the line `{self.line}` " if self.line else ""
        return f"cannot be marked automatically because {line}{self.why}"


@dataclass(frozen=True)
class Reading:
    """What was read in a piece of code.

    Attributes:
        findings: In the order of the code.
        stores: Stores into attributes of objects which may be modules then.
        sources: Code in strings that it runs.
        passes_modules: Whether a module is used as a value, so that anything may refer to it.
    """

    findings: list[Finding]
    stores: list[Finding]
    sources: list[str]
    passes_modules: bool


def read_piece(piece: Piece, origins: Origins) -> Reading:
    """Read a piece of code.

    Args:
        piece: The code.
        origins: The dotted names of what was imported before; those that the code imports are added.

    Raises:
        RecursionError: It is nested too deeply.
    """
    visitor = _Visitor(origins, piece.lines)
    visitor.visit(piece.tree)
    return Reading(visitor.findings, visitor.stores, visitor.sources, visitor.passes_modules)


class _Visitor(ast.NodeVisitor):
    """Collects a reading (see `Reading`); an alias of an imported name is followed by `origins`."""

    def __init__(self, origins: Origins, lines: Sequence[str]) -> None:
        self.origins = origins
        self.lines = lines
        self.findings: list[Finding] = []
        self.passes_modules = False
        self.stores: list[Finding] = []
        self.sources: list[str] = []
        self._locals: list[set[str]] = []  # of the enclosing functions
        self._selves: set[str] = set()  # first parameters of the enclosing methods
        self._in_class = False
        self._permitted: set[int] = set()  # nodes that what is around them makes harmless

    # -- imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_dotted(alias.name, node)
        self.origins.add_import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            self._find(node, "imports from a package that the notebook is not part of")
        for alias in node.names:
            if alias.name != "*":
                self._check_dotted(f"{module}.{alias.name}", node)
                if f"{module}.{alias.name}" not in lists.HARMLESS:
                    self._check_attribute(alias.name, node)
            elif module in lists.PARTS:
                self._find(node, f"imports all of `{module}`, of which only parts are allowed")
            else:
                self._check_dotted(module, node)
        self.origins.add_import(node)

    def _check_dotted(self, dotted: str, node: ast.AST) -> None:
        """Check the full name of a module, or of something in it."""
        top, _, rest = dotted.partition(".")
        parts = rest.split(".") if rest else []
        if not lists.is_allowed(dotted):
            why = f"uses `{dotted}`, which is not among the modules for automatic marking"
            self.findings.append(self._finding(node, why, top))
        elif top in lists.PARTS:
            if parts and parts[0] not in lists.PARTS[top]:
                self._find(node, f"uses `{dotted}`, which reaches into the running Python")
        elif any(part.startswith("_") and not _is_special(part) for part in parts):
            self._find(node, f"uses `{dotted}`, which is private to its library")

    # -- names and attributes

    def visit_Name(self, node: ast.Name) -> None:
        if id(node) in self._permitted or any(node.id in names for names in self._locals):
            self._check_value(node)
            return
        special = _is_special(node.id) and node.id != "__name__"
        if not isinstance(node.ctx, ast.Load):
            self._check_defined(node.id, node)
            if node.id == "type":  # a variable from now on
                self.origins.bind(node.id, ())
        elif node.id == "type" and node.id not in self.origins.names:
            self._find(
                node, "uses `type` other than to ask for a type: it makes classes whose names only the run knows"
            )
        elif self._may_be_refused(node):
            self._find(
                node, f"uses `{node.id}`, which is not for automatic marking in a module that is imported by `*`"
            )
        elif node.id in lists.DYNAMIC_NAMES or special:
            self._find(node, f"uses `{node.id}`, which runs or reaches code that cannot be read before it runs")
        elif node.id in lists.BY_NAME:
            self._find(node, f"passes `{node.id}` on, so that nobody can read which attributes it takes")
        self._check_value(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        stored = not isinstance(node.ctx, ast.Load)
        self._check_attribute(node.attr, node, stored=stored)
        for dotted in self.origins.dotted(node):
            self._check_dotted(dotted, node)
        if stored:
            self._check_store(node)
        self._check_value(node)
        self._visit_base(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._check_store(node)
        self._visit_base(node.value)
        self.visit(node.slice)

    def _visit_base(self, base: ast.expr) -> None:
        """Visit what an attribute is taken of, which does not use a module as a value."""
        self._permitted.add(id(base) if self.origins.dotted(base) else 0)
        self.visit(base)

    def _may_be_refused(self, node: ast.Name) -> bool:
        """Whether a name that is bound nowhere may be a refused part of a module that is imported by `*`."""
        unknown = node.id not in self.origins.names and not hasattr(builtins, node.id)
        dotted = {f"{module}.{node.id}" for module in self.origins.star_imports}
        return unknown and any(name in lists.DIRECT or lists.has_refused_parts(name) for name in dotted)

    def _check_defined(self, name: str, node: ast.AST) -> None:
        """Check a special name that is bound: in a class, some make an object pass for another, or reach raw memory."""
        if not _is_special(name) or (self._in_class and name in lists.DEFINED_SPECIAL):
            return
        what = "defines" if self._in_class else "changes"
        self._find(node, f"{what} `{name}`, a name of Python's own")

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        """Visit `case Class(name=pattern)`, which reads attributes of any object that passes for one of the class."""
        known = isinstance(node.cls, ast.Name) and node.cls.id in PATTERN_CLASSES
        if node.patterns and not known and not self.origins.dotted(node.cls):
            self._find(node, "matches attributes by position, whose names only the run knows")
        for name in node.kwd_attrs:
            self._check_attribute(name, node)
        self.generic_visit(node)

    def _check_attribute(self, name: str, node: ast.AST, *, stored: bool = False) -> None:
        if _is_special(name):
            allowed = name in (lists.STORED_SPECIAL if stored else lists.SPECIAL)
        else:
            allowed = name not in lists.DYNAMIC_ATTRIBUTES
        if not allowed and not any(dotted in lists.HARMLESS for dotted in self.origins.dotted(node)):
            self._find(node, f"{'changes' if stored else 'uses'} `{name}`, which reaches into the running Python")

    def _check_value(self, node: ast.Name | ast.Attribute) -> None:
        """Check what is used as a value: a module can be taken apart and changed wherever it gets to."""
        if id(node) in self._permitted or not isinstance(node.ctx, ast.Load):
            return
        for dotted in self.origins.dotted(node):
            if dotted in lists.DIRECT:
                self._find(node, f"passes `{dotted}` on, so that nobody can read what it is called with")
            if not lists.is_passable(dotted) and (dotted in lists.PARTS or is_module(dotted)):
                self._find(node, f"passes the module `{dotted}` on, of which only parts are allowed")
            self.passes_modules |= is_module(dotted)

    def _check_store(self, node: ast.Attribute | ast.Subscript) -> None:
        root = root_of(node)
        paths = self.origins.dotted(node) or self.origins.dotted(node.value) or self.origins.dotted(root)
        for path in paths:
            if not lists.is_writable(path):
                self._find(node, f"changes `{path}`, which belongs to a library")
        own = isinstance(root, ast.Name) and root.id in self._selves
        if isinstance(node, ast.Attribute) and not paths and not own:
            why = "changes an attribute of something that may be a module, since modules are passed on here"
            self.stores.append(self._finding(node, why))

    # -- calls

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "type" and len(node.args) == 1 and not node.keywords:
            self._permitted.add(id(node.func))
        if name in TAKES_CLASSES:
            parts = [part for argument in node.args for part in (argument, *getattr(argument, "elts", ()))]
            self._permitted.update(id(part) for part in parts if _is_type(part))
        dotted = self.origins.dotted(node.func)
        if name in lists.BY_NAME:
            self._permitted.add(id(node.func))
            self._check_attribute_by_name(node, stored=name != "getattr")
        if dotted & lists.ATTRIBUTE_GETTERS:
            self._check_attribute_getter(node)
        if dotted & lists.DIRECT:
            self._permitted.add(id(node.func))
        if any(path.rpartition(".")[2] in TIMERS for path in dotted & lists.DIRECT):
            self._check_timeit(node)
        if dotted & lists.DECORATORS and id(node) not in self._permitted:
            self._find(node, "calls something other than as a decorator that can change any object")
        self._check_mutation(node)
        self._check_arguments(node)
        self.generic_visit(node)

    def _check_attribute_by_name(self, node: ast.Call, *, stored: bool) -> None:
        attribute = constant_string(node.args[1]) if len(node.args) > 1 else None
        if attribute is None:
            self._find(node, "takes an attribute by a name that only the run knows")
            return
        written_out = ast.Attribute(node.args[0], attribute, ast.Store() if stored else ast.Load())
        self.visit(ast.copy_location(written_out, node))

    def _check_attribute_getter(self, node: ast.Call) -> None:
        for argument in node.args:
            path = constant_string(argument)
            if path is None and not (isinstance(argument, ast.Constant) and argument is not node.args[0]):
                self._find(node, "takes an attribute by a name that only the run knows")
            for part in (path or "").split("."):
                self._check_attribute(part, node)

    def _check_timeit(self, node: ast.Call) -> None:
        """Check what is timed: the first two arguments, or `stmt` and `setup`, can be code in a string."""
        timed = [*node.args[:2], *(keyword.value for keyword in node.keywords if keyword.arg in (None, *TIMED))]
        for value in timed:
            source = constant_string(value)
            if source is not None:
                self.sources.append(source)
            elif not isinstance(value, (ast.Constant, ast.Lambda)):
                self._find(node, "times code that only the run knows: pass it as `lambda: ...`")
        for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "globals":
                self._permitted.add(id(value.func))

    def _check_mutation(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in lists.MUTATING_METHODS:
            return
        for dotted in self.origins.dotted(node.func.value):
            method = f"{dotted}.{node.func.attr}"  # or a module's function, such as `add` of operators: no set's `add`
            if dotted == "sys.path" or (dotted.startswith("mlhood.") and not is_function(method)):
                self._find(node, f"changes `{dotted}`, which belongs to Python or to the course")

    def _check_arguments(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg is None and isinstance(keyword.value, ast.Dict):
                names = {constant_string(key) for key in keyword.value.keys}
                if not names.isdisjoint({None, *lists.HARMLESS_VALUES}):
                    self._find(node, "passes arguments by names that only the run knows")
            harmless = lists.HARMLESS_VALUES.get(keyword.arg or "")
            if harmless is None or (isinstance(keyword.value, ast.Constant) and keyword.value.value in harmless):
                continue
            self._find(node, f"passes `{keyword.arg}`, with which a library runs or changes what cannot be read")
        attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        loads = attribute == "load" or any(dotted.endswith(".load") for dotted in self.origins.dotted(node.func))
        if loads and (len(node.args) > 2 or any(isinstance(argument, ast.Starred) for argument in node.args)):
            self._find(node, "passes arguments to `load` by position, among which can be one to run what is in a file")
        if attribute in ("eval", "query") and node.args:  # of pandas; `model.eval()` has no argument
            text = constant_string(node.args[0])
            if text is None or "@" in text or "__" in text:
                self._find(node, f"passes an expression to `{attribute}` that cannot be read")

    def visit_Compare(self, node: ast.Compare) -> None:
        """Visit a comparison; `"x" in globals()` and `"x" in sys.modules` read nothing but names."""
        self._permitted.update(id(part) for part in (node.left, *node.comparators) if _is_type(part))
        self.visit(node.left)
        for operator, right in zip(node.ops, node.comparators, strict=True):
            contains = isinstance(operator, (ast.In, ast.NotIn))
            if contains and isinstance(right, ast.Call) and not right.args:
                self._permitted.add(id(right.func))
            if not contains or "sys.modules" not in self.origins.dotted(right):
                self.visit(right)

    # -- bindings and scopes

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.visit(target)
        if all(isinstance(target, ast.Name) for target in node.targets):
            self._visit_base(node.value)  # an alias, which is followed
        else:
            self.visit(node.value)
        self.origins.assign(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        self._visit_annotation(node.annotation)
        if node.value is not None:
            self._visit_base(node.value)
        self.origins.assign(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self.origins.assign(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if self._in_class or not self._locals:
            self._check_defined(node.name, node)
        self._permitted.update(id(decorator) for decorator in node.decorator_list if isinstance(decorator, ast.Call))
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._visit_scope(node, node.body, {first_parameter(node)} if self._in_class else set())

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_scope(node, [node.body], set())

    def _visit_scope(self, scope: Function, body: Iterable[ast.AST], selves: set[str]) -> None:
        for default in (*scope.args.defaults, *scope.args.kw_defaults):
            if default is not None:
                self._visit_base(default)
        for annotation in annotations_of(scope):  # which run when it is defined
            self._visit_annotation(annotation)
        outside = self.origins, self._selves, self._in_class
        names = parameters(scope) | bound_names(body)
        inner = self.origins.without(names)
        for name, default in defaults(scope):
            inner.bind(name, self.origins.dotted(default))
        self.origins, self._selves, self._in_class = inner, (self._selves - names) | selves, False
        self._locals.append(names)
        for part in body:
            self.visit(part)
        self._locals.pop()
        self.origins, self._selves, self._in_class = outside

    def _visit_annotation(self, annotation: ast.expr) -> None:
        """Visit an annotation; what is in a string can be run later."""
        for part in ast.walk(annotation):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                self.sources.append(part.value)
            elif _is_type(part):
                self._permitted.add(id(part))
        self.visit(annotation)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outside, self._in_class = self._in_class, True
        self.generic_visit(node)
        self._in_class = outside

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            if _is_special(name):
                self._find(node, f"changes `{name}`, a name of Python's own")

    # -- findings

    def _find(self, node: ast.AST, why: str) -> None:
        self.findings.append(self._finding(node, why))

    def _finding(self, node: ast.AST, why: str, module: str = "") -> Finding:
        return Finding(line_of(node, self.lines), why, module)


def _is_type(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "type"


def _is_special(name: str) -> bool:
    return len(name) > len("____") and name.startswith("__") and name.endswith("__")
