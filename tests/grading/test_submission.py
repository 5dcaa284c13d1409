from __future__ import annotations

import os

import pytest

from mlhood.grading import submission as module
from mlhood.grading.expect import CheckFailed
from mlhood.grading.submission import LocalTransport, Submission


@pytest.fixture
def submission(tmp_path):
    for name in ("work", "scratch"):
        (tmp_path / name).mkdir()
    return Submission(LocalTransport({"x": 3}), tmp_path / "work", tmp_path / "scratch")


def test_plain_file(submission):
    (submission.folder / "a.onnx").write_bytes(b"x")
    assert submission.file("a.onnx").read_bytes() == b"x"


def test_missing_file_says_why(submission):
    submission.cell_errors.append("the cell `export()` stopped with ValueError")
    with pytest.raises(CheckFailed) as caught:
        submission.file("a.onnx")
    assert caught.value.what == "there is no file `a.onnx`"
    assert "export()" in caught.value.parts["hint"]


def test_folder_is_no_file(submission):
    (submission.folder / "a.onnx").mkdir()
    with pytest.raises(CheckFailed, match="not a plain file"):
        submission.file("a.onnx")


def test_link_to_elsewhere_is_refused(submission, tmp_path):
    (tmp_path / "answer.onnx").write_bytes(b"solution")
    try:
        (submission.folder / "a.onnx").symlink_to(tmp_path / "answer.onnx")
    except OSError:
        pytest.skip("no links here")
    with pytest.raises(CheckFailed, match="not a plain file"):
        submission.file("a.onnx")


def test_path_through_a_linked_folder_is_refused(submission, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.onnx").write_bytes(b"solution")
    try:
        (submission.folder / "sub").symlink_to(tmp_path / "elsewhere")
    except OSError:
        pytest.skip("no links here")
    with pytest.raises(CheckFailed, match="not a plain file"):
        submission.file("sub/a.onnx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_fifo_does_not_hang(submission):
    os.mkfifo(submission.folder / "a.onnx")
    with pytest.raises(CheckFailed, match="not a plain file"):
        submission.file("a.onnx")


def test_too_large(submission, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 10)
    (submission.folder / "a.onnx").write_bytes(bytes(11))
    with pytest.raises(CheckFailed, match="too large"):
        submission.file("a.onnx")


def test_written_file_lies_in_scratch(submission):
    (submission.scratch / "a.onnx").write_bytes(b"x")
    assert submission.written(submission.scratch / "a.onnx").exists()
    with pytest.raises(CheckFailed, match="has not written the file"):
        submission.written(submission.scratch / "b.onnx")


def test_value_in_this_process(submission):
    assert submission.value("x") == 3
    with pytest.raises(CheckFailed, match="the notebook defines no `y`"):
        submission.value("y")


@pytest.mark.parametrize("reply", ["[]", "3", "null", "{}", '{"$dict": []}', '{"$dict": [["error", 3]]}', "nonsense"])
def test_malformed_reply_is_a_failed_check(submission, reply):
    class Forger:
        def ask(self, request, seconds):
            from mlhood.grading.wire import Message

            return Message(reply, {})

    submission.transport = Forger()
    with pytest.raises(CheckFailed, match="gave no usable answer"):
        submission.value("x")
