from __future__ import annotations

import os
from dataclasses import replace

import pytest

from mlhood.grading.checks import submission as module
from mlhood.grading.checks.expect import CheckFailed, CheckSkipped, CheckUndecided
from mlhood.grading.checks.submission import Session, Submission
from mlhood.grading.rpc.codec import LENGTH, encode
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.measure import Measurement, Table, faster


@pytest.fixture
def session(tmp_path):
    for name in ("work", "scratch"):
        (tmp_path / name).mkdir()
    return Session(LocalTransport({"x": 3}), tmp_path / "work", tmp_path / "scratch")


@pytest.fixture
def submission(session):
    return Submission(session)


def asking(session, transport) -> Submission:
    """A submission whose process replies through this transport."""
    return Submission(replace(session, transport=transport))


def test_plain_file(submission):
    (submission.folder / "a.onnx").write_bytes(b"x")
    assert submission.file("a.onnx").read_bytes() == b"x"


def test_missing_file_says_why(submission):
    submission.session.cell_errors.append("the cell `export()` stopped with ValueError")
    with pytest.raises(CheckFailed) as caught:
        submission.file("a.onnx")
    assert caught.value.what == "there is no file `a.onnx`"
    assert "export()" in caught.value.parts["note"]


def test_folder_is_not_a_file(submission):
    (submission.folder / "a.onnx").mkdir()
    with pytest.raises(CheckFailed, match="not a regular file"):
        submission.file("a.onnx")


def test_link_to_elsewhere_is_refused(submission, tmp_path):
    (tmp_path / "answer.onnx").write_bytes(b"solution")
    try:
        (submission.folder / "a.onnx").symlink_to(tmp_path / "answer.onnx")
    except OSError:
        pytest.skip("no links here")
    with pytest.raises(CheckFailed, match="not a regular file"):
        submission.file("a.onnx")


def test_path_through_a_linked_folder_is_refused(submission, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.onnx").write_bytes(b"solution")
    try:
        (submission.folder / "sub").symlink_to(tmp_path / "elsewhere")
    except OSError:
        pytest.skip("no links here")
    with pytest.raises(CheckFailed, match="not a regular file"):
        submission.file("sub/a.onnx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_fifo_does_not_hang(submission):
    os.mkfifo(submission.folder / "a.onnx")
    with pytest.raises(CheckFailed, match="not a regular file"):
        submission.file("a.onnx")


def test_too_large(submission, monkeypatch):
    monkeypatch.setattr(module, "MAX_FETCHED_BYTES", 10)
    (submission.folder / "a.onnx").write_bytes(bytes(11))
    with pytest.raises(CheckFailed, match="too large"):
        submission.file("a.onnx")


def test_written_file_is_in_scratch(submission):
    (submission.scratch / "a.onnx").write_bytes(b"x")
    assert submission.written(submission.scratch / "a.onnx").exists()
    with pytest.raises(CheckFailed, match="did not write the file"):
        submission.written(submission.scratch / "b.onnx")


def test_value_in_this_process(submission):
    assert submission.value("x") == 3
    with pytest.raises(CheckFailed, match="the notebook defines no `y`"):
        submission.value("y")


@pytest.mark.parametrize("reply", ["[]", "3", "null", "{}", '{"$dict": []}', '{"$dict": [["error", 3]]}', "nonsense"])
def test_malformed_reply_is_a_failed_check(session, reply):
    class Forger:
        def send(self, request, seconds):
            return LENGTH.pack(len(reply)) + reply.encode()

    with pytest.raises(CheckFailed, match="gave no usable answer"):
        asking(session, Forger()).value("x")


def test_what_once_returns_is_made_once(session):
    cache = {}
    first, second = (Submission(session, cache=cache) for _ in range(2))
    assert first.once("x", lambda: first.value("x")) == 3
    assert second.once("x", lambda: pytest.fail("called twice")) == 3


@pytest.mark.parametrize("kind", [CheckFailed, CheckUndecided, CheckSkipped])
def test_what_once_raises_is_raised_again(kind, session):
    def fail():
        raise kind("the reason")

    cache: dict = {}
    with pytest.raises(kind, match="the reason"):
        Submission(session, cache=cache).once("x", fail)
    with pytest.raises(kind, match="the reason"):
        Submission(session, cache=cache).once("x", lambda: pytest.fail("called twice"))


# -- tables


def declared():
    return Table("T9.times", ("small", "large"), ("slow", "fast"), "ms", claims=(faster("fast", "slow"),))


def filled(seconds=0.001):
    table = declared()
    for row in table.rows:
        table[row, "slow"] = Measurement((0.004,) * 21, 1e7, row, True)
        table[row, "fast"] = Measurement((seconds,) * 21, 1e7, row, True)
    return table


def with_names(session, **names) -> Submission:
    return asking(session, LocalTransport(names))


def test_a_table_is_found_by_its_id_under_any_name(session):
    table = with_names(session, x=3, other=declared(), mine=filled(), _=None).table(declared())
    assert table.missing == []
    assert table["small", "fast"].median == 0.001
    assert table.verdicts()[0].state == "holds"


def test_of_several_tables_the_one_declared_or_filled_last_counts(session):
    stale, fresh = filled(), declared()
    assert len(with_names(session, mine=stale, table=fresh).table(declared()).missing) == 4
    fresh["small", "slow"] = Measurement((0.004,) * 21, 1e7, "x", True)
    assert len(with_names(session, table=fresh, mine=stale).table(declared()).missing) == 3
    stale["small", "fast"] = Measurement((0.002,) * 21, 1e7, "x", True)
    assert with_names(session, mine=stale, table=fresh).table(declared())["small", "fast"].median == 0.002


def test_a_missing_table_says_why(session):
    session.cell_errors.append("the cell `table = ...` stopped with NameError")
    with pytest.raises(CheckFailed, match="the notebook has no table") as caught:
        with_names(session, x=3).table(declared())
    assert "NameError" in caught.value.parts["note"]


def test_a_table_declared_otherwise_is_refused_with_the_part_that_differs(session):
    other = Table("T9.times", ("small", "large"), ("slow", "fast"), "ms")
    with pytest.raises(CheckFailed, match="another declaration") as caught:
        with_names(session, table=other).table(declared())
    assert caught.value.parts["for"] == "T9.times, claims"
    assert "as it was given" in caught.value.parts["hint"]


def forged(session, change) -> Submission:
    """A submission whose process replies with a modified table."""
    data = filled().to_dict()
    change(data)

    class Forger:
        def send(self, request, seconds):
            return encode({"value": data})

    return asking(session, Forger())


def test_verdicts_of_the_submission_are_not_believed(session):
    def change(data):
        data.update(filled(0.1).to_dict() | {"verdicts": [["fast is faster than slow in every row", "holds"]]})

    assert forged(session, change).table(declared()).verdicts()[0].state == "fails"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["cells"][0][2].update(seconds=[float("nan")] * 21),
        lambda data: data["cells"][0][2].update(seconds=[1e-3] * 100_000),
        lambda data: data["cells"].append(data["cells"][0]),
        lambda data: data.update(rows=[["small"], 3]),
        lambda data: data.update(cells={"small": 1}),
        lambda data: data.clear(),
    ],
)
def test_a_forged_table_is_a_failed_check(session, change):
    with pytest.raises(CheckFailed, match="the table `T9"):
        forged(session, change).table(declared())


def test_a_table_larger_than_a_message_may_be_is_a_failed_check(session):
    with pytest.raises(CheckFailed, match="no usable answer"):
        forged(session, lambda data: data.update(title="x" * (9 << 20))).table(declared())
