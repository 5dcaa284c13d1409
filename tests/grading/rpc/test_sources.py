"""What of our modules is sent to a student's process, and that it leaves nothing there."""

from __future__ import annotations

import ast
import linecache
import sys

import pytest

from mlhood.grading.rpc.codec import decode, encode
from mlhood.grading.rpc.server import handle_request
from mlhood.grading.rpc.sources import ROOT, is_sent, sources_of

PROBES = sorted((ROOT / "mlhood" / "grading").rglob("probes*.py"))
EMPTY_CALL = "mlhood.grading.checks.probes:empty_call"


def imported_from_grading(text: str) -> set[str]:
    return {
        name
        for node in ast.walk(ast.parse(text))
        for name in [node.module if isinstance(node, ast.ImportFrom) else "", *_names(node)]
        if name and is_sent(name)
    }


def _names(node: ast.AST) -> list[str]:
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


@pytest.mark.parametrize("path", PROBES, ids=[f"{path.parent.name}-{path.stem}" for path in PROBES])
def test_every_probe_can_be_sent_with_all_that_it_imports_from_grading(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    functions = [part.name for part in ast.parse(path.read_text()).body if isinstance(part, ast.FunctionDef)]
    assert functions
    for function in functions:
        sources = sources_of(f"{module}:{function}")
        before: set[str] = set()
        for name, text in sources.items():
            assert imported_from_grading(text) <= before
            before.add(name)
        assert f"def {function}(" in sources[module]


def test_a_probe_comes_without_the_others_of_its_module():
    sources = sources_of("mlhood.grading.projects.p5.probes:run_resnet")
    assert list(sources) == ["mlhood.grading.checks.probes", "mlhood.grading.projects.p5.probes"]
    assert "def patched_globals(" in sources["mlhood.grading.checks.probes"]
    assert "def empty_call(" not in sources["mlhood.grading.checks.probes"]
    assert "small_loss" not in sources["mlhood.grading.projects.p5.probes"]


def test_targets_of_the_package_and_the_library_are_not_sent():
    assert sources_of("os:getcwd") == sources_of("mlhood.kernels.conv:im2col_blas") == {}
    assert not is_sent("mlhood.grading.rpc.server")


@pytest.mark.parametrize("target", ["checks.probes:absent", "checks.absent:f", "projects:PROJECTS"])
def test_what_cannot_be_sent_is_an_error(target):
    with pytest.raises(LookupError, match="cannot be sent"):
        sources_of(f"mlhood.grading.{target}")


def test_a_request_executes_its_own_text_and_forgets_it():
    """Whatever the student's process has put in the place of the module before."""
    replaced = type(sys)("mlhood.grading.checks.probes")
    replaced.empty_call = lambda *arguments: "forged"  # type: ignore[attr-defined]
    request = {"target": EMPTY_CALL, "method": None, "call": True, "args": (2,), "kwargs": {}}
    message = encode(request | {"sources": sources_of(EMPTY_CALL)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "mlhood.grading.checks.probes", replaced)
        assert decode(handle_request(message, {}))["value"].tolist() == [0, 0]
        assert sys.modules["mlhood.grading.checks.probes"] is replaced
        patch.delitem(sys.modules, "mlhood.grading.checks.probes")
        assert decode(handle_request(message, {}))["value"].tolist() == [0, 0]
        assert "mlhood.grading.checks.probes" not in sys.modules
    assert not [name for name in linecache.cache if name.startswith("<mlhood")]
