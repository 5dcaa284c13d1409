"""The summary after grading ends with the marks and the next command."""

from __future__ import annotations

import shlex

from typer.testing import CliRunner

from mlhood import cli
from mlhood.grading.batch.grade_class import aligned


def test_a_small_class_is_listed(fake_class, tmp_path):
    (tmp_path / "roster.csv").write_text("student\nada\ncarl\n")
    fake_class.submit(ada_P1="P1", ada_P2="P2 lose-P2.2", bob_P1="P1 refuse")
    lines = fake_class.grade(roster_file=tmp_path / "roster.csv").text().splitlines()
    table = lines.index("student       P1       P2")
    assert lines[table + 1 : table + 4] == [
        "ada           30       24",
        "bob      refused",
        "carl     missing  missing",
    ]


def test_the_next_commands_run(fake_class, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = fake_class.submit(ada="P1").grade().text().splitlines()
    commands = [line.removeprefix("next:").strip() for line in lines[-3:]]
    for command in commands:
        program, *words = shlex.split(command)
        result = CliRunner().invoke(cli.app, words)
        assert (program, result.exit_code) == ("mlhood", 0), result.output
    assert (tmp_path / "marks.csv").is_file()


def test_nothing_graded_has_no_next_command(fake_class):
    assert "next:" not in fake_class.submit(ada="P1 refuse").grade().text()


def test_columns_are_aligned():
    assert aligned([["a", "b"], ["long", 1]]) == ["a     b", "long  1"]
