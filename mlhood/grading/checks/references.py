"""The static analysis that finds forbidden names which a solution uses, in the source of its cells.

Cells are analysed in the order in which they ran; nothing of them is executed. For every name that a notebook defines,
the analysis records which dotted names its definition refers to (`torch.nn.functional.unfold`, through imports and
aliases) and which other names of the notebook, so that the references of a helper count for its callers. A check that
calls a function then asks which names are reachable from it. Code that no definition reaches, such as a comparison with
torch in a cell of its own, does not count.

Names that only the run knows are not found here: they are outside of the closed world (see `closed_world`), and a task
that comes after them is held.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mlhood.grading.checks.cell_source import CellCode, Piece, read_cell
from mlhood.grading.checks.closed_world_lists import MUTATING_METHODS
from mlhood.grading.checks.scopes import (
    DEFINITIONS,
    Function,
    Origins,
    annotations_of,
    bound_names,
    is_module,
    is_within,
    line_of,
    own_nodes,
    parameters,
    root_name,
)

MAX_STEPS = 500_000  # of an analysis; solutions of the course need less than ten thousand
WHOLE_PROGRAM = ""  # no name: what all statements refer to
CERTAIN = (*DEFINITIONS, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)  # statements that always bind a name


@dataclass(frozen=True)
class ForbiddenUse:
    """A forbidden name that is used, and the line that uses it.

    Attributes:
        passed: If nobody can read whether it is used: what the line passes on as a value, the name itself or a module
            around it.
    """

    name: str
    line: str
    passed: str = ""


class TooMuchCodeError(Exception):
    """An analysis takes more steps than any honest notebook needs."""


@dataclass
class Steps:
    """The steps of an analysis so far: what a statement costs grows with what came before it."""

    taken: int = 0

    def take(self, count: int = 1) -> None:
        """Take steps.

        Raises:
            TooMuchCodeError: There were too many.
        """
        self.taken += count
        if self.taken > MAX_STEPS:
            raise TooMuchCodeError


@dataclass(eq=False)
class Definition:
    """The references of a name's definition, each with its line.

    Attributes:
        dotted: Dotted names of imported things.
        names: Names of the notebook that functions look up when they are called.
        modules: Dotted names of modules that are used as values, so that anything in them may be used.
        escaped: Dotted names of things that may have been stored in its value.
        parts: Definitions of the names whose values it was made of.
        mutates: Whether its functions change what is passed to them, or the objects that they are methods of.
    """

    dotted: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    escaped: dict[str, str] = field(default_factory=dict)
    parts: list[Definition] = field(default_factory=list)
    mutates: bool = False


class ReferenceAnalysis:
    """The definitions of the cells analysed so far.

    Attributes:
        definitions: The references of every name that the notebook binds.
        origins: The dotted names of imported names and aliases.
        too_much: Whether the cells were too much to be analysed, so that what is known of them is not all.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, Definition] = {}
        self.origins = Origins()
        self.too_much = False
        self._steps = Steps()
        self._aliases: dict[str, set[str]] = {}  # names whose values may share state
        self._functions: set[str] = set()  # names of functions and classes

    def add_cell(self, code: CellCode, *, trusted: bool = False, completed: bool = True) -> None:
        """Analyse a cell.

        Args:
            code: What is not readable of it is outside of the closed world.
            trusted: Whether the course wrote it: its definitions may refer to anything.
            completed: Whether it ran to its end. If not, nobody knows what it has bound, so earlier definitions of the
                same names count as well.
        """
        if self.too_much:
            return
        try:
            for piece in code.pieces:
                for statement in piece.tree.body:
                    certain = completed and isinstance(statement, CERTAIN)
                    self._add_statement(statement, piece, trusted=trusted, certain=certain)
        except (RecursionError, MemoryError):  # the closed world cannot visit it either
            return
        except TooMuchCodeError:
            self.too_much = True

    def find_forbidden(self, names: Iterable[str], forbidden: Iterable[str]) -> ForbiddenUse | None:
        """Return the first forbidden name that is reachable from any of these names of the notebook."""
        scopes, unclear = tuple(forbidden), None
        for definition in self._reachable(names, Steps()):
            for module, line in definition.modules.items():
                scope = next((scope for scope in scopes if scope.startswith(module + ".")), None)
                unclear = unclear or (ForbiddenUse(scope, line, module) if scope else None)
            for dotted, line in definition.escaped.items():
                scope = next((scope for scope in scopes if is_within(dotted, scope)), None)
                unclear = unclear or (ForbiddenUse(scope, line, dotted) if scope else None)
            for dotted, line in {**definition.dotted, **self._star_references(definition)}.items():
                scope = next((scope for scope in scopes if is_within(dotted, scope)), None)
                if scope:
                    return ForbiddenUse(scope, line)
        return unclear

    def _reachable(self, names: Iterable[str], steps: Steps) -> Iterator[Definition]:
        known = (self.definitions[name] for name in sorted(names, reverse=True) if name in self.definitions)
        return self._parts(known, steps)

    def _parts(self, definitions: Iterable[Definition], steps: Steps) -> Iterator[Definition]:
        """Yield these definitions, and all that they refer to."""
        pending = list(definitions)
        visited: set[int] = set()
        while pending:
            definition = pending.pop()
            if id(definition) in visited:
                continue
            visited.add(id(definition))
            steps.take(1 + len(definition.parts) + len(definition.names))
            yield definition
            pending += definition.parts
            pending += [self.definitions[name] for name in definition.names if name in self.definitions]

    def _star_references(self, definition: Definition) -> dict[str, str]:
        """Return the dotted names that undefined names may have through star imports."""
        undefined = {name: line for name, line in definition.names.items() if name not in self.definitions}
        return {f"{module}.{name}": line for module in self.origins.star_imports for name, line in undefined.items()}

    def _add_statement(self, statement: ast.stmt, piece: Piece, *, trusted: bool, certain: bool) -> None:
        visitor = _ReferenceVisitor(self.origins, piece.lines, self._steps)
        visitor.visit(statement)
        references = Definition() if trusted else self._resolved(visitor)
        self._define(WHOLE_PROGRAM, references, certain=False)
        imported = self._bind_imports(statement, piece.lines, trusted=trusted, certain=certain)
        for name in bound_names([statement]) - imported:
            self._define(name, references, certain=certain)
            if certain:
                self.origins.bind(name, (), certain=True)
        for node in ast.walk(statement):
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                self.origins.assign(node, certain=certain and node is statement)
        self._bind_aliases(statement)
        changed = (visitor.mutated | self._mutated_arguments(visitor)) - imported
        for name in self._with_aliases(changed):
            self._define(name, references, certain=False)
        if not trusted:
            self._let_escape(visitor)

    def _let_escape(self, visitor: _ReferenceVisitor) -> None:
        """Let what is passed to a call be stored in the values of all other names in the call, as nobody can read."""
        for changed, passed, values in visitor.escapes:
            functions = [self.definitions[name] for name in values & self._functions]
            dotted = passed | {
                path: line for part in self._parts(functions, self._steps) for path, line in part.dotted.items()
            }
            objects = {name for name in changed - self._functions if not self.origins.names.get(name)}
            for name in self._with_aliases(objects):
                if dotted and name in self.definitions:
                    self._define(name, Definition(escaped=dotted), certain=False)

    def _bind_aliases(self, statement: ast.stmt) -> None:
        """Note names whose values may share state: one is a part of the other, or one call has returned both."""
        if isinstance(statement, DEFINITIONS):
            self._functions.add(statement.name)
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
            return
        names = bound_names([statement])
        if isinstance(statement.value, ast.Lambda):
            self._functions |= names
        shared = names | ({root_name(statement.value)} - {""})
        if len(shared) > 1:
            joined = self._with_aliases(shared)
            self._aliases |= dict.fromkeys(joined, joined)

    def _with_aliases(self, names: Iterable[str]) -> set[str]:
        aliases = set().union(*(self._aliases.get(name, {name}) for name in names))
        self._steps.take(len(aliases))
        return aliases

    def _mutated_arguments(self, visitor: _ReferenceVisitor) -> set[str]:
        """Return the names whose values the functions that a statement calls may change."""
        names: set[str] = set()
        for function, arguments in visitor.calls:
            if any(definition.mutates for definition in self._reachable([function], self._steps)):
                names |= arguments
        return names

    def _bind_imports(self, statement: ast.stmt, lines: Sequence[str], *, trusted: bool, certain: bool) -> set[str]:
        """Bind what a statement imports into the notebook, and return the names."""
        names: set[str] = set()
        for node in _own_imports(statement):
            for name in self.origins.add_import(node, certain=certain):
                paths = self.origins.names[name]
                if trusted and any(is_within(path, "mlhood.grading") for path in paths):
                    self.origins.bind(name, (), certain=True)  # a stand-in: calling it is calling the task's solution
                    paths = frozenset()
                self._define(name, Definition({path: line_of(node, lines) for path in paths}), certain=certain)
                names.add(name)
        return names

    def _define(self, name: str, references: Definition, *, certain: bool) -> None:
        earlier = None if certain else self.definitions.get(name)
        self.definitions[name] = Definition(parts=[references] if earlier is None else [references, earlier])

    def _resolved(self, visitor: _ReferenceVisitor) -> Definition:
        """Return the references of a statement: what it looks up now has the definition of this moment."""
        now = {name: line for name, line in visitor.now.items() if name in self.definitions}
        later = visitor.later | {name: line for name, line in visitor.now.items() if name not in now}
        parts = [self.definitions[name] for name in now]
        return Definition(visitor.dotted, later, visitor.modules, parts=parts, mutates=visitor.mutates)


def forbidden_use_in_program(source: str, forbidden: Iterable[str]) -> ForbiddenUse | None:
    """Return the first forbidden name that a program of its own uses anywhere.

    Raises:
        TooMuchCodeError: It cannot be analysed.
    """
    analysis = ReferenceAnalysis()
    analysis.add_cell(read_cell(source))
    if analysis.too_much:
        raise TooMuchCodeError
    return analysis.find_forbidden([WHOLE_PROGRAM], forbidden)


class _ReferenceVisitor(ast.NodeVisitor):
    """Collects the references of a statement.

    Attributes:
        dotted: Dotted names, with the line.
        modules: Those of modules that are used as values.
        now: Names of the notebook that are looked up when the statement runs.
        later: Names of the notebook that are looked up when its functions are called.
        mutated: Names of the notebook whose value it changes in place.
        mutates: Whether one of its functions changes a parameter in place.
        calls: Names of the notebook that it calls, or calls a method of, each with the names in the call.
        escapes: For each call outside of functions, what it may change and store (see `_passed`).
    """

    def __init__(self, origins: Origins, lines: Sequence[str], steps: Steps) -> None:
        self.origins = origins
        self.lines = lines
        self._steps = steps
        self.dotted: dict[str, str] = {}
        self.modules: dict[str, str] = {}
        self.now: dict[str, str] = {}
        self.later: dict[str, str] = {}
        self.mutated: set[str] = set()
        self.mutates = False
        self.calls: list[tuple[str, set[str]]] = []
        self.escapes: list[tuple[set[str], dict[str, str], set[str]]] = []
        self._locals: list[set[str]] = []
        self._parameters: list[set[str]] = []
        self._bases: set[int] = set()  # what attributes are taken of

    def visit_Import(self, node: ast.Import) -> None:
        self._import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if self._locals:  # otherwise it defines names of the notebook
            for name in self.origins.add_import(node):
                self.dotted.update({path: line_of(node, self.lines) for path in self.origins.names[name]})

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._visit_scope(node, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_scope(node, [node.body])

    def _visit_scope(self, scope: Function, body: Iterable[ast.AST]) -> None:
        """Visit a function, whose parameters and local names hide those of the notebook. Annotations do not count."""
        for default in (*scope.args.defaults, *scope.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for node in (node for part in annotations_of(scope) for node in ast.walk(part)):
            if isinstance(node, ast.NamedExpr):  # which binds a name outside
                self.visit(node)
        names = parameters(scope) | bound_names(body)
        outside, self.origins = self.origins, self.origins.without(names)
        self._locals.append(names)
        self._parameters.append(parameters(scope))
        for part in body:
            self.visit(part)
        self._parameters.pop()
        self._locals.pop()
        self.origins = outside

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        if self._locals:
            self.origins.assign(node)
        if self._parameters and root_name(node.value) in self._parameters[-1]:
            self._parameters[-1] |= bound_names([node])  # a part of what was passed

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self._add_mutated(node.target)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._bases.add(id(node.value))
        self._refer(node)
        self._mutate(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._mutate(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING_METHODS:
            self._add_mutated(node.func)
        name = root_name(node.func)
        if name and not self._locals:
            self.calls.append((name, {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}))
        if not self._locals:
            self.escapes.append(self._passed(node))
        self._refer(node)
        self.generic_visit(node)

    def _passed(self, call: ast.Call) -> tuple[set[str], dict[str, str], set[str]]:
        """Return what a call outside of functions may change, and what it may store there.

        Returns:
            Names of its receiver and in its arguments, unless another call gets them; dotted names in its arguments,
            with the line; and names of the notebook there.
        """
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        changed = {node.id for node in _outside_of_calls(arguments) if isinstance(node, ast.Name)}
        receiver = root_name(call.func)
        bodies = arguments + ([call.func.body] if isinstance(call.func, ast.Lambda) else [])
        nodes = [node for argument in bodies for node in ast.walk(argument)]
        self._steps.take(len(nodes))
        used = {id(node.func) for node in own_nodes(arguments) if isinstance(node, ast.Call)}
        used |= {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        values = [node for node in nodes if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in used]
        line = line_of(call, self.lines)
        dotted = {path: line for node in values for path in self.origins.dotted(node)}
        return changed | ({receiver} - {""}), dotted, {node.id for node in values if isinstance(node, ast.Name)}

    def visit_Name(self, node: ast.Name) -> None:
        if self._is_local(node.id):
            self._refer(node)
        elif not isinstance(node.ctx, ast.Load):
            self.mutated.update([node.id] if self._locals else ())  # it is declared global
        else:
            self._refer(node)
            (self.later if self._locals else self.now).setdefault(node.id, line_of(node, self.lines))

    def _refer(self, node: ast.expr) -> None:
        for dotted in self.origins.dotted(node):
            self.dotted.setdefault(dotted, line_of(node, self.lines))
            if id(node) not in self._bases and is_module(dotted):
                self.modules.setdefault(dotted, line_of(node, self.lines))

    def _mutate(self, node: ast.Attribute | ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._add_mutated(node)

    def _add_mutated(self, node: ast.expr) -> None:
        name = root_name(node)
        if any(name in names for names in self._parameters):
            self.mutates = True
        elif name and not self._is_local(name):
            self.mutated.add(name)

    def _is_local(self, name: str) -> bool:
        return any(name in names for names in self._locals)


def _outside_of_calls(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of expressions, without the calls and lambdas in them."""
    for node in nodes:
        if not isinstance(node, (ast.Call, ast.Lambda)):
            yield node
            yield from _outside_of_calls(ast.iter_child_nodes(node))


def _own_imports(statement: ast.stmt) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a statement outside of functions and classes."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield statement
    elif not isinstance(statement, DEFINITIONS):
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, (ast.stmt, ast.ExceptHandler)):
                yield from _own_imports(child)  # pyright: ignore[reportArgumentType]
