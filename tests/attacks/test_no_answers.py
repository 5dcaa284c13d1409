"""Neither checks nor answers are in the sandbox, and what a request brings of them does not stay there."""

from __future__ import annotations

import py_compile
from pathlib import Path

import mlhood
from mlhood.grading.sandbox.visible import VISIBLE

PACKAGE = Path(mlhood.__file__).resolve().parent
GRADING = PACKAGE / "grading"
CAN_READ = """
import importlib, os

def can_read(paths):
    return [path for path in paths if os.path.isfile(path) and os.access(path, os.R_OK)]

def can_import(names):
    imported = []
    for name in names:
        try:
            importlib.import_module(name)
            imported.append(name)
        except ImportError:
            pass
    return imported
"""
HIDDEN_MODULES = (
    *("projects.p1.reference", "projects.p1", "projects", "projects.p5.probes", "checks.probes", "checks.expect"),
    *("checks.marks", "student.check", "rpc.sources", "rpc.transport", "notebooks.source_notebook", "sandbox.visible"),
)


def files_of_grading() -> dict[str, str]:
    """All files that exist now, compiled ones among them, by path relative to the folder."""
    return {str(path.relative_to(GRADING)): str(path) for path in GRADING.rglob("*") if path.is_file()}


def test_only_the_kernels_side_of_requests_can_be_read_or_imported(shared):
    py_compile.compile(str(GRADING / "projects" / "p1" / "reference.py"))
    files = files_of_grading()
    answers = {"projects/p1/cells.json", "projects/p1/solutions.json", "projects/p1/variants.json"}
    assert {*answers, "checks/probes.py", *VISIBLE} <= set(files)
    assert any(name.startswith("projects/p1/__pycache__/reference.") for name in files)
    shared.run(CAN_READ)
    assert shared.eval(f"can_read({list(files.values())!r})") == repr([files[n] for n in files if n in VISIBLE])
    assert shared.eval(f"sorted(os.listdir({str(GRADING)!r}))") == "['__init__.py', 'rpc', 'sandbox']"
    names = [f"mlhood.grading.{name}" for name in HIDDEN_MODULES]
    assert shared.eval(f"can_import({names!r})") == "[]"
    for folder in ("tests", ".git", "P1.ipynb", ".github"):
        assert shared.eval(f"os.path.exists({str(PACKAGE.parent / folder)!r})") == "False"
    assert shared.eval(f"open({str(GRADING / 'planted.py')!r}, 'w')") == "OSError"


def test_a_probe_runs_and_nothing_of_it_remains(shared):
    shared.run(
        "import sys, linecache\n"
        "def inside(): return sorted(name for name in sys.modules if name.startswith('mlhood.grading.projects'))\n"
        "def remains(): return [n for n in (*sys.modules, *linecache.cache) if '.projects.' in n or '.checks.' in n]"
    )
    probe = "mlhood.grading.projects.p2.probes:attempt"
    report = shared.submission.call(probe, shared.submission.value("inside"), ())
    assert report == {"returned": ["mlhood.grading.projects.p2.probes"]}
    assert shared.eval("remains()") == "[]"
    shared.submission.call(probe, shared.submission.value("inside"), (1,))
    assert shared.eval("remains()") == "[]"


def test_a_forged_module_is_not_used_in_place_of_a_probe(shared):
    shared.run(
        "import sys, types\nforged = sys.modules['mlhood.grading.checks.probes'] = types.ModuleType('forged')\n"
        "forged.empty_call = lambda *arguments: 'forged'"
    )
    assert shared.submission.call("mlhood.grading.checks.probes:empty_call", [1]).tolist() == [0]
    shared.run("del sys.modules['mlhood.grading.checks.probes']")


def test_check_and_progress_say_that_they_do_nothing(shared):
    shared.run("import mlhood")
    for call in ("check('P1.1')", "check('P1.1', namespace={})", "progress()"):
        assert shared.eval(f"mlhood.{call}").startswith("mlhood.check, mlhood.hint and mlhood.progress do nothing here")
    shared.run("def runs(*words): return subprocess.run([sys.executable, *words], capture_output=True).stderr")
    assert shared.eval("runs('-c', 'from mlhood.cli import main; main()', 'cluster', '--help')") == "b''"
    assert shared.eval("runs('-m', 'pytest', '--version')") == "b''"
