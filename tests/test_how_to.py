"""The how-tos, followed to the letter on a copy of the repository: files are written, edited, and the commands run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / ".github/how-to").glob("*.md"))
IN_SUITE = "new-pass"  # the others take half a minute, or minutes
COPIED = (".github", "mlhood", "tests", "pyproject.toml", "README.md", "LICENSE", *(f"P{n}.ipynb" for n in range(1, 6)))
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return language, argument (a path) and text of each fenced block, in order."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def apply_diff(text: str, diff: str) -> str:
    """Apply a diff without line numbers: its context and removed lines must occur exactly once."""
    lines = [(line[:1] or " ", line[1:]) for line in diff.splitlines()]
    old, new = ("".join(f"{line}\n" for sign, line in lines if sign != leave_out) for leave_out in "+-")
    assert text.count(old) == 1, f"{text.count(old)} places for:\n{old}"
    return text.replace(old, new)


def insert_cells(path: Path, after: str, text: str) -> None:
    """Insert cells after the one with an id. They are written as Jupytext's percent format has them."""
    notebook = nbformat.read(path, as_version=4)
    cells = []
    for header, source in re.findall(r"^# %%([^\n]*)\n(.*?)(?=^# %%|\Z)", text, re.DOTALL | re.MULTILINE):
        if header.strip() == "[markdown]":
            cells.append(nbformat.v4.new_markdown_cell(re.sub(r"(?m)^# ?", "", source).strip("\n")))
        else:
            cells.append(nbformat.v4.new_code_cell(source.strip("\n")))
    index = next(i for i, cell in enumerate(notebook.cells) if cell.id == after)
    notebook.cells[index + 1 : index + 1] = cells
    nbformat.write(notebook, path)


def run(command: str, folder: Path) -> None:
    """Run a shell line of a page with this environment's programs and the copy's package."""
    program = {"python": "", "pytest": "-m pytest -p no:cacheprovider"}
    line = re.sub(
        r"\.venv/bin/(\w+)", lambda match: f"'{sys.executable}' {program.get(match[1], f'-m {match[1]}')}", command
    )
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


@pytest.fixture
def copy(tmp_path) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the pages' commands are for a POSIX shell")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=() if page.stem == IN_SUITE else pytest.mark.exhaustive) for page in PAGES],
)
def test_a_how_to_works_as_written(page, copy):
    for language, argument, text in blocks(page):
        if language == "sh":
            for command in text.strip().splitlines():
                run(command, copy)
        elif language == "diff":
            path = copy / argument
            path.write_text(apply_diff(path.read_text(encoding="utf-8"), text), encoding="utf-8")
        elif " after " in argument:
            name, _, cell_id = argument.partition(" after ")
            insert_cells(copy / name, cell_id, text)
        elif argument:
            path = copy / argument
            assert not path.exists(), f"{argument} is there already: choose another example"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def test_there_are_how_tos():
    assert {page.stem for page in PAGES} >= {"new-back-end", "new-operator", "new-pass", "new-task"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_contributing_links_to_every_how_to(page):
    assert f"how-to/{page.name}" in (ROOT / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")


def test_a_diff_without_its_context_is_refused():
    with pytest.raises(AssertionError, match="0 places"):
        apply_diff("a\nb\n", " c\n+d\n")
    assert apply_diff("a\nb\nc\n", " a\n-b\n+d\n") == "a\nd\nc\n"
