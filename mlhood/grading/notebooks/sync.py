"""The package's copy of the master notebooks' cells: what it should be, and whether it is up to date.

    python -m mlhood.grading.notebooks.sync

in the folder of the course, after a code cell has changed in the student's version.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.grading.notebooks.master import CELLS_FILE, dump_cells, master_cells
from mlhood.grading.notebooks.notebook import course_notebooks, project_of, read, write_text

PROJECTS_PATH = "mlhood/grading/projects"


def synced_files(masters: Iterable[Path]) -> dict[str, str]:
    """Return the files that the package must contain for these notebooks: text by path from the course's folder.

    Raises:
        NotebookError: One is not a notebook of the course, or the markers of a solution are wrong.
    """
    notebooks = [(read(path), path) for path in masters]
    return {
        f"{PROJECTS_PATH}/{project_of(notebook, path).id.lower()}/{CELLS_FILE}": dump_cells(master_cells(notebook))
        for notebook, path in notebooks
    }


def require_synced(root: Path, masters: Iterable[Path]) -> None:
    """Check that the package in `root` contains the current cells of these notebooks.

    Raises:
        GradingError: It contains others.
    """
    for name, text in synced_files(masters).items():
        path = root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            raise GradingError(
                "the package's copy of a notebook's cells is out of date",
                where=path,
                expected="the cells of the notebook, so that submissions are graded with them",
                todo="run `python -m mlhood.grading.notebooks.sync` in the folder of the course",
            )


if __name__ == "__main__":
    for where, content in synced_files(course_notebooks(Path.cwd())).items():
        write_text(Path.cwd() / where, content)
        print(where)
