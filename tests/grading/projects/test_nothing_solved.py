"""No check gives points to a solution in which nothing is solved."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Mapping

import pytest

from mlhood.exchange import lenet_onnx
from mlhood.grading.projects import PROJECTS
from tests.grading.forked_kernel import SUPPORTED, ForkServer
from tests.grading.projects.quick import measure_less, quick_source
from tests.tools.grading.mutation_score import NotebookRun

# What every function of a solution does instead; `first` is its first argument.
BODIES = (
    "return 0",
    "return float('inf')",
    "return None",
    "import copy; return copy.deepcopy(first)",
    "return first * 0",
    "return first + 1",
    "raise ValueError('nothing')",
)


def unsolved(sources: Mapping[str, str], body: str) -> dict[str, str]:
    """Return solution cells, by name, of which only imports, classes, and functions with another body are left."""
    return {name: _unsolved(source, body) for name, source in sources.items()}


def _unsolved(source: str, body: str) -> str:
    kept = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [each.arg for each in node.args.args if each.arg != "self"]
            node.body = ast.parse(f"first = {names[0] if names else None}\n{body}").body
    return ast.unparse(tree)


def test_a_solution_is_emptied():
    source = "import a\nx = 1\nclass C:\n    def f(self, y):\n        return y\n@a.b\ndef g(): return x"
    emptied = "import a\n\nclass C:\n\n    def f(self, y):\n        first = y\n        pass\n\n"
    emptied += "@a.b\ndef g():\n    first = None\n    pass"
    assert unsolved({"cell": source}, "pass") == {"cell": emptied}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROJECTS)
def test_nothing_solved_earns_nothing(name, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "xla"))
    measure_less(monkeypatch.setattr)
    files = (tmp_path / "lenet.onnx",) if name == "P2" else ()  # of P1
    for file in files:
        lenet_onnx(file)
    earned = []
    with (
        ForkServer() if SUPPORTED else contextlib.nullcontext() as kernels,
        NotebookRun(quick_source(name), PROJECTS[name], files, kernels) as run,
    ):
        for task in run.tasks(PROJECTS[name].tasks):
            for body in BODIES:
                checks = task.grade(unsolved(task.solution, body)).checks
                earned += [(task.task.id, check.name, body) for check in checks if check.status != "failed"]
            task.grade(task.solution)  # later cells need it
    assert earned == []
