"""A kernel as another user: what it reaches, what it leaves, and how its files come to us. Needs root."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.submission import BadFile
from mlhood.grading.rpc.codec import decode, encode
from mlhood.grading.sandbox import other_user

if not sys.platform.startswith("linux"):
    pytest.skip("another user needs Linux", allow_module_level=True)

from mlhood.grading.sandbox.other_user_kernel import OtherUserKernel, OtherUsers


@pytest.fixture
def kernel(open_python, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", open_python)
    with OtherUsers().kernel(tmp_path) as kernel:
        assert isinstance(kernel, OtherUserKernel)
        yield kernel


def run(kernel, source, seconds=30):
    """What a cell prints; an error of it is one of the test."""
    cell = new_code_cell(source)
    outcome = kernel.run(cell, seconds)
    assert not outcome.error
    return "".join(output.get("text", "") for output in cell.outputs).strip()


def ask(kernel, target, *args):
    request = {"target": target, "call": True, "method": None, "args": args, "kwargs": {}}
    return decode(kernel.ask(encode(request), 30))["value"]


def of(user):
    """What runs as a user; what has ended and waits to be heard of does not."""
    found = psutil.process_iter(["uids", "status"])
    return {one.pid for one in found if one.info["uids"].real == user and one.info["status"] != psutil.STATUS_ZOMBIE}


def gone(processes, user):
    limit = time.monotonic() + 20
    while processes & of(user) and time.monotonic() < limit:
        time.sleep(0.02)
    return not processes & of(user)


def test_it_has_no_rights_and_no_environment_of_ours(kernel, monkeypatch, tmp_path):
    told = run(kernel, "import os; print(os.getuid(), os.getgid(), os.getgroups(), sorted(os.environ))")
    uid = told.split()[0]
    assert told.startswith((f"{uid} {uid} []", f"{uid} {uid} [{uid}]"))
    assert int(uid) >= other_user.FIRST
    assert "PYTEST_CURRENT_TEST" not in told
    status = run(kernel, "print(open('/proc/self/status').read())")
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status
    assert run(kernel, f"import os; print(os.access({str(tmp_path)!r}, os.R_OK))") == "False"


def test_a_file_of_the_notebook_comes_to_us_as_often_as_it_is_written(kernel, tmp_path):
    for text in ("first", "second"):
        run(kernel, f"open('answer.txt', 'w').write({text!r})")
        kernel.fetch(tmp_path / "answer.txt")
        assert (tmp_path / "answer.txt").read_text() == text
    run(kernel, "import os; os.remove('answer.txt')")
    kernel.fetch(tmp_path / "answer.txt")
    assert not (tmp_path / "answer.txt").exists()


def test_a_link_to_a_file_of_ours_is_not_followed(kernel, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    run(kernel, f"import os; os.symlink({str(secret)!r}, 'answer.txt'); os.symlink({str(tmp_path)!r}, 'folder')")
    for name in ("answer.txt", "folder/secret"):
        with pytest.raises(BadFile):
            kernel.fetch(tmp_path / name)
    run(kernel, f"import os; os.symlink({str(secret)!r}, {str(kernel.scratch / 'written')!r})")
    with pytest.raises(BadFile):
        kernel.fetch(kernel.scratch / "written")


def test_what_is_taken_from_it_cannot_be_another_file_by_then_and_is_given_back(kernel):
    path = kernel.scratch / "written"
    run(kernel, f"def write(text): open({str(path)!r}, 'w').write(text); return text")
    assert ask(kernel, "write", "first") == "first"
    kernel.fetch(path)
    replace = (
        f"import os\ntry:\n    os.remove({str(path)!r})\nexcept OSError as error:\n    print(type(error).__name__)"
    )
    assert run(kernel, replace) == "PermissionError"
    assert path.read_text() == "first"
    assert ask(kernel, "write", "second") == "second"
    kernel.fetch(path)
    assert path.read_text() == "second"


def test_its_folders_cannot_be_replaced(kernel):
    for folder in (kernel.scratch, kernel.scratch.parent / "work"):
        told = run(
            kernel,
            f"import os\ntry:\n    os.rename({str(folder)!r}, {str(folder) + '2'!r})\nexcept OSError as error:\n"
            "    print(type(error).__name__)",
        )
        assert told == "PermissionError"


def test_a_kernel_that_dies_is_replaced_and_its_processes_are_gone(kernel):
    user = int(run(kernel, "import os; print(os.getuid()); kept = 7"))
    sleep = "import time; time.sleep(600)"
    run(kernel, f"import subprocess as s, sys; s.Popen([sys.executable, '-c', {sleep!r}], start_new_session=True)")
    before = of(user)
    assert len(before) > 1
    assert not kernel.run(new_code_cell("import os; os._exit(1)"), 30).alive
    assert run(kernel, "print(kept)") == "7"
    assert gone(before, user)


def test_nothing_is_left_of_one_that_forks_away(open_python, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", open_python)
    fork = "import os\nos.setsid()\nwhile True:\n    os.fork() and os._exit(0)"
    with OtherUserKernel(tmp_path) as kernel:
        base = kernel.scratch.parent
        user = int(run(kernel, "import os; print(os.getuid())"))
        run(kernel, f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {fork!r}])")
        assert of(user)
    limit = time.monotonic() + 20
    while of(user) and time.monotonic() < limit:
        time.sleep(0.02)
    assert not of(user)
    assert not base.exists()


def test_where_we_are_not_root_it_cannot_be(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert other_user.problem() == "only root can be another user"


def test_what_it_can_read_is_not_hidden(open_python, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", open_python)
    assert "it can read what is hidden" in other_user.problem([Path("/etc")])
    assert other_user.problem([tmp_path]) == ""
