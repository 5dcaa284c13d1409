"""Which variant a submission is marked as: its signature is read, and what it claims otherwise is not believed."""

from __future__ import annotations

import contextlib

import pytest

from mlhood.grading.batch.batch import GivenVersions
from mlhood.grading.batch.course_grader import CourseGrader
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.roster import Roster, Student
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.notebooks.version import store_signature
from mlhood.grading.variants.seed import UNSIGNED, sign

CLASS = Roster([Student("ada", group="A"), Student("bob", "Bob Bly", group="B"), Student("eve")])


@pytest.mark.parametrize(
    ("student", "found", "marked", "note"),
    [
        ("ada", "autumn/A", "autumn/A", ""),
        ("ada", "autumn/B", "autumn/B", "the student was given autumn/A"),
        ("ada", "autumn", "autumn", "the student was given autumn/A"),
        ("ada", "spring/A", "autumn/A", "which is not of this class"),
        ("ada", "", "autumn/A", "has no version"),
        ("ada", UNSIGNED, "autumn/A", "not signed with the seed of this course"),
        ("eve", "autumn", "autumn", ""),
        ("zoe", "", "autumn", "has no version"),
    ],
)
def test_a_submission_is_marked_as_a_version_of_its_class(student, found, marked, note):
    got, said = GivenVersions("autumn", CLASS).marked_as(SubmittedFile(student), found)
    assert got == marked
    assert note in said
    assert bool(said) == bool(note)


@pytest.mark.parametrize(
    ("found", "marked", "note"), [("", "", False), ("autumn/B", "autumn/B", False), ("?", "", True)]
)
def test_without_a_variant_the_signature_decides(found, marked, note):
    got, said = GivenVersions("", CLASS).marked_as(SubmittedFile("ada"), found)
    assert (got, bool(said)) == (marked, note)


def test_a_student_is_found_by_name_as_in_the_roster():
    assert GivenVersions("autumn", CLASS).given_to(SubmittedFile("1234", "Bly, Bob")) == "autumn/B"


def test_a_class_is_graded_by_its_versions(fake_class, tmp_path):
    (tmp_path / "roster.csv").write_text("student,group\nada,A\nbob,B\ncarl,A\n")
    fake_class.submit(ada="P1 version=autumn/A", bob="P1 version=autumn/A", carl="P1")
    result = fake_class.grade(variant="autumn", roster_file=tmp_path / "roster.csv")
    graded = {event["student"]: event["version"] for event in fake_class.events("begin")}
    assert graded == {"ada": "autumn/A", "bob": "autumn/A", "carl": "autumn/A"}
    reasons = {record.student: record.reason for record in result.records}
    assert reasons["ada"] == ""
    assert "the student was given autumn/B" in reasons["bob"]
    assert "has no version" in reasons["carl"]
    with Gradebook(fake_class.gradebook) as book:
        assert book.versions() == {"autumn/A"}


def test_the_variant_of_a_class_stays_known(fake_class):
    fake_class.submit(ada="P1").grade(variant="autumn")
    fake_class.submit(bob="P1").grade()
    assert [event["version"] for event in fake_class.events("begin")] == ["autumn", "autumn"]


def test_another_variant_grades_anew(fake_class):
    fake_class.submit(ada="P1").grade(variant="autumn")
    fake_class.grade(variant="spring")
    assert [event["version"] for event in fake_class.events("begin")] == ["autumn", "spring"]


def test_a_signature_that_could_not_be_read_is_read_again(fake_class):
    """The seed may have been another in the call before."""
    fake_class.submit(ada="P1 version=?").grade()
    (fake_class.folder / "ada.ipynb").write_text("P1 version=? ada")
    result = fake_class.grade()
    assert "not signed with the seed" in result.records[0].reason
    assert len(fake_class.events("begin")) == 1


@pytest.mark.parametrize("claimed", ["autumn", 3, {"version": "autumn"}, ["x"] * 100, "A" * 5000])
def test_what_a_notebook_claims_is_not_believed(solved, claimed):
    grader = CourseGrader(7, contextlib.nullcontext)
    notebook = read(solved)
    assert grader.identify(solved) == ("T9", "")
    for signed, expected in ((sign(7, "autumn"), "autumn"), (sign(8, "autumn"), UNSIGNED), (claimed, UNSIGNED)):
        store_signature(notebook, signed)
        write(notebook, solved)
        assert grader.identify(solved) == ("T9", expected)
