"""What the README shows of the executed notebooks: a picture of each, the table of P4, and numbers of the syllabus.

In: the README with the comments `<!-- P4 -->` and `<!-- /P4 -->`, and the executed notebooks.
Out: the README with the table between the comments, and the pictures in `.github/images`. Nobody copies a number.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path

from bs4 import BeautifulSoup

from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.excerpts import EXCERPTS, output
from mlhood.grading.notebooks.notebook import read

IMAGES = ".github/images"


def readme_files(root: Path, projects: Iterable[Project]) -> dict[str, bytes]:
    """Return the README and its images as they have to be, by their paths from the root of the repository.

    What a notebook does not show yet, because it was edited and not executed, stays as it is in the README.

    Raises:
        NotebookError: A notebook cannot be read.
    """
    text = (root / "README.md").read_text(encoding="utf-8")
    files = {}
    for name, excerpt in EXCERPTS.items():
        notebook = read(root / f"{name}.ipynb")
        if picture := output(notebook, excerpt.picture, "image/png"):
            files[f"{IMAGES}/{name}.png"] = base64.b64decode(picture)
        if name == "P4" and (table := output(notebook, excerpt.table, "text/html")):
            before, _, rest = text.partition("<!-- P4 -->\n")
            text = f"{before}<!-- P4 -->\n{markdown_table(table)}<!-- /P4 -->{rest.partition('<!-- /P4 -->')[2]}"
    for project in projects:  # in the syllabus, the tasks of a project and their hours follow on its topics
        counts = f"{len(project.tasks)} | {sum(task.minutes for task in project.tasks) / 60:.1f}"
        text = re.sub(rf"(?<=\| {project.id} \| )([^|]*) \| \d+ \| [\d.]+(?= \|)", rf"\1 | {counts}", text)
    return {"README.md": text.encode(), **files}


def markdown_table(html: str) -> str:
    """Return a table that a notebook shows, in Markdown."""
    lines = BeautifulSoup(html, "html.parser").find_all("tr")
    rows = [[" ".join(cell.get_text(" ").split()) for cell in line.find_all(["th", "td"])] for line in lines]
    rows.insert(1, ["---"] * len(rows[0]))
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)
