"""Which package may import which: the contracts of import-linter in pyproject.toml; no cycles of modules."""

from __future__ import annotations

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]


def test_the_package_keeps_its_layers():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_modules_import_each_other():
    """Also in functions and for type checking: a cycle is an error."""
    graph = grimp.build_graph("mlhood", cache_dir=None)
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).prepare()


def test_a_module_is_named_after_what_it_does():
    assert list((ROOT / "mlhood").rglob("utils.py")) == []


def test_importing_the_package_loads_no_other_module_of_it():
    code = "import sys, mlhood; print([name for name in sys.modules if name.startswith('mlhood.')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
