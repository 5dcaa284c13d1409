"""From the master notebook to the student's: solutions become stubs, as nbgrader's ClearSolutions makes them.

1. A region between the solution markers becomes the stub, indented as its first marker; there may be several.
2. A solution cell without a region becomes the stub as a whole.
3. Outputs of solution and check cells go, and of `result` cells after the first solution of their task, which would
   give an answer away; all other outputs stay, such as the diagrams that explain a task. All execution counts go.
4. Graded cells cannot be deleted, given and check cells not edited; their checksums are nbgrader's.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import NotebookError
from mlhood.grading.notebooks.clean import tidy
from mlhood.grading.notebooks.notebook import label

BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"
CODE_STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
TEXT_STUB = ("YOUR ANSWER HERE",)
CLEARED = ("solution", "check")


def student_version(notebook: NotebookNode, path: Path) -> None:
    """Turn a master notebook into the student's, in place.

    Raises:
        NotebookError: Solution markers do not pair up, or stand in a cell that is no solution cell.
    """
    tidy(notebook)
    begun: set[str] = set()  # tasks whose first solution cell has been passed
    for index, cell in enumerate(notebook.cells):
        where = f"{path}, cell {index + 1} ({cell.get('id', 'without id')})"
        cell.source = stubbed(cell, where)
        if cell.cell_type == "code":
            _clear(cell, begun)
        _lock(cell)


def stubbed(cell: NotebookNode, where: str) -> str:
    """The source of a cell with its solution regions replaced by the stub.

    Raises:
        NotebookError: Solution markers do not pair up, or stand in a cell that is no solution cell.
    """
    stub = CODE_STUB if cell.cell_type == "code" else TEXT_STUB
    lines, inside = [], False
    for line in cell.source.split("\n"):
        if BEGIN in line or END in line:
            if inside == (BEGIN in line):
                _refuse("the solution markers do not pair up", line, where)
            inside = BEGIN in line
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + part for part in stub] if inside else []
        elif not inside:
            lines.append(line)
    if inside:
        _refuse("the solution markers do not pair up", "no END SOLUTION after the last BEGIN SOLUTION", where)
    replaced = "\n".join(lines) != cell.source
    if replaced and not _flag(cell, "solution"):
        _refuse("a solution stands in a cell that is not marked as a solution cell", "solution: false", where)
    return "\n".join(stub) if _flag(cell, "solution") and not replaced else "\n".join(lines)


def _refuse(what: str, got: str, where: str) -> None:
    raise NotebookError(
        what,
        where=where,
        expected=f"### {BEGIN} and ### {END} in turn, in a solution cell",
        got=got.strip(),
        todo="repair the cell in the master notebook",
    )


def _flag(cell: NotebookNode, name: str) -> bool:
    grader = cell.metadata.get("nbgrader")
    return bool(grader.get(name, False)) if isinstance(grader, dict) else False


def _clear(cell: NotebookNode, begun: set[str]) -> None:
    known = label(cell)
    if known and known.role == "solution":
        begun.add(known.task)
    if known and (known.role in CLEARED or (known.role == "result" and known.task in begun)):
        cell.outputs = []
    cell.execution_count = None
    for output in cell.outputs:
        if output.output_type == "execute_result":
            output.execution_count = None


def _lock(cell: NotebookNode) -> None:
    solution, grade, locked = (_flag(cell, name) for name in ("solution", "grade", "locked"))
    if not (solution or grade or locked):
        return
    cell.metadata["deletable"] = False
    if not solution:
        cell.metadata["editable"] = False
    cell.metadata.nbgrader["checksum"] = checksum(cell)
    cell.metadata.nbgrader["cell_type"] = cell.cell_type


def checksum(cell: NotebookNode) -> str:
    """The checksum by which nbgrader sees whether a cell has been changed."""
    solution, grade = _flag(cell, "solution"), _flag(cell, "grade")
    locked = not solution and (grade or _flag(cell, "locked"))
    grader = cell.metadata.nbgrader
    parts = [cell.source, cell.cell_type, str(grade), str(solution), str(locked), grader["grade_id"]]
    if grade:
        parts.append(str(float(grader["points"])))
    return hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()
