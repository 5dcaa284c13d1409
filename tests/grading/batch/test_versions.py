"""Which variant a submission is marked as: its signature is read, and what it claims otherwise is not believed."""

from __future__ import annotations

import contextlib

import pytest

from mlhood.grading.batch.batch import marked_as
from mlhood.grading.batch.course_grader import CourseGrader
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.notebooks.version import store_signature
from mlhood.grading.variants.seed import UNSIGNED, sign


@pytest.mark.parametrize(
    ("given", "found", "marked", "note"),
    [
        ("autumn", "autumn", "autumn", ""),
        ("autumn", "autumn/B", "autumn/B", ""),
        ("autumn", "autumnal", "autumn", "which is not of this class"),
        ("autumn/A", "autumn/B", "autumn/A", "which is not of this class"),
        ("autumn", "", "autumn", "has no version"),
        ("autumn", UNSIGNED, "autumn", "not signed with the seed of this course"),
        ("", "", "", ""),
        ("", "autumn/B", "autumn/B", ""),
        ("", UNSIGNED, "", "marked as the published course"),
    ],
)
def test_a_submission_is_marked_as_a_version_of_its_class(given, found, marked, note):
    got, said = marked_as(given, found)
    assert got == marked
    assert note in said
    assert bool(said) == bool(note)


def test_a_class_is_graded_by_its_versions(fake_class):
    fake_class.submit(ada="P1 version=autumn/A", bob="P1 version=spring", carl="P1")
    result = fake_class.grade(variant="autumn")
    graded = {event["student"]: event["version"] for event in fake_class.events("begin")}
    assert graded == {"ada": "autumn/A", "bob": "autumn", "carl": "autumn"}
    reasons = {record.student: record.reason for record in result.records}
    assert reasons["ada"] == ""
    assert "which is not of this class" in reasons["bob"]
    assert "has no version" in reasons["carl"]
    with Gradebook(fake_class.gradebook) as book:
        assert book.versions() == {"autumn/A", "spring"}


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
