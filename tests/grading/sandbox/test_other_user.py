"""A kernel as another user: its rights, its processes, and the transfer of its files. Needs root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.rpc.codec import decode, encode
from mlhood.grading.rpc.sources import sources_of
from mlhood.grading.rpc.transport import InvalidFile
from mlhood.grading.sandbox import other_user
from tests.waiting import PATIENCE, wait_until

if not sys.platform.startswith("linux"):
    pytest.skip("another user needs Linux", allow_module_level=True)

from mlhood.grading.sandbox.other_user import OtherUserKernel
from mlhood.grading.sandbox.visible import VISIBLE, close_to_others, package

EMPTY_CALL = "mlhood.grading.checks.probes:empty_call"


@pytest.fixture
def kernel(open_python, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", open_python)
    with OtherUserKernel(tmp_path) as kernel:
        yield kernel


def run(kernel, source):
    """Run a cell, which must not fail, and return what it prints."""
    cell = new_code_cell(source)
    outcome = kernel.run(cell, PATIENCE)
    assert not outcome.error
    return "".join(output.get("text", "") for output in cell.outputs).strip()


def call(kernel, target, *args):
    request = {"target": target, "call": True, "method": None, "args": args, "kwargs": {}}
    return decode(kernel.send(encode(request), PATIENCE))["value"]


def processes_of(user):
    """The running processes of a user, without zombies."""
    return {
        process.pid
        for process in psutil.process_iter(["uids", "status"])
        if process.info["uids"].real == user and process.info["status"] != psutil.STATUS_ZOMBIE
    }


def ended(processes, user):
    return wait_until(lambda: not processes & processes_of(user))


def test_it_has_neither_rights_nor_environment_of_the_grader(kernel, monkeypatch, tmp_path):
    printed = run(kernel, "import os; print(os.getuid(), os.getgid(), os.getgroups(), sorted(os.environ))")
    uid = printed.split()[0]
    assert printed.startswith((f"{uid} {uid} []", f"{uid} {uid} [{uid}]"))
    assert int(uid) >= other_user.FIRST_ID
    assert "PYTEST_CURRENT_TEST" not in printed
    status = run(kernel, "print(open('/proc/self/status').read())")
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status
    assert run(kernel, f"import os; print(os.access({str(tmp_path)!r}, os.R_OK))") == "False"


def test_a_file_of_the_notebook_is_fetched_again_when_it_changes(kernel, tmp_path):
    for text in ("first", "second"):
        run(kernel, f"open('answer.txt', 'w').write({text!r})")
        kernel.fetch(tmp_path / "answer.txt")
        assert (tmp_path / "answer.txt").read_text() == text
    run(kernel, "import os; os.remove('answer.txt')")
    kernel.fetch(tmp_path / "answer.txt")
    assert not (tmp_path / "answer.txt").exists()


def test_a_link_to_a_file_of_the_grader_is_not_followed(kernel, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    run(kernel, f"import os; os.symlink({str(secret)!r}, 'answer.txt'); os.symlink({str(tmp_path)!r}, 'folder')")
    for name in ("answer.txt", "folder/secret"):
        with pytest.raises(InvalidFile):
            kernel.fetch(tmp_path / name)
    run(kernel, f"import os; os.symlink({str(secret)!r}, {str(kernel.scratch / 'written')!r})")
    with pytest.raises(InvalidFile):
        kernel.fetch(kernel.scratch / "written")
    assert secret.read_text() == "secret"


def test_a_fetched_file_cannot_be_replaced_and_is_given_back(kernel):
    path = kernel.scratch / "written"
    run(kernel, f"def write(text): open({str(path)!r}, 'w').write(text); return text")
    assert call(kernel, "write", "first") == "first"
    kernel.fetch(path)
    replace = (
        f"import os\ntry:\n    os.remove({str(path)!r})\nexcept OSError as error:\n    print(type(error).__name__)"
    )
    assert run(kernel, replace) == "PermissionError"
    assert path.read_text() == "first"
    assert call(kernel, "write", "second") == "second"
    kernel.fetch(path)
    assert path.read_text() == "second"


def test_its_folders_cannot_be_replaced(kernel):
    for folder in (kernel.scratch, kernel.scratch.parent / "work"):
        printed = run(
            kernel,
            f"import os\ntry:\n    os.rename({str(folder)!r}, {str(folder) + '2'!r})\nexcept OSError as error:\n"
            "    print(type(error).__name__)",
        )
        assert printed == "PermissionError"


def test_a_kernel_that_dies_is_replaced_and_its_processes_are_killed(kernel):
    user = int(run(kernel, "import os; print(os.getuid()); kept = 7"))
    sleep = "import time; time.sleep(600)"
    run(kernel, f"import subprocess as s, sys; s.Popen([sys.executable, '-c', {sleep!r}], start_new_session=True)")
    before = processes_of(user)
    assert len(before) > 1
    assert not kernel.run(new_code_cell("import os; os._exit(1)"), PATIENCE).alive
    assert run(kernel, "print(kept)") == "7"
    assert ended(before, user)


def test_a_process_that_forks_without_end_is_killed(open_python, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", open_python)
    fork = "import os\nos.setsid()\nwhile True:\n    os.fork() and os._exit(0)"
    with OtherUserKernel(tmp_path) as kernel:
        base = kernel.scratch.parent
        user = int(run(kernel, "import os; print(os.getuid())"))
        run(kernel, f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {fork!r}])")
        assert processes_of(user)
    assert wait_until(lambda: not processes_of(user))
    assert not base.exists()


def test_it_needs_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert other_user.problem() == "only root can run code as another user"


def test_a_readable_file_is_not_hidden(open_python, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", open_python)
    assert "it can read what is hidden" in other_user.problem([Path("/etc")])
    assert other_user.problem([tmp_path]) == ""


@pytest.fixture
def restored_modes():
    """All files and folders of grading are readable, whatever ran before, and their rights are restored."""
    before = {path: path.stat().st_mode & 0o777 for path in (package() / "grading").rglob("*")}
    for path, mode in before.items():
        path.chmod(mode | (0o555 if path.is_dir() else 0o444))
    yield
    for path, mode in before.items():
        path.chmod(mode)


def test_checks_and_answers_can_be_closed_to_other_users(restored_modes, kernel):
    folder = package() / "grading"
    files = [str(path) for path in folder.rglob("*") if path.is_file()]
    readable = f"import os; print([path for path in {files!r} if os.access(path, os.R_OK)])"
    assert str(folder / "projects" / "p1" / "reference.py") in run(kernel, readable)
    assert close_to_others() == ""
    assert run(kernel, readable) == repr([path for path in files if str(Path(path).relative_to(folder)) in VISIBLE])
    for name in ("projects.p1.reference", "checks.probes", "rpc.transport"):
        outcome = kernel.run(new_code_cell(f"import mlhood.grading.{name}"), PATIENCE)
        assert outcome.error.startswith(("ModuleNotFoundError", "PermissionError"))
    assert os.access(folder / "projects" / "p1" / "reference.py", os.R_OK)
    assert "do nothing here" in run(kernel, "import mlhood; mlhood.progress()")
    probe = encode(
        {"target": EMPTY_CALL, "call": True, "method": None, "args": ([1],), "kwargs": {}}
        | {"sources": sources_of(EMPTY_CALL)}
    )
    assert decode(kernel.send(probe, PATIENCE))["value"].tolist() == [0]
