"""The repository itself: what may stand in its files, the two commands, and the notebooks on GitHub."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(ROOT.glob("P?.ipynb"))
NOTEBOOK_BYTES = 1_000_000
CELL_LINES = 20
WRITTEN_BY_TOOLS = {".git", ".venv", "out", "build", "dist", "__pycache__", ".pytest_cache", ".ruff_cache"}

# joined from pieces, as this file is searched too
HOSTS = [".".join(pair) for pair in [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org")]]
PLACES = ["/".join(["", *parts, ""]) for parts in [("work", "main"), ("work", "shared"), ("root",), ("tmp", "venv")]]
HOMES = re.compile("|".join(["/" + "home/[a-z]", "/" + "Users/[A-Za-z]", r"[A-Z]:\\+" + "Users"]))
HOME_PARTS = ("home/", "Users")  # without one of these, HOMES matches nothing; to look for them is faster
PICTURE = re.compile(r'"image/png": "[^"]*"')  # base64, in which any word may turn up
WORDS = ["TO" + "DO", "FIX" + "ME", "X" * 3]
UNFINISHED = re.compile(rf"\b({'|'.join(WORDS)})\b")
UNSEEDED = re.compile(r"\b(?:default_rng|Random|SeedSequence|random\.seed|torch\.seed)\(\)")


def repository_files() -> list[Path]:
    """Return the files that are or would be checked in; without git, all but what tools write."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not WRITTEN_BY_TOOLS & {*path.relative_to(ROOT).parts}]
    return [path for path in paths if path.is_file()]


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return the text files with their names, read once for all tests."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for path in repository_files():
        content = path.read_bytes()
        if b"\0" not in content:
            text = content.decode("utf-8", errors="replace")
            yield path.relative_to(ROOT).as_posix(), PICTURE.sub("", text) if path.suffix == ".ipynb" else text


@cache
def this_machine() -> list[str]:
    """Return the places and the package index that only this machine knows."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    said += " ".join(value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_")))
    hosts = re.findall(r"https?://(?:[^/\s'\"@]*@)?([^/:\s'\"]+)", said)
    environment = [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []
    places = [place.as_posix() for place in (ROOT, Path.home(), *environment)]
    return [host for host in hosts if "." in host] + [f"{place}/" for place in places if len(place) > 3]


def leaks(text: str, known: list[str]) -> list[str]:
    """Return what in a text belongs to somebody's machine: index hosts and absolute places."""
    found = [pattern for pattern in [*HOSTS, *PLACES, *known] if pattern in text]
    return found + (HOMES.findall(text) if any(part in text for part in HOME_PARTS) else [])


# -- files


def test_no_file_tells_of_the_machine_it_was_written_on():
    known = this_machine()
    assert {name: found for name, text in texts() if (found := leaks(text, known))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "index-url = https://" + HOSTS[0] + "/simple",
        "File '" + PLACES[0] + "mlhood/cli.py'",
        "/ho" + "me/ada/mlhood",
        "C:\\Us" + "ers\\ada",
        json.dumps("C:\\Us" + "ers\\ada"),
    ],
)
def test_a_leak_is_found(text):
    assert leaks(text, [])


def test_a_leak_of_this_machine_is_found():
    assert leaks(f"built in {ROOT.as_posix()}/out", this_machine())


def test_nothing_is_left_unfinished():
    marked = [(name, text) for name, text in texts() if any(word in text for word in WORDS)]
    assert {name: found for name, text in marked if (found := UNFINISHED.findall(text))} == {}


def test_no_test_draws_without_a_seed():
    tests = [(name, text) for name, text in texts() if name.startswith("tests/")]
    assert {name: found for name, text in tests if (found := UNSEEDED.findall(text))} == {}


# -- the two commands


def shell_commands(language: str) -> list[str]:
    """Return the README's commands in a language: the text of its fenced blocks."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return [text.strip() for text in re.findall(rf"^```{language}\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)]


def test_the_readme_opens_with_the_two_commands():
    run, test = shell_commands("sh")
    assert run == "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/mlhood run"
    assert test == 'python3 -m venv .venv && .venv/bin/pip install -q -e ".[test]" && .venv/bin/pytest'


def test_ci_runs_the_readmes_test_command_in_two_timed_steps():
    install, _, test = shell_commands("sh")[1].rpartition(" && ")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert f"install() {{\n    {install}\n}}\n" in script
    assert re.search(rf'step "[\w ]+" {re.escape(test)}\b', script)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX scripts")
@pytest.mark.parametrize("name", [".ci/run", ".binder/postBuild", ".devcontainer/install.sh"])
def test_a_script_is_a_program_and_parses(name):
    script = ROOT / name
    assert script.stat().st_mode & stat.S_IXUSR
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_the_readme_names_folders_and_files_that_exist():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`(mlhood/\w+|tests(?:/[\w.]+)?)`", readme) + re.findall(
        r"\]\((?!http|\.\./)([^)#]+)\)", readme
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


# -- a way in for contributors

ROOMS = sorted(path.parent for path in (ROOT / "mlhood").glob("*/__init__.py"))
LINK = re.compile(r"\]\((?!http)([^)#]+)")


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_every_folder_opens_with_a_page(room):
    page = (room / "README.md").read_text(encoding="utf-8")
    assert "**In:**" in page
    assert "**Out:**" in page
    first = LINK.findall(page.partition("| Read first |")[2])
    assert len(first) == min(5, len([path for path in room.rglob("*.py") if path.stem != "__init__"]))
    assert [name for name in first if not (room / name).is_file()] == []
    (tests,) = re.findall(r"`\.venv/bin/pytest (\S+)`", page)
    assert list((ROOT / tests).rglob("test_*.py")), tests


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob(".github/**/*.md"), *(ROOT / "mlhood").rglob("*.md"), ROOT / "README.md"],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_links_lead_somewhere(page):
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "/actions/" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_version_is_the_same_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert yaml.safe_load((ROOT / ".github/CITATION.cff").read_text(encoding="utf-8"))["version"] == version
    changes = (ROOT / ".github/CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", changes, re.MULTILINE)[1] == version


# -- the notebooks


def notebook_faults(notebook: dict[str, Any]) -> list[str]:
    """Return what in a notebook would be broken or invisible on GitHub."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    found = ["widget state in the metadata"] if "widgets" in notebook.get("metadata", {}) else []
    counts = [cell["execution_count"] for cell in code if "".join(cell["source"]).strip()]
    if counts != list(range(1, len(counts) + 1)):
        found.append(f"code cells were not all run in order: {counts}")
    for number, cell in enumerate(code):
        lines = len("".join(cell["source"]).splitlines())
        if lines > CELL_LINES:
            found.append(f"code cell {number} has {lines} lines")
        meant = "raises-exception" in cell.get("metadata", {}).get("tags", [])
        for output in cell["outputs"]:
            if output["output_type"] == "error" and not meant:
                found.append(f"code cell {number} ends with {output['ename']}")
            found += [f"code cell {number} shows {kind}" for kind in output.get("data", {}) if _unseen(kind)]
    for cell in notebook["cells"]:
        kinds = [kind for attachment in cell.get("attachments", {}).values() for kind in attachment]
        found += [f"an attached picture is {kind}" for kind in kinds if _unseen(kind)]
    return found


def _unseen(kind: str) -> bool:
    picture = kind.startswith("image/") and kind not in {"image/png", "image/svg+xml"}
    return picture or "jupyter.widget" in kind


def test_the_first_project_is_there():
    assert (ROOT / "P1.ipynb") in NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_small_executed_and_seen_on_github(path):
    assert path.stat().st_size < NOTEBOOK_BYTES
    assert notebook_faults(json.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_pictures_of_a_notebook_are_what_they_say(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    for data in outputs:
        if "image/png" in data:
            assert base64.b64decode("".join(data["image/png"])).startswith(b"\x89PNG")
        if "image/svg+xml" in data:
            assert "<svg" in "".join(data["image/svg+xml"])


def cell(count: int | None = 1, source: str = "1", outputs: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": count,
        "source": source,
        "outputs": outputs or [],
        "metadata": {},
        **more,
    }


def shown(kind: str) -> list[Any]:
    return [{"output_type": "display_data", "data": {kind: "x"}}]


ERROR = [{"output_type": "error", "ename": "ValueError", "evalue": "", "traceback": []}]


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        ([cell(None)], "not all run in order"),
        ([cell(2), cell(1)], "not all run in order"),
        ([cell(source="x\n" * 21)], "21 lines"),
        ([cell(outputs=ERROR)], "ends with ValueError"),
        ([cell(outputs=shown("image/jpeg"))], "shows image/jpeg"),
        ([cell(outputs=shown("application/vnd.jupyter.widget-view+json"))], "widget-view"),
        ([cell(attachments={"a": {"image/gif": ""}})], "image/gif"),
    ],
)
def test_a_fault_of_a_notebook_is_found(cells, fault):
    assert any(fault in line for line in notebook_faults({"cells": cells}))


def test_a_sound_notebook_has_no_faults():
    meant = cell(2, outputs=ERROR, metadata={"tags": ["raises-exception"]})
    empty = cell(None, source="\n")
    assert notebook_faults({"cells": [cell(1, outputs=shown("image/png")), meant, empty]}) == []
