"""Which package may import which, no cycles, and what no module does; proved on a tree that breaks each rule."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "mlhood"

# room -> the rooms it may use, besides those in LEAVES; a room inside a room has a row of its own
LEAVES = {"errors", "files", "measure", "plotting"}
PLAN: dict[str, set[str]] = {
    "errors": set(),
    "files": {"errors"},
    "plotting": {"errors"},
    "measure": {"errors", "files", "plotting"},
    "graph_drawing": set(),
    "models": set(),
    "exchange": {"models"},
    "compiler": {"exchange", "models", "graph_drawing"},
    # the neural processor's part of a graph is drawn
    "compiler.backends": {"exchange", "models", "compiler", "kernels", "kernels.codegen", "graph_drawing"},
    # profiles and reports run graphs on the interpreter
    "compiler.quantize": {"exchange", "models", "compiler", "compiler.backends"},
    # the compiler's entry points choose what runs a graph, which no pass and no operator may
    "compiler.compile": {"exchange", "compiler", "compiler.quantize", "compiler.backends"},
    # it runs graphs on the interpreter, and draws where a target differs
    "compiler.analysis": {"compiler", "compiler.backends", "graph_drawing"},
    # it imports, optimises and runs what torch captures
    "compiler.torch_compile": {"exchange", "compiler", "compiler.backends"},
    # whole models, against other libraries
    "compiler.bench": {"models", "exchange", "compiler", "compiler.backends", "compiler.quantize", "compiler.compile"},
    # from a model to files: the pipeline, then the writers of C
    "compiler.bundle": {"models", "exchange", "compiler", "compiler.quantize", "compiler.backends"}
    | {"compiler.compile"},
    "compiler.nmp_commands": {"compiler", "compiler.backends"},
    "compiler.commands": {"exchange", "graph_drawing", "compiler", "compiler.backends", "compiler.quantize"}
    | {"compiler.compile", "compiler.analysis", "compiler.bundle", "compiler.nmp_commands"},
    # the cache of object code digests this package and the package of the generator
    "kernels.codegen": set(),
    "kernels": {"kernels.codegen"},
    "gpu": set(),
    "dataflow": {"kernels", "kernels.codegen"},
    "dataflow.systolic": {"exchange"},
    "dataflow.commands": {"dataflow", "dataflow.systolic", "kernels.codegen"},
    "dataflow.sliced": {"kernels", "kernels.codegen", "dataflow"},
    "jaxlab": {"kernels", "compiler", "graph_drawing"},
    # the baselines are the course's torch model and its exported ONNX file
    "jaxlab.bench": {"models", "exchange", "kernels", "jaxlab"},
    # pages are looked at in the browser that draws graphs
    "notebook_view": {"exchange"},
    # the doctor tries the sandbox in the way in which the grader uses it
    "doctor": {"exchange", "grading.sandbox"},
    # the command line and the pytest plugin; a room of grading uses those before it
    "grading": {
        "grading.variants",
        "grading.projects",
        "grading.checks",
        "grading.notebooks",
        "grading.execution",
        "grading.reports",
        "grading.student",
        "grading.overhead",
        "grading.progress",
        "run",
        "notebook_view",
    },
    "run": {"grading.variants", "grading.checks", "grading.projects", "grading.notebooks", "grading.execution"}
    | {"grading.reports", "notebook_view"},
    "grading.overhead": {"grading.checks", "grading.notebooks", "grading.execution", "grading.sandbox"},
    # the command line of bubblewrap, in which parsers run
    "grading.rpc": {"compiler", "grading.sandbox"},
    "grading.variants": set(),
    "grading.bare": {"grading.rpc"},
    "grading.progress": {"grading.execution"},
    "grading.checks": {
        "grading.variants",
        "compiler",
        "compiler.backends",
        "compiler.quantize",
        "jaxlab",
        "grading.rpc",
        "grading.bare",
    },
    "grading.projects": {
        "models",
        "exchange",
        "compiler",
        "compiler.backends",
        "compiler.compile",
        "compiler.quantize",
        "kernels",
    }
    | {"dataflow", "dataflow.sliced", "dataflow.systolic", "gpu", "jaxlab", "grading.rpc", "grading.checks"}
    | {"grading.variants", "grading.bare"},
    "grading.notebooks": {"grading.variants", "grading.checks", "grading.projects"},
    "grading.execution": {"grading.rpc", "grading.variants", "grading.checks", "grading.projects", "grading.notebooks"}
    | {"grading.bare"},
    "grading.sandbox": {"grading.rpc", "grading.bare", "grading.execution", "grading.checks"},
    "grading.student": {"grading.rpc", "grading.variants", "grading.checks", "grading.projects", "grading.notebooks"}
    | {"grading.bare", "grading.execution", "grading.reports", "grading.gradebook"},
    "grading.intake": set(),
    "grading.gradebook": {"grading.variants", "grading.checks", "grading.notebooks", "grading.intake"},
    "grading.exporters": {"grading.projects", "grading.checks", "grading.intake", "grading.gradebook"}
    | {"grading.reports"},
    "grading.similarity": {"grading.projects", "grading.notebooks", "grading.gradebook"},
    "grading.reports": {"grading.rpc", "grading.checks", "grading.notebooks", "grading.execution", "grading.gradebook"}
    | {"grading.similarity", "grading.projects", "grading.progress"},
    "grading.marking": {
        "grading.checks",
        "grading.notebooks",
        "grading.intake",
        "grading.gradebook",
        "grading.reports",
    },
    # a batch uses the course in its workers only
    "grading.batch": {"grading.checks", "grading.projects", "grading.notebooks", "grading.execution"}
    | {"grading.rpc", "grading.sandbox", "grading.intake", "grading.gradebook", "grading.variants", "grading.progress"},
    "grading.gradescope": {"grading.checks", "grading.projects", "grading.notebooks", "grading.execution"}
    | {"grading.sandbox", "grading.intake", "grading.gradebook", "grading.batch", "grading.exporters"},
    "grading.class_commands": {"grading.gradebook", "grading.batch", "grading.exporters", "grading.marking"}
    | {"grading.reports", "grading.variants", "grading.progress"},
    "bench_commands": {"kernels", "dataflow.sliced", "jaxlab.bench", "compiler.backends", "compiler.bench"},
    # it imports the modules of commands by their names
    "cli": {"exchange", "doctor"},
    "__main__": {"cli"},
    # the package itself: `mlhood.check` in a notebook, loaded when it is called
    "": {"exchange", "compiler", "compiler.compile", "grading.student"},
}


@dataclass(frozen=True)
class Import:
    """One import: the module it names, its line, and whether it runs when the importing module is loaded."""

    target: str
    line: int
    at_load: bool


@dataclass(frozen=True)
class Module:
    """A module of the package: dotted name, path and syntax tree."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def read_modules(root: Path) -> dict[str, Module]:
    modules = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return modules


def imports(module: Module, modules: dict[str, Module]) -> list[Import]:
    """Return the module's imports of our own modules; `from a import b` names a.b where that is a module."""
    imported = []
    for node, at_load in _walk(module.tree, True):
        if isinstance(node, ast.Import):
            imported += [Import(alias.name, node.lineno, at_load) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            inner = [f"{base}.{alias.name}" for alias in node.names]
            targets = {name if name in modules else base for name in inner}
            imported += [Import(target, node.lineno, at_load) for target in sorted(targets)]
    return [each for each in imported if each.target.split(".")[0] == PACKAGE]


def _walk(node: ast.AST, at_load: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, at_load
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        yield from _walk(child, at_load and not later and not typing_only)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.package.split(".")
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def room(name: str) -> str:
    """Return the row of PLAN a module falls under; for an unknown room, its name."""
    parts = name.split(".")[1:]
    inner = ".".join(parts[:2])
    return inner if inner in PLAN else ".".join(parts[:1])


def directions(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        source = room(module.name)
        if source not in PLAN:
            yield f"{module.path}: room {source!r} has no row in the plan"
            continue
        allowed = PLAN[source] | {source} | (set() if source in LEAVES else LEAVES)
        for imported in imports(module, modules):
            target = room(imported.target)
            if target not in allowed:
                yield f"{module.path}:{imported.line}: {source or PACKAGE} may not use {target or PACKAGE}"
            if not source and imported.at_load:
                yield f"{module.path}:{imported.line}: importing {PACKAGE} must load nothing else"


def cycles(modules: dict[str, Module]) -> list[str]:
    """Return the modules that import each other, also in functions and for type checking."""
    targets = {
        name: {imported.target for imported in imports(module, modules)} & modules.keys() - {name}
        for name, module in modules.items()
    }
    while resolved := [name for name in targets if not targets[name] & targets.keys()]:
        for name in resolved:
            del targets[name]
    return [f"import cycle among {', '.join(sorted(targets))}"] if targets else []


def habits(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if module.path.stem == "utils":
            yield f"{module.path}: a module is named after what it does"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assert):
                yield f"{module.path}:{node.lineno}: assert disappears under -O; raise an error of the family"
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                yield f"{module.path}:{node.lineno}: star import"


def faults(root: Path) -> list[str]:
    modules = read_modules(root)
    return [*directions(modules), *cycles(modules), *habits(modules)]


# -- the package


def test_the_package_follows_the_plan():
    assert faults(ROOT) == []


# -- the test itself


def build(root: Path, files: dict[str, str]) -> Path:
    files = {"mlhood/__init__.py": "", **files}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


SOUND = {
    "mlhood/__init__.py": "def check():\n    from mlhood.grading.student import check\n    return check()\n",
    "mlhood/errors.py": "import json\n",
    "mlhood/measure/__init__.py": "from mlhood.measure.machine import machine\n",
    "mlhood/measure/machine.py": "from mlhood.measure import facts\nfrom mlhood.errors import E\n",
    "mlhood/measure/facts.py": "",
    "mlhood/exchange/__init__.py": "from mlhood.models import lenet\nfrom mlhood.measure import machine\n",
    "mlhood/models/__init__.py": "",
    "mlhood/models/lenet.py": "from ..errors import ModelError\n",
    "mlhood/kernels/gemm.py": "",
    "mlhood/compiler/backends/cpu.py": "from mlhood.kernels import gemm\nfrom mlhood.compiler import lir\n",
    "mlhood/compiler/__init__.py": "",
    "mlhood/compiler/lir.py": "from mlhood.exchange import render\n",
    "mlhood/grading/__init__.py": "",
    "mlhood/grading/projects/__init__.py": "from mlhood.exchange import render\n",
    "mlhood/grading/notebooks/__init__.py": "from mlhood.grading.projects import PROJECTS\n",
    "mlhood/cli.py": "from mlhood.exchange import render\n",
}


def test_a_sound_tree_has_no_faults(tmp_path):
    assert faults(build(tmp_path, SOUND)) == []


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("models/bad.py", "from mlhood.exchange import export", "models may not use exchange"),
        ("models/bad.py", "def f():\n    import mlhood.exchange", "models may not use exchange"),
        ("models/bad.py", "from ..exchange import export", "models may not use exchange"),
        ("exchange/bad.py", "from mlhood import compiler", "exchange may not use compiler"),
        ("exchange/bad.py", "import mlhood.grading.checks.task", "exchange may not use grading"),
        ("kernels/bad.py", "from mlhood.compiler.lir import x", "kernels may not use compiler"),
        ("compiler/passes/bad.py", "from mlhood.kernels import gemm", "compiler may not use kernels"),
        ("compiler/hir/bad.py", "from mlhood.compiler.backends import cpu", "compiler may not use compiler.backends"),
        ("measure/bad.py", "from mlhood.models import lenet", "measure may not use models"),
        ("errors.py", "from mlhood.measure import machine", "errors may not use measure"),
        ("grading/bad.py", "from mlhood.cli import app", "grading may not use cli"),
        ("grading/rpc/bad.py", "from mlhood.grading.checks import task", "grading.rpc may not use grading.checks"),
        ("grading/projects/bad.py", "import mlhood.grading.notebooks", "projects may not use grading.notebooks"),
        ("models/bad.py", "from mlhood import check", "models may not use mlhood"),
        ("__init__.py", "from mlhood.grading import check", "must load nothing else"),
        ("attic/bad.py", "", "room 'attic' has no row"),
        ("models/utils.py", "", "named after what it does"),
        ("models/bad.py", "from numpy import *", "star import"),
        ("models/bad.py", "def f(x):\n    assert x > 0", "assert disappears"),
    ],
)
def test_a_broken_rule_is_found(tmp_path, path, text, fault):
    lines = faults(build(tmp_path, {**SOUND, f"mlhood/{path}": text}))
    assert any(fault in line for line in lines), lines


@pytest.mark.parametrize(
    "source",
    ["import mlhood.models.a", "def f():\n    import mlhood.models.a", "if TYPE_CHECKING:\n    import mlhood.models.a"],
    ids=["at load", "in a function", "for type checking"],
)
def test_a_cycle_is_found(tmp_path, source):
    cycle = {"mlhood/models/a.py": "from mlhood.models.b import x", "mlhood/models/b.py": source}
    assert faults(build(tmp_path, cycle)) == ["import cycle among mlhood.models.a, mlhood.models.b"]
