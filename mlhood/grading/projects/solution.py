"""The functions that the solutions of a notebook define, run by the grader: what they return is right.

The student version has no solutions. It has the results of the calls that checks make for a few seeds.
"""

from __future__ import annotations

import ast
import dis
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from functools import cached_property
from pkgutil import resolve_name
from types import CodeType
from typing import Any

import numpy as np

from mlhood.errors import GradingError
from mlhood.grading.projects.package_files import (
    CELLS_FILE,
    RESULTS_FILE,
    SOLUTIONS_FILE,
    cell_templates,
    package_file,
    read_package_file,
    varied_solutions,
)
from mlhood.grading.rpc.codec import decode, encode
from mlhood.grading.rpc.sources import defined
from mlhood.grading.variants.templates import vary

SEEDS = (0, 1, 2)  # whose results are recorded; the first is that of `mlhood.check`
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


class Solution:
    """Calls the functions that the solutions of a project define.

    A function is defined when it is first called, by the statements of given cells and solutions that define it and
    what it names. It runs as plain Python: compiling a function takes longer than a few calls of it.

    Args:
        project: Its id.
        values: Of its parameters.
    """

    def __init__(self, project: str, values: Mapping[str, Any]) -> None:
        self.project, self.values = project, values
        self._functions: dict[str, Callable[..., Any]] = {}
        self._compiled: dict[str, Callable[..., Any]] = {}

    def __call__(self, name: str, *args: object, probe: str = "", **kwargs: object) -> Any:
        """Call a function of the solutions, or a probe with it (see `Submission.solution`).

        Raises:
            GradingError: There is no such function.
        """
        function = self.function(name)
        return _on_host(resolve_name(probe)(function, *args, **kwargs) if probe else function(*args, **kwargs))

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function of the solutions, as plain Python.

        Raises:
            GradingError: There is no such function.
        """
        if name not in self._functions:
            names = self.names({name})
            names |= {each: value.py_func for each, value in names.items() if hasattr(value, "py_func")}
            self._functions[name] = names[name]
        return self._functions[name]

    def compiled(self, name: str) -> Callable[..., Any]:
        """Return a function that Numba compiles where the notebook says so; it is compiled once, at its first call."""
        if name not in self._compiled:
            self._compiled[name] = self.names({name})[name]
        return self._compiled[name]

    def seed(self, seed: int) -> int:
        """Return the seed that checks draw from: the same."""
        return seed

    def of(self, check: str, seed: int) -> Callable[..., Any]:
        """Return what calls the functions for a check: this."""
        return self

    def names(self, needed: set[str]) -> dict[str, Any]:
        """Execute what defines some names, and return all that is defined by it.

        Raises:
            GradingError: No given cell and no solution defines one of them.
        """
        statements = self._statements
        if missing := needed - {name for _, names, _ in statements for name in names}:
            raise GradingError("no solution defines this name", where=self.project, got=", ".join(sorted(missing)))
        needed = set(needed)
        while more := {name for _, names, used in statements if names & needed for name in used} - needed:
            needed |= more
        body = [statement for statement, names, _ in statements if names & needed]
        defined: dict[str, Any] = {"__name__": f"solutions of {self.project}"}
        exec(compile(ast.Module(body, []), defined["__name__"], "exec"), defined)  # noqa: S102 - the course's own
        return defined

    @cached_property
    def _statements(self) -> list[tuple[ast.stmt, set[str], set[str]]]:
        """The statements that define names, in their order: which ones, and which names they use."""
        statements = []
        templates = cell_templates(self.project)
        solutions = varied_solutions(self.project, self.values)
        for cell in read_package_file(self.project, CELLS_FILE):
            if cell["role"] == "solution":  # all of a task's are one text
                source = solutions.pop(cell["task"], "")
            elif cell["role"] in ("given", "open"):
                source = vary("\n".join(cell["source"]), templates.get(cell["name"], {}), self.values)
            else:
                continue
            code = source.partition("%%writefile")[0]
            for statement in ast.parse(code).body:
                if isinstance(statement, DEFINITIONS):
                    used = _used(compile(ast.Module([statement], []), "", "exec"))
                    statements.append((statement, defined(statement), used))
        return statements


class Recorded:
    """The results of a `Solution`, which stand in a file: those of the same calls, in the same order.

    Args:
        results: For each check and seed, `check_key`.
    """

    def __init__(self, results: Mapping[str, str]) -> None:
        self.results = results

    def seed(self, seed: int) -> int:
        """Return the seed that checks draw from: one of those that results were recorded for."""
        return SEEDS[seed % len(SEEDS)]

    def of(self, check: str, seed: int) -> Callable[..., Any] | None:
        """Return what returns the next result of a check at each call; None for a check that calls no solution."""
        if check_key(check, seed) not in self.results:
            return None
        results = iter(decode(zlib.decompress(b64decode(self.results[check_key(check, seed)]))))
        return lambda name, *args, **kwargs: next(results)


def record(check: str, seed: int, results: list[Any]) -> dict[str, str]:
    """Return an entry of `Recorded`."""
    return {check_key(check, seed): b64encode(zlib.compress(encode(results))).decode()}


def check_key(check: str, seed: int) -> str:
    """Return the key of a check's results: the check is `P3.1 macs_are_counted`."""
    return f"{check} {seed}"


def solution_of(project: str, values: Mapping[str, Any]) -> Solution | Recorded:
    """Return the solutions of a project for these values of its parameters, or what was recorded of them."""
    if package_file(project, SOLUTIONS_FILE).is_file():
        return Solution(project, values)
    return Recorded(read_package_file(project, RESULTS_FILE))


def _on_host(value: Any) -> Any:
    """Return a result with the arrays of JAX as NumPy's, as those of a submission are."""
    if isinstance(value, dict):
        return {key: _on_host(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_on_host, value))
    return np.asarray(value) if type(value).__module__.startswith("jax") and hasattr(value, "__array__") else value


def _used(code: CodeType) -> set[str]:
    """Return the global names that code reads, and the functions that it defines read."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_NAME", "LOAD_GLOBAL")}
    return names.union(*(_used(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
