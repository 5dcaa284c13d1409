"""`mlhood doctor`: each trial on a machine that lacks it, the verdicts, and the report in 80 columns."""

from __future__ import annotations

import io
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
from mlhood.doctor import libraries, surroundings
from mlhood.doctor.examination import Examination, settle
from mlhood.doctor.finding import ABILITIES, Ability, Finding, judge
from mlhood.doctor.report import print_report
from mlhood.grading.sandbox import bubblewrap
from mlhood.measure import machine

NEEDED = sorted({name for ability in ABILITIES for name in ability.needs})
REQUIRED = {"libraries", "disk", "local port"}


def findings(broken: str = "") -> tuple[Finding, ...]:
    return tuple(
        Finding(name, name != broken, f"{name} was tried", f"repair the {name}", name in REQUIRED) for name in NEEDED
    )


def examination(broken: str = "") -> Examination:
    return Examination(machine(), findings(broken))


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# -- libraries


def test_a_version_is_compared_with_the_one_asked_for():
    asked = [Requirement("torch==2.13.0"), Requirement("numpy>=2.2")]
    have = {"torch": "2.13.0+cpu", "numpy": "2.4.6"}
    assert libraries.unmet(asked, have.__getitem__) == []
    assert libraries.unmet(asked, {**have, "torch": "2.12.0"}.__getitem__) == [
        "torch is 2.12.0, but ==2.13.0 is needed"
    ]


def test_a_missing_library_is_named():
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert libraries.unmet([Requirement("netron>=9")], version) == ["not installed: netron"]


def test_what_only_the_tests_need_is_told_from_what_all_need():
    always = {one.name for one in libraries.required()}
    extra = {one.name for one in libraries.required("test")}
    assert "torch" in always
    assert "hypothesis" in extra
    assert not always & extra


def test_a_module_that_loads_has_no_failure():
    assert libraries.load_failure("json") is None


def test_a_module_that_raises_is_reported_with_its_last_line(tmp_path, monkeypatch):
    (tmp_path / "spoilt.py").write_text("raise ImportError('no libmissing.so')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert libraries.load_failure("spoilt") == "spoilt does not load (ImportError: no libmissing.so)"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_module_that_kills_its_process_is_reported_and_kills_nothing_else(tmp_path, monkeypatch):
    body = "import os, signal\nos.kill(os.getpid(), signal.SIGILL)"
    (tmp_path / "deadly.py").write_text(body, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert libraries.load_failure("deadly") == "deadly does not load (its process ends with SIGILL)"


def test_the_libraries_are_one_required_finding():
    with ThreadPoolExecutor(2) as executor:
        found = libraries.libraries(executor, modules={"json": "numpy", "no_module_has_this_name": "numpy"})
    assert found.required
    assert not found.works
    assert "no_module_has_this_name does not load" in found.says
    assert "README" in found.todo


def test_a_library_that_is_not_installed_is_named_once():
    with ThreadPoolExecutor(2) as executor:
        found = libraries.libraries(executor, modules={"no_module_has_this_name": "no-library-has-this-name"})
    assert "does not load" not in found.says


# -- surroundings


def test_no_browser_says_how_to_get_one():
    found = surroundings.browser(None)
    assert not found.works
    assert not found.required
    assert "apt-get install chromium" in found.todo


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_a_browser_that_does_not_start_is_not_taken_for_one(tmp_path):
    found = surroundings.browser(program(tmp_path, "chromium", "echo missing library >&2; exit 127"))
    assert not found.works
    assert "does not start" in found.says


def test_a_wrong_choice_of_browser_is_named(monkeypatch):
    monkeypatch.setenv("MLHOOD_BROWSER", "no-program-has-this-name")
    found = mlhood.doctor.examination._browser()
    assert not found.works
    assert "MLHOOD_BROWSER does not name a program" in found.says


@pytest.mark.browser
def test_the_browser_of_this_machine_starts():
    from mlhood.exchange import find_browser

    path = find_browser()
    if path is None:
        pytest.skip("no browser on this machine")
    found = surroundings.browser(path)
    assert found.works, found.says


@pytest.mark.parametrize("problem", ["", "bubblewrap (bwrap) was not found"])
def test_the_sandbox_is_what_the_grader_would_say_of_it(monkeypatch, problem):
    monkeypatch.setattr(bubblewrap, "problem", lambda: problem)
    monkeypatch.setattr(bubblewrap, "advice", lambda: "get it")
    found = surroundings.sandbox()
    assert found.works is not bool(problem)
    assert not found.required
    assert (found.says, found.todo) == (problem, "get it") if problem else not found.todo


def test_a_full_disk_is_reported_in_words(tmp_path):
    found = surroundings.disk(tmp_path, needed=2**70)
    assert not found.works
    assert found.required
    assert "free" in found.says
    assert surroundings.disk(tmp_path, needed=1).works


def test_a_folder_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(surroundings.tempfile, "TemporaryFile", refuse)
    found = surroundings.disk(tmp_path, needed=1)
    assert not found.works
    assert "not writable" in found.says


def test_a_port_of_this_machine_opens():
    assert surroundings.local_port().works


def test_a_closed_port_is_reported(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(surroundings.socket, "create_server", refuse)
    found = surroundings.local_port()
    assert not found.works
    assert "127.0.0.1" in found.says


# -- what follows


def test_a_trial_that_breaks_is_a_finding():
    def broken() -> Finding:
        raise ImportError("no module named torch")

    found = settle("browser", False, broken)
    assert (found.name, found.works, found.required) == ("browser", False, False)
    assert "no module named torch" in found.says


def test_an_ability_works_only_if_all_it_needs_works():
    abilities = (Ability("draw", ("libraries", "browser")), Ability("run", ("libraries",)))
    draw, run = judge(findings(broken="browser"), abilities)
    assert (draw.works, run.works) == (False, True)
    assert draw.because == "needs what does not work: browser"
    assert draw.todo == "repair the browser"


@pytest.mark.parametrize("broken", ["", *NEEDED])
def test_only_required_parts_make_the_machine_unfit(broken):
    assert examination(broken).healthy == (broken not in REQUIRED)


def test_the_data_form_is_json_and_says_the_same():
    data = json.loads(json.dumps(examination("browser").as_dict()))
    assert data["healthy"] is True
    drawing = next(ability for ability in data["abilities"] if "PDF" in ability["name"])
    assert drawing["works"] is False


# -- the report


@pytest.mark.parametrize("broken", ["", *NEEDED])
def test_the_report_fits_80_columns_and_needs_no_colour(broken, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    page = io.StringIO()
    print_report(examination(broken), page)
    text = page.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "✓ works" in text
    assert ("✗ does not" in text) == bool(broken)
    assert not broken or f"repair the {broken}" in " ".join(text.split())


def test_a_terminal_without_the_marks_still_gets_words():
    page = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    print_report(examination("browser"), page)
    page.flush()
    text = page.buffer.getvalue().decode("cp1252")
    assert "+ works" in text
    assert "- does not" in text


@pytest.mark.parametrize(("broken", "code"), [("", 0), ("browser", 0), ("libraries", 1)])
def test_the_command_ends_with_the_right_code(broken, code, monkeypatch):
    monkeypatch.setattr(mlhood.doctor, "examine", lambda: examination(broken))
    assert CliRunner().invoke(cli.app, ["doctor"]).exit_code == code
    answer = CliRunner().invoke(cli.app, ["doctor", "--json"])
    assert answer.exit_code == code
    assert json.loads(answer.stdout)["healthy"] == (code == 0)


def test_a_whole_examination_of_this_machine_answers_every_ability():
    found = mlhood.doctor.examine()
    assert {finding.name for finding in found.findings} == set(NEEDED)
    assert len(found.verdicts) == len(ABILITIES)
