"""`mlhood doctor`: each check on a machine that fails it, the verdicts, and the report in 80 columns."""

from __future__ import annotations

import json
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

import mlhood.doctor
from mlhood import cli
from mlhood.doctor import environment
from mlhood.doctor.environment import PURPOSES, Finding
from mlhood.doctor.examination import Examination, finding_or_error, print_report
from mlhood.grading.sandbox import bubblewrap
from mlhood.measure import machine

ROOT = Path(__file__).parents[2]
REQUIRED = {"libraries", "disk", "local port"}


def findings(broken: str = "") -> tuple[Finding, ...]:
    return tuple(Finding(name, name != broken, f"{name} was checked", f"repair the {name}") for name in PURPOSES)


def examination(broken: str = "") -> Examination:
    return Examination(machine(), findings(broken))


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# -- libraries


def test_a_version_is_compared_with_the_required_one():
    required = [Requirement("torch==2.13.0"), Requirement("numpy>=2.2")]
    installed = {"torch": "2.13.0+cpu", "numpy": "2.4.6"}
    assert environment.unmet(required, installed.__getitem__) == []
    assert environment.unmet(required, {**installed, "torch": "2.12.0"}.__getitem__) == [
        "torch is 2.12.0, but ==2.13.0 is needed"
    ]


def test_a_missing_library_is_named():
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert environment.unmet([Requirement("netron>=9")], version) == ["not installed: netron"]


def test_requirements_of_the_tests_are_separate():
    always = {requirement.name for requirement in environment.requirements()}
    extra = {requirement.name for requirement in environment.requirements("test")}
    assert "torch" in always
    assert "hypothesis" in extra
    assert not always & extra


def test_a_module_that_raises_is_reported_with_its_last_line(tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("raise ImportError('no libmissing.so')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert environment.import_error("broken_module") == "broken_module does not load (ImportError: no libmissing.so)"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_module_that_kills_its_process_is_reported_and_kills_nothing_else(tmp_path, monkeypatch):
    body = "import os, signal\nos.kill(os.getpid(), signal.SIGILL)"
    (tmp_path / "fatal_module.py").write_text(body, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert environment.import_error("fatal_module") == "fatal_module does not load (its process ends with SIGILL)"


def test_the_libraries_are_one_required_finding():
    with ThreadPoolExecutor(2) as executor:
        finding = environment.libraries(executor, modules={"json": "numpy", "no_module_has_this_name": "numpy"})
    assert finding.required
    assert not finding.works
    assert "no_module_has_this_name does not load" in finding.message
    assert "README" in finding.todo


def test_a_library_that_is_not_installed_is_named_once():
    with ThreadPoolExecutor(2) as executor:
        finding = environment.libraries(executor, modules={"no_module_has_this_name": "no-library-has-this-name"})
    assert "does not load" not in finding.message


# -- environment


def test_a_missing_browser_comes_with_instructions():
    finding = environment.browser(None)
    assert not finding.works
    assert not finding.required
    assert "apt-get install chromium" in finding.todo


@pytest.mark.skipif(sys.platform == "win32", reason="the fake browser is a shell script")
def test_a_browser_that_does_not_start_is_not_taken_for_one(tmp_path):
    finding = environment.browser(program(tmp_path, "chromium", "echo missing library >&2; exit 127"))
    assert not finding.works
    assert "does not start" in finding.message


def test_a_wrong_choice_of_browser_is_named(monkeypatch):
    monkeypatch.setenv("MLHOOD_BROWSER", "no-program-has-this-name")
    finding = mlhood.doctor.examination._browser()
    assert not finding.works
    assert "MLHOOD_BROWSER does not name an executable" in finding.message


@pytest.mark.browser
def test_the_browser_of_this_machine_starts():
    from mlhood.exchange import find_browser

    path = find_browser()
    if path is None:
        pytest.skip("no browser on this machine")
    finding = environment.browser(path)
    assert finding.works, finding.message


def test_missing_tools_for_webassembly_come_with_instructions(monkeypatch):
    monkeypatch.setenv("PATH", "")
    finding = mlhood.doctor.examination._webassembly()
    assert not finding.works
    assert "not installed" in finding.message
    assert "apt-get install clang lld" in finding.todo


@pytest.mark.parametrize("problem", ["", "bubblewrap (bwrap) was not found"])
def test_the_finding_on_the_sandbox_is_the_graders(monkeypatch, problem):
    monkeypatch.setattr(bubblewrap, "problem", lambda: problem)
    monkeypatch.setattr(bubblewrap, "advice", lambda: "get it")
    finding = environment.sandbox()
    assert finding.works is not bool(problem)
    assert not finding.required
    assert (finding.message, finding.todo) == (problem, "get it") if problem else not finding.todo


def test_a_full_disk_is_reported(tmp_path):
    finding = environment.disk(tmp_path, needed=2**70)
    assert not finding.works
    assert finding.required
    assert "free" in finding.message
    assert environment.disk(tmp_path, needed=1).works


def test_a_folder_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(environment.tempfile, "TemporaryFile", refuse)
    finding = environment.disk(tmp_path, needed=1)
    assert not finding.works
    assert "not writable" in finding.message


def test_a_closed_port_is_reported(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(environment.socket, "create_server", refuse)
    finding = environment.local_port()
    assert not finding.works
    assert "127.0.0.1" in finding.message


# -- what follows


def test_an_exception_in_a_check_is_a_finding():
    def broken() -> Finding:
        raise ImportError("no module named torch")

    finding = finding_or_error("browser", broken)
    assert (finding.name, finding.works, finding.required) == ("browser", False, False)
    assert "no module named torch" in finding.message


@pytest.mark.parametrize("broken", ["", *PURPOSES])
def test_only_required_parts_make_the_machine_unhealthy(broken):
    assert examination(broken).healthy == (broken not in REQUIRED)


def test_the_examination_is_json_serializable():
    data = json.loads(json.dumps(examination("browser").as_dict()))
    assert data["healthy"] is True
    drawing = next(finding for finding in data["findings"] if "PDF" in finding["needed_for"])
    assert drawing["works"] is False


# -- the report


@pytest.mark.parametrize("broken", ["", *PURPOSES])
def test_the_report_fits_80_columns_and_needs_no_colour(broken, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    print_report(examination(broken))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "works: " in text
    assert ("does not work" in text) == bool(broken)
    assert not broken or PURPOSES[broken] in " ".join(text.split())
    assert not broken or f"repair the {broken}" in " ".join(text.split())


@pytest.mark.parametrize(("broken", "code"), [("", 0), ("browser", 0), ("libraries", 1)])
def test_the_command_exits_with_the_right_code(broken, code, monkeypatch):
    monkeypatch.setattr(mlhood.doctor, "examine", lambda: examination(broken))
    assert CliRunner().invoke(cli.app, ["doctor"]).exit_code == code
    result = CliRunner().invoke(cli.app, ["doctor", "--json"])
    assert result.exit_code == code
    assert json.loads(result.stdout)["healthy"] == (code == 0)


def test_an_examination_of_this_machine_makes_every_check():
    assert {finding.name for finding in mlhood.doctor.examine().findings} == set(PURPOSES)
