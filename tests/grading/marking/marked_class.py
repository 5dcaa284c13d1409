"""A small gradebook to mark: two students, an undecided task and a written question of each, and hostile answers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mlhood.grading.checks.marks import CheckResult, TaskResult
from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE, SUBMISSIONS_FOLDER, Gradebook, SubmissionEntry
from mlhood.grading.gradebook.records import Record, records
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.marking.server import MarkingServer, serving
from mlhood.grading.notebooks.notebook import write
from mlhood.grading.notebooks.source_notebook import project_cells
from mlhood.grading.projects import PROJECTS
from tests.grading.batch.fake_grader import project
from tests.grading.reports import attacks
from tests.waiting import PATIENCE

CODE = "def run(text):\n    exec(text)\n    return text"
FORGED = "run = lambda text: text"
REASON = "measured several times, and still undecided: `run` is 0.98 to 1.02 times as fast"
GIVEN = next(cell.source for cell in project_cells(PROJECTS["P1"]) if cell.role == "given")
HOSTILE = "\n".join([attacks.TEXT, *attacks.HTML, "</textarea></form>'\"><b>"])


def labelled(cell, task: str, role: str):
    cell.metadata["mlhood"] = {"task": task, "role": role}
    return cell


def notebook(answer: str, code: str = CODE):
    """Return a notebook with a solution of P1.2, an answer to P1.4, a cell that its label forges, and the course's."""
    return new_notebook(
        cells=[
            labelled(new_code_cell(code), "P1.2", "solution"),
            labelled(new_markdown_cell(answer), "P1.4", "question"),
            new_code_cell("mine = '<b>'"),
            labelled(new_code_cell(FORGED), "P1.2", "given"),
            labelled(new_code_cell(GIVEN), "P1.2", "solution"),
        ]
    )


def submit(folder: Path, student: str, answer: str, code: str = CODE, *, undecided: bool = True) -> None:
    """Put a graded submission into the gradebook of a folder; it replaces an earlier one."""
    (folder / SUBMISSIONS_FOLDER).mkdir(parents=True, exist_ok=True)
    path = folder / SUBMISSIONS_FOLDER / "new.ipynb"
    write(notebook(answer, code), path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    path.rename(path.with_name(f"{sha256}.ipynb"))
    submission = SubmittedFile(student, student.title(), "P1", f"{student}.ipynb", sha256=sha256)
    with Gradebook(folder / GRADEBOOK_FILE) as book:
        book.set_projects([project("P1")])
        book.add_submissions([submission])
        book.open_grading(sha256, sha256, "P1")
        for number in (1, 2, 3):
            second = ("undecided", REASON) if undecided and number == 2 else ("failed", "no")
            checks = CheckResult("a", "It <i>runs</i>", 4, "passed"), CheckResult("b", "It is right", 6, *second)
            book.put_task(sha256, TaskResult(f"P1.{number}", f"Task {number}", checks))
        book.close_grading(sha256, "done")
        book.update_entries([SubmissionEntry(submission, "P1", sha256)])


def marked_class(folder: Path) -> Path:
    """Return the gradebook of a new class of two."""
    submit(folder, "ada", "Because.", CODE)
    submit(folder, "bob", HOSTILE, HOSTILE)
    return folder / GRADEBOOK_FILE


def record_of(gradebook: Path, student: str) -> Record:
    with Gradebook(gradebook, must_exist=True) as book:
        return next(record for record in records(book) if record.student == student)


@contextlib.contextmanager
def served(gradebook: Path) -> Iterator[MarkingServer]:
    """Serve the marking page of a gradebook in a thread."""
    started: queue.Queue[tuple[MarkingServer, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        with Gradebook(gradebook, must_exist=True) as book:
            async with serving(book) as server:
                started.put((server, asyncio.get_running_loop(), stop := asyncio.Event()))
                await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    server, loop, stop = started.get(timeout=PATIENCE)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
