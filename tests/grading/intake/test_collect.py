from __future__ import annotations

import os
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mlhood.errors import GradingError, OutputError
from mlhood.grading.intake import collect as collecting
from mlhood.grading.intake import files as input_files
from mlhood.grading.intake.collect import collect, parse_time

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs links and pipes")
LAYOUTS = {
    "nbgrader": ["submitted/ada/P1/P1.ipynb", "submitted/bob/P1/P1.ipynb", "submitted/bob/P1/timestamp.txt"],
    "classroom": [f"p1-submissions/p1-{name}" for name in ("ada/P1.ipynb", "bob/P1.ipynb", "bob/.git/P1.ipynb")],
    "moodle": ["Ada Love_11_assignsubmission_file_/P1.ipynb", "Bob Ross_12_assignsubmission_file_/p1 (2).ipynb"],
    "canvas": ["loveada_11_501_P1.ipynb", "rossbob_LATE_12_502_P1-2.ipynb"],
    "flat": ["ada_P1.ipynb", "P1-bob.ipynb"],
}
STUDENTS = {"moodle": {"Ada Love", "Bob Ross"}, "canvas": {"11", "12"}}


def build(root: Path, names, text="P1") -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text} {name}")
    return root


def pack(path: Path, members: dict) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_only_stored_and_deflated_members_are_read(tmp_path):
    methods = {
        "ada": zipfile.ZIP_STORED,
        "bob": zipfile.ZIP_DEFLATED,
        "cid": zipfile.ZIP_BZIP2,
        "dan": zipfile.ZIP_LZMA,
    }
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        for student, method in methods.items():
            archive.writestr(f"{student}_P1.ipynb", "P1", compress_type=method)
    files = collect(tmp_path / "class.zip", tmp_path / "store").submissions
    refused = "it is compressed by a method other than deflate"
    assert {file.student: file.problem for file in files} == {"ada": "", "bob": "", "cid": refused, "dan": refused}


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_recognised(layout, packed, tmp_path):
    source = build(tmp_path / "class", LAYOUTS[layout])
    if packed:
        source = pack(tmp_path / "class.zip", {name: f"P1 {name}" for name in LAYOUTS[layout]})
    collection = collect(source, tmp_path / "store")
    assert collection.layout == layout
    assert {file.student for file in collection.submissions} == STUDENTS.get(layout, {"ada", "bob"})
    assert {file.assignment for file in collection.submissions} == {"P1"}
    assert [file.problem for file in collection.submissions] == ["", ""]
    for file in collection.submissions:
        assert file.path == tmp_path / "store" / f"{file.sha256}.ipynb"
        assert file.path.read_text() == f"P1 {file.source}"


def test_canvas_file_names_contain_the_student_and_whether_it_was_late(tmp_path):
    collection = collect(build(tmp_path / "class", LAYOUTS["canvas"]), tmp_path / "store")
    assert [(file.student, file.name, file.late) for file in collection.submissions] == [
        ("11", "loveada", False),
        ("12", "rossbob", True),
    ]


def test_nbgraders_time_is_read(tmp_path):
    source = build(tmp_path / "class", LAYOUTS["nbgrader"])
    (source / "submitted/bob/P1/timestamp.txt").write_text("2026-10-12 20:15:30.5 UTC\n")
    times = {file.student: file.submitted for file in collect(source, tmp_path / "store").submissions}
    assert times == {"ada": None, "bob": datetime(2026, 10, 12, 20, 15, 30, 500_000, UTC)}


@pytest.mark.parametrize("layout", ["classroom", "moodle", "nbgrader"])
@pytest.mark.parametrize(
    "odd",
    [
        "x_1_{0}_P1.ipynb",
        "Bob Ross_{0}_assignsubmission_file_/P1.ipynb",
        "submitted/{0}/P1/P1.ipynb",
        "a\nb{0}.ipynb",
        "{0:0>200}.ipynb",
    ],
)
def test_one_student_changes_neither_the_layout_nor_the_names_of_others(layout, odd, tmp_path):
    first = Path(LAYOUTS[layout][0]).parent
    source = build(tmp_path / "class", LAYOUTS[layout])
    build(source, [str(first / odd.format(number)) for number in range(40)], text="")
    collection = collect(source, tmp_path / "store")
    assert collection.layout == layout
    assert {file.student for file in collection.submissions} == STUDENTS.get(layout, {"ada", "bob"})


def test_students_of_the_same_name_are_different_students(tmp_path):
    names = [f"Ada Love_{number}_assignsubmission_file_/P1.ipynb" for number in (11, 12)]
    names.append("Bob Ross_13_assignsubmission_file_/P1.ipynb")
    collection = collect(build(tmp_path / "class", names), tmp_path / "store")
    assert [file.student for file in collection.submissions] == ["Ada Love (11)", "Ada Love (12)", "Bob Ross"]


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2026-07-01 12:00:00", 12),
        ("2026-07-01 12:00:00 UTC", 12),
        ("2026-07-01T12:00:00+02:00", 10),
        ("2026-07-01 12:00:00 Europe/Vienna", 10),
        ("2026-01-01 12:00:00 Europe/Vienna", 11),
    ],
)
def test_times_with_and_without_zones(text, hours):
    assert parse_time(text).astimezone(UTC).hour == hours
    assert parse_time(text).utcoffset() is not None


@pytest.mark.parametrize("text", ["", "yesterday", "2026-07-01 12:00:00 Atlantis/City", "2026-07-01 12:00:00 ../../x"])
def test_an_invalid_time_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_time(text)


@pytest.mark.parametrize(
    "names",
    [
        ["ada/P1.ipynb", "bob/P1.ipynb"],
        ["p1-ada/P1.ipynb", "p1-bob/P1.ipynb"],
        ["ada/P1/P1.ipynb"],
        [*LAYOUTS["canvas"], "P1.ipynb"],
        [*LAYOUTS["moodle"], "P1.ipynb"],
        [*LAYOUTS["nbgrader"], "source/P1/P1.ipynb"],
    ],
)
def test_a_layout_without_a_marker_of_all_notebooks_must_be_named(names, tmp_path):
    source = build(tmp_path / "class", names)
    with pytest.raises(GradingError, match="ambiguous"):
        collect(source, tmp_path / "store")


def test_clones_without_a_common_prefix(tmp_path):
    source = build(tmp_path / "class", ["ada/P1.ipynb", "bob/work/P1.ipynb"])
    submissions = collect(source, tmp_path / "store", "classroom").submissions
    assert [file.student for file in submissions] == ["ada", "bob"]
    source = build(tmp_path / "p1-submissions", ["p1-ann-lee/P1.ipynb", "p1-ann-kim/P1.ipynb"])
    assert [file.student for file in collect(source, tmp_path / "store").submissions] == ["ann-kim", "ann-lee"]
    collection = collect(build(tmp_path / "one", ["hw-p1-eve/P1.ipynb"]), tmp_path / "store", "classroom:hw-p1")
    assert collection.submissions[0].student == "eve"


def test_an_unknown_layout_is_refused_and_so_is_one_without_submissions(tmp_path):
    source = build(tmp_path / "class", ["ada/P1/P1.ipynb"])
    assert collect(source, tmp_path / "store", "nbgrader").submissions[0].student == "ada"
    with pytest.raises(GradingError, match="no such layout"):
        collect(source, tmp_path / "store", "blackboard")
    with pytest.raises(GradingError, match="no submissions"):
        collect(source, tmp_path / "store", "canvas")


def test_the_last_of_several_counts_and_the_others_are_reported(tmp_path):
    source = build(tmp_path / "class", [f"Ada Love_11_assignsubmission_file_/P1-{n}.ipynb" for n in (2, 10, 9)])
    collection = collect(source, tmp_path / "store")
    assert [Path(file.source).name for file in collection.submissions] == ["P1-10.ipynb"]
    assert [file.problem.split("/")[-1] for file in collection.extras] == ["P1-10.ipynb counts instead"] * 2


def test_a_student_without_a_notebook_has_a_result(tmp_path):
    names = ["Ada Love_11_assignsubmission_file_/report.pdf", "Bob Ross_12_assignsubmission_file_/P1.ipynb"]
    problems = {
        file.student: file.problem for file in collect(build(tmp_path / "c", names), tmp_path / "store").submissions
    }
    assert problems == {"Ada Love": f"there is no notebook among {names[0]}", "Bob Ross": ""}


def test_other_files_beside_notebooks_belong_to_no_student(tmp_path):
    source = build(tmp_path / "class", ["ada_P1.ipynb", "README.md", "P1/bob.ipynb"])
    collection = collect(source, tmp_path / "store", "flat")
    assert [file.student for file in collection.submissions] == ["ada"]
    assert [(file.source, file.problem) for file in collection.extras] == [("P1/bob.ipynb", collecting.MISPLACED)]


@POSIX
def test_links_and_pipes_are_not_followed(tmp_path):
    (tmp_path / "secret.ipynb").write_text("the seed")
    source = build(tmp_path / "class", ["ada/P1.ipynb"])
    (source / "bob").mkdir()
    (source / "bob" / "P1.ipynb").symlink_to(tmp_path / "secret.ipynb")
    (source / "carl").mkdir()
    os.mkfifo(source / "carl" / "P1.ipynb")
    (source / "dora").symlink_to(tmp_path)
    collection = {file.student: file for file in collect(source, tmp_path / "store", "classroom").submissions}
    assert {student: file.problem.split(",")[0] for student, file in collection.items()} == {
        "ada": "",
        "bob": "it is a link or a special file",
        "carl": "it is a link or a special file",
    }
    assert [path.read_text() for path in (tmp_path / "store").iterdir()] == ["P1 ada/P1.ipynb"]


@POSIX
def test_a_file_that_becomes_a_link_is_not_followed_either(tmp_path):
    source = build(tmp_path / "class", ["ada/P1.ipynb"])
    (tmp_path / "secret").write_text("the seed")
    with input_files.input_files(source) as files:
        (source / "ada" / "P1.ipynb").unlink()
        (source / "ada" / "P1.ipynb").symlink_to(tmp_path / "secret")
        with pytest.raises(OSError, match=r"link|symbolic"):
            files[0].open()


def test_hostile_members_of_an_archive_are_reported(tmp_path):
    link = zipfile.ZipInfo("ada_P1.ipynb")
    link.external_attr = 0o120777 << 16
    source = tmp_path / "class.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("bob_P1.ipynb", "P1")
        archive.writestr(link, "/etc/passwd")
        for name in ("../carl_P1.ipynb", "/dora_P1.ipynb", "C:\\emil_P1.ipynb", "..\\..\\fred_P1.ipynb"):
            archive.writestr(name, "P1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("bob_P1.ipynb", "P1 twice")
    collection = collect(source, tmp_path / "store", "flat")
    problems = {file.student: file.problem for file in collection.submissions}
    out = "its path leads out of the archive"
    assert problems.pop("ada") == "it is a link, which is not followed"
    assert problems.pop("bob") == ""
    assert problems == dict.fromkeys(["carl", "dora", "fred"], out)
    duplicate = "the archive has another file of the same name, and that one counts"
    extras = {file.source: file.problem for file in collection.extras}
    assert extras == {"bob_P1.ipynb": duplicate, "C:/emil_P1.ipynb": out}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["class.zip", "store"]


def test_a_bomb_is_read_no_further_than_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "MAX_BYTES", 3 << 20)
    source = pack(tmp_path / "class.zip", {"ada_P1.ipynb": bytes(40 << 20), "bob_P1.ipynb": "P1"})
    assert source.stat().st_size < 1 << 17
    problems = {file.student: file.problem for file in collect(source, tmp_path / "store").submissions}
    assert problems["ada"].startswith("it is larger than 3 MiB")
    assert problems["bob"] == ""
    assert [path.read_text() for path in (tmp_path / "store").iterdir()] == ["P1"]


def test_a_large_notebook_is_refused_and_a_smaller_one_is_not(tmp_path):
    source = build(tmp_path / "class", ["ada_P1.ipynb", "bob_P1.ipynb"])
    with (source / "ada_P1.ipynb").open("wb") as file:
        file.truncate(50 << 20)
    problems = {file.student: file.problem for file in collect(source, tmp_path / "store").submissions}
    assert problems.pop("ada").startswith("it is larger than 32 MiB; clear its outputs")
    assert problems == {"bob": ""}


def test_only_the_notebook_that_counts_is_copied(tmp_path):
    source = build(tmp_path / "submitted", [f"ada/P1/{name}.ipynb" for name in ("P1", "P1-2", "draft P1")])
    (submission,) = collect(source, tmp_path / "store").submissions
    assert submission.source == "ada/P1/P1.ipynb"
    assert [path.name for path in (tmp_path / "store").iterdir()] == [f"{submission.sha256}.ipynb"]


def test_the_next_notebook_counts_where_the_preferred_one_cannot_be_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "MAX_BYTES", 1 << 20)
    folder = "Ada Love_11_assignsubmission_file_"
    source = build(tmp_path / "class", [f"{folder}/P1-{n}.ipynb" for n in (1, 2, 3)])
    (source / folder / "P1-3.ipynb").write_bytes(bytes(2 << 20))
    collection = collect(source, tmp_path / "store")
    assert [file.source for file in collection.submissions] == [f"{folder}/P1-2.ipynb"]
    reasons = {Path(file.source).name: file.problem.split(";")[0] for file in collection.extras}
    counts = f"{folder}/P1-2.ipynb counts instead"
    assert reasons == {"P1-3.ipynb": "it is larger than 1 MiB", "P1-1.ipynb": counts}


def test_a_student_has_a_limited_number_of_notebooks(tmp_path):
    names = [f"x-ada/{n:02}.ipynb" for n in range(collecting.MAX_STUDENT_NOTEBOOKS + 3)]
    collection = collect(build(tmp_path / "class", [*names, "x-bob/P1.ipynb"]), tmp_path / "store", "classroom:x")
    assert sum(file.student == "ada" for file in collection.submissions) == collecting.MAX_STUDENT_NOTEBOOKS
    assert [file.problem for file in collection.extras] == [collecting.TOO_MANY_NOTEBOOKS] * 3


def test_a_damaged_member_is_reported(tmp_path):
    source = pack(tmp_path / "class.zip", {"ada_P1.ipynb": os.urandom(5000), "bob_P1.ipynb": "P1"})
    content = bytearray(source.read_bytes())
    content[200:260] = bytes(60)
    source.write_bytes(content)
    problems = {file.student: file.problem for file in collect(source, tmp_path / "store").submissions}
    assert problems["ada"].startswith("it cannot be read")
    assert problems["bob"] == ""


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    source = pack(tmp_path / "class.zip", {f"s{n}_P1.ipynb": "P1" for n in range(30)})
    folder = build(tmp_path / "class", [f"s{n}_P1.ipynb" for n in range(30)])
    monkeypatch.setattr(input_files, "MAX_FILES", 20)
    for where in (source, folder):
        with pytest.raises(GradingError, match="too many files"):
            collect(where, tmp_path / "store")


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize(
    ("layout", "student"),
    {
        "nbgrader": "submitted/{}/P1",
        "classroom": "p1-submissions/p1-{}",
        "moodle": "{}_11_assignsubmission_file_",
    }.items(),
)
def test_the_files_of_one_student_cost_no_other_a_notebook(layout, student, packed, tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "MAX_STUDENT_FILES", 20)
    monkeypatch.setattr(input_files, "MAX_FILES", 40)
    names = [f"{student.format('ada')}/venv/{n}" for n in range(50)]
    names += [f"{student.format(name)}/P1.ipynb" for name in ("ada", "bob")]
    source = build(tmp_path / "class", names)
    if packed:
        source = pack(tmp_path / "class.zip", {name: f"P1 {name}" for name in names})
    collection = collect(source, tmp_path / "store")
    assert collection.layout == layout
    assert {file.student: file.problem for file in collection.submissions} == {"ada": "", "bob": ""}
    assert [file.problem for file in collection.extras] == [input_files.TRUNCATED]
    assert "ada" in collection.extras[0].source


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)], ids=["empty", "text", "empty zip"])
def test_a_file_that_is_not_an_archive_is_refused(content, tmp_path):
    (tmp_path / "class.zip").write_bytes(content)
    with pytest.raises(GradingError, match="no submissions"):
        collect(tmp_path / "class.zip", tmp_path / "store")
    with pytest.raises(GradingError, match="no submissions"):
        collect(tmp_path / "absent", tmp_path / "store")


def test_a_store_that_cannot_be_written_is_an_error(tmp_path):
    source = build(tmp_path / "class", ["ada_P1.ipynb"])
    (tmp_path / "store").write_text("")
    with pytest.raises(OutputError, match="folder"):
        collect(source, tmp_path / "store")


@pytest.mark.parametrize("name", ["P1²³.ipynb", "=cmd|calc_P1.ipynb", "<b>_P1.ipynb", "a\nb_P1.ipynb", "P1 (1).ipynb"])
def test_unusual_names_are_accepted(name, tmp_path):
    if sys.platform == "win32":
        pytest.skip("Windows has no such names")
    source = build(tmp_path / "class", [name, "P1-9.ipynb"])
    assert collect(source, tmp_path / "store").submissions[0].problem == ""
    assert all(len(path.stem) == 64 for path in (tmp_path / "store").iterdir())


@pytest.mark.parametrize("place", ["submitted/ada/P1/sub", "submitted/ada/P1/P1", "submitted/ada/ada/P1"])
def test_a_time_stamp_that_is_not_where_nbgrader_writes_it_is_ignored(place, tmp_path):
    source = build(tmp_path / "class", ["submitted/ada/P1/P1.ipynb", f"{place}/P1.ipynb"])
    (source / "submitted/ada/P1/timestamp.txt").write_text("2026-02-02 15:58:23 UTC")
    (source / place / "timestamp.txt").write_text("2026-01-01 00:00:00 UTC")
    times = {file.submitted for file in collect(source, tmp_path / "store").submissions if file.assignment == "P1"}
    assert times == {datetime(2026, 2, 2, 15, 58, 23, tzinfo=UTC)}


def test_the_time_of_a_file_is_not_the_time_of_submission(tmp_path):
    source = build(tmp_path / "class", ["ada_P1.ipynb"])
    old = (datetime.now(UTC) - timedelta(days=9)).timestamp()
    os.utime(source / "ada_P1.ipynb", (old, old))
    assert collect(source, tmp_path / "store").submissions[0].submitted is None
