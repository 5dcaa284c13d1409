"""The instructors' page: its commands exist, its example of a late policy is valid, its layouts are recognised."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath

import pytest
from typer.main import get_command

from mlhood import cli
from mlhood.grading.exporters import export
from mlhood.grading.gradebook.late import parse_late_policy
from mlhood.grading.intake import layouts

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "mlhood/grading/INSTRUCTORS.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("mlhood ")]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_exists(line):
    _, name, *words = shlex.split(line)
    context = get_command(cli.app).commands[name].make_context(name, words)
    assert all(value is not None for key, value in context.params.items() if f"--{key.replace('_', '-')}" in words)


def test_every_format_is_exported_once():
    formats = [words[words.index("--format") + 1] for words in map(shlex.split, COMMANDS) if "--format" in words]
    assert sorted(formats) == sorted([*export.TABLES, *export.FILES, "canvas"])


def test_the_example_of_a_late_policy_is_valid():
    (example,) = blocks("toml")
    deadline = parse_late_policy(example, "INSTRUCTORS.md")["P1"]
    assert (deadline.penalty_per_day, deadline.max_penalty, set(deadline.extensions)) == (0.1, 0.5, {"ada", "bob"})


@pytest.mark.parametrize(
    ("hint", "path", "student"),
    [
        ("nbgrader", "submitted/ada/P1/P1.ipynb", "ada"),
        ("classroom", "p1-submissions/p1-ada/P1.ipynb", "ada"),
        ("moodle", "Ada Lovelace_123_assignsubmission_file_/P1.ipynb", "Ada Lovelace"),
        ("canvas", "lovelaceada_123_456_P1.ipynb", "123"),
        ("flat", "ada_P1.ipynb", "ada"),
    ],
)
def test_every_layout_is_recognised_as_described(hint, path, student):
    shown = path.replace("submitted/ada/", "submitted/STUDENT/")
    assert f"| `{hint}`" in TEXT
    assert f"`{shown}`" in TEXT
    layout = layouts.choose_layout([PurePosixPath(path)], title="class")
    owner = layout.owner(PurePosixPath(path))
    assert (layout.name, owner.student, owner.assignment) == (hint, student, "P1")
