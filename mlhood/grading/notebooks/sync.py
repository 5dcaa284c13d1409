"""Write what the package carries of the master notebooks, and see that it carries what stands in them now.

    python -m mlhood.grading.notebooks.sync

in the folder of the course, after a code cell has changed in what students get of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.grading.execution.run import course_notebooks
from mlhood.grading.notebooks.master import NAME, as_text, master_cells
from mlhood.grading.notebooks.notebook import project_of, read, write_text

PLACE = "mlhood/grading/projects"


def carried(masters: Iterable[Path]) -> dict[str, str]:
    """What the package of a course has to carry of these notebooks: text by path from the course's folder.

    Raises:
        NotebookError: One is no notebook of the course, or a solution is marked wrongly.
    """
    notebooks = [(read(path), path) for path in masters]
    return {
        f"{PLACE}/{project_of(notebook, path).id.lower()}/{NAME}": as_text(master_cells(notebook))
        for notebook, path in notebooks
    }


def require_carried(root: Path, masters: Iterable[Path]) -> None:
    """See that the package in `root` carries the cells of these notebooks as they are now.

    Raises:
        GradingError: It carries others.
    """
    for name, text in carried(masters).items():
        path = root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            raise GradingError(
                "the package does not know the cells of a notebook as they are now",
                where=path,
                expected="what stands in the notebook, so that submissions are marked with it",
                todo="run `python -m mlhood.grading.notebooks.sync` in the folder of the course",
            )


if __name__ == "__main__":
    for where, content in carried(course_notebooks(Path.cwd())).items():
        write_text(Path.cwd() / where, content)
        print(where)
