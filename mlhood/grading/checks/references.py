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
from mlhood.grading.checks.course_modules import aliases
from mlhood.grading.checks.reference_visitor import StatementReferences, Steps, TooMuchCodeError, read_statement
from mlhood.grading.checks.scopes import (
    DEFINITIONS,
    Origins,
    bound_names,
    is_within,
    line_of,
    root_name,
)

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
        referred: All names of the notebook in its statement, whenever they are looked up.
    """

    dotted: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    escaped: dict[str, str] = field(default_factory=dict)
    parts: list[Definition] = field(default_factory=list)
    mutates: bool = False
    referred: frozenset[str] = frozenset()


class ReferenceAnalysis:
    """The definitions of the cells analysed so far.

    Attributes:
        definitions: The references of every name that the notebook binds.
        origins: The dotted names of imported names and aliases.
        too_much: Whether the cells were too much to be analysed, so that what is known of them is not all.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, Definition] = {}
        self._statements: list[Definition] = []
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
                scope = _scope_of(dotted, scopes)
                unclear = unclear or (ForbiddenUse(scope, line, dotted) if scope else None)
            for dotted, line in {**definition.dotted, **self._star_references(definition)}.items():
                scope = _scope_of(dotted, scopes)
                if scope:
                    return ForbiddenUse(scope, line)
        return unclear

    def names_referred_with(self, *names: str) -> set[str]:
        """Return the names of the notebook that its own statements refer to which also refer to all of `names`.

        Both directly, or through functions and other values of the notebook.
        """
        found: set[str] = set()
        for statement in self._statements:
            reached = {other for part in self._parts([statement], Steps()) for other in part.referred}
            found |= reached if reached.issuperset(names) else set()
        return found

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
        read = read_statement(statement, self.origins, piece.lines, self._steps)
        references = Definition() if trusted else self._resolved(read)
        self._define(WHOLE_PROGRAM, references, certain=False)
        own = set() if trusted else _bound_by_loop(statement)
        self._statements.append(self._resolved(read, own) if own else references)
        imported = self._bind_imports(statement, piece.lines, trusted=trusted, certain=certain)
        for name in bound_names([statement]) - imported:
            self._define(name, references, certain=certain)
            if certain:
                self.origins.bind(name, (), certain=True)
        for node in ast.walk(statement):
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                self.origins.assign(node, certain=certain and node is statement)
        self._bind_aliases(statement)
        changed = (read.mutated | self._mutated_arguments(read)) - imported
        for name in self._with_aliases(changed):
            self._define(name, references, certain=False)
        if not trusted:
            self._let_escape(read)

    def _let_escape(self, read: StatementReferences) -> None:
        """Let what is passed to a call be stored in the values of all other names in the call, as nobody can read."""
        for changed, passed, values in read.escapes:
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

    def _mutated_arguments(self, read: StatementReferences) -> set[str]:
        """Return the names whose values the functions that a statement calls may change."""
        names: set[str] = set()
        for function, arguments in read.calls:
            if any(definition.mutates for definition in self._reachable([function], self._steps)):
                names |= arguments
        return {name for name in names if not self.origins.names.get(name)}

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

    def _resolved(self, read: StatementReferences, fresh: Iterable[str] = ()) -> Definition:
        """Return the references of a statement: what it looks up now has the definition of this moment.

        Args:
            read: The statement.
            fresh: Names of its own, which it does not look up.
        """
        looked_up = {name: line for name, line in read.now.items() if name not in fresh}
        now = {name: line for name, line in looked_up.items() if name in self.definitions}
        later = read.later | {name: line for name, line in looked_up.items() if name not in now}
        parts = [self.definitions[name] for name in now]
        referred = frozenset(read.now) | frozenset(read.later)
        return Definition(read.dotted, later, read.modules, parts=parts, mutates=read.mutates, referred=referred)


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


def _scope_of(dotted: str, scopes: Iterable[str]) -> str | None:
    """Return the first of these names that a dotted name is within, also by the imports of the course's modules."""
    return next((scope for scope in scopes if any(is_within(name, scope) for name in aliases(dotted))), None)


def _bound_by_loop(statement: ast.stmt) -> set[str]:
    """Return the names that a loop binds; what an earlier loop has bound to them has nothing to do with it."""
    if not isinstance(statement, ast.For):
        return set()
    read_before = {node.id for node in ast.walk(statement.iter) if isinstance(node, ast.Name)}
    return bound_names([statement]) - read_before


def _own_imports(statement: ast.stmt) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a statement outside of functions and classes."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield statement
    elif not isinstance(statement, DEFINITIONS):
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, (ast.stmt, ast.ExceptHandler)):
                yield from _own_imports(child)  # pyright: ignore[reportArgumentType]
