from __future__ import annotations

from collections import Counter

import pytest

from mlhood.errors import GradingError
from mlhood.grading.gradebook.groups import deal, group_names, roster_csv
from mlhood.grading.gradebook.roster import Roster, Student, read_roster

CLASS = Roster(Student(f"s{n:02}", f"Student {n}") for n in range(10))


def groups(roster):
    return {student.student: student.group for student in roster.students}


def test_the_groups_are_of_equal_size_and_drawn_from_the_seed():
    dealt = groups(deal(CLASS, 3, seed=1))
    assert sorted(Counter(dealt.values()).values()) == [3, 3, 4]
    assert groups(deal(CLASS, 3, seed=1)) == dealt
    assert groups(deal(CLASS, 3, seed=2)) != dealt


def test_a_group_that_a_student_has_stays():
    dealt = deal(CLASS, 3, seed=1)
    late = Roster([*dealt.students, Student("zoe"), Student("max")])
    again = groups(deal(late, 3, seed=5))
    assert {name: again[name] for name in groups(dealt)} == groups(dealt)
    assert sorted(Counter(again.values()).values()) == [4, 4, 4]


def test_groups_of_the_instructor_are_kept():
    given = Roster([Student("ada", group="north"), Student("bob"), Student("eve")])
    assert groups(deal(given, 2, seed=1)) | {"bob": "", "eve": ""} == {"ada": "north", "bob": "", "eve": ""}
    assert {groups(deal(given, 2, seed=1))[name] for name in ("bob", "eve")} == {"A", "B"}


def test_the_roster_with_groups_can_be_read_again(tmp_path):
    dealt = deal(CLASS, 2, seed=1)
    (tmp_path / "roster.csv").write_text(roster_csv(dealt))
    assert read_roster(tmp_path / "roster.csv").students == dealt.students


def test_names_of_groups_are_letters():
    names = group_names(28)
    assert (names[0], names[25:]) == ("A", ["Z", "AA", "AB"])


@pytest.mark.parametrize("count", [-1, 0, 1, 101])
def test_one_group_is_no_grouping(count):
    with pytest.raises(GradingError, match="number of groups"):
        deal(CLASS, count, seed=1)


def test_an_empty_roster_is_refused():
    with pytest.raises(GradingError, match="no students"):
        deal(Roster(), 2, seed=1)
