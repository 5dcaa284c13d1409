"""Compare the submissions of a class with each other, with the package's source, and with the public solutions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.grading.gradebook.records import Record, stored_notebook
from mlhood.grading.notebooks.notebook import label, read
from mlhood.grading.notebooks.source_notebook import synced_cells, variant_texts
from mlhood.grading.projects.package_files import source_solutions
from mlhood.grading.similarity.compare import (
    Document,
    SimilarGroup,
    SimilarPair,
    package_copies,
    prepare,
    reduced,
    similar_groups,
    unparsable,
)

PACKAGE = Path(__file__).parents[2]
# the harness, its commands and its errors solve no task; the references of its checks do
EXCLUDED = ("grading", "doctor", "cli.py", "errors.py")
REFERENCES = ("grading", "projects")
# characters of a submission that are compared, and of a place in it; parsing them takes seconds, and 90 MiB, at most.
# A notebook of the course has 36,000
MAX_CHARACTERS = 150_000
MAX_PLACE_CHARACTERS = 40_000


def package_functions() -> Iterator[Document]:
    """Yield a document for each function and class of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE)
        if name.parts[0] in EXCLUDED and name.parts[:2] != REFERENCES:
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                location = f"{PACKAGE.name}/{name.as_posix()}: {node.name}"
                yield Document(location, {location: "".join(lines[node.lineno - 1 : node.end_lineno])})


def source_documents(project: str) -> Iterator[Document]:
    """Yield a document for each task's solution in the source notebook, which is public."""
    for task, source in source_solutions(project).items():
        yield Document(f"the public solution of {task}", {task: source})


@dataclass(frozen=True)
class Similarity:
    """What a comparison of a project's submissions has found.

    Args:
        pairs: Students whose code is similar.
        copies: Students whose code contains a function of the package, or a solution of the source notebook.
        unparsable: Students and places whose code could not be compared.
        truncated: Students and places of which only the beginning was compared.
        groups: At least three students whose code is the same.
    """

    pairs: Sequence[SimilarPair] = ()
    copies: Sequence[SimilarPair] = ()
    unparsable: Sequence[tuple[str, str]] = ()
    truncated: Sequence[tuple[str, str]] = ()
    groups: Sequence[SimilarGroup] = ()


def compare_class(
    records: Sequence[Record],
    store: Path,
    given: Iterable[Path],
    notify: Callable[[str, int, int], None],
    variant_names: Iterable[str] = (),
) -> dict[str, Similarity]:
    """Compare submissions, project by project. Given code is recognised by its text, as a cell's label can be forged.

    Args:
        records: Of the class.
        store: Folder of the submitted notebooks.
        given: Notebooks as students got them, where that was another version than the one in this package.
        notify: Called with what is done, the number of finished submissions, and that of all.
        variant_names: Of the variants that the submissions come from.

    Raises:
        NotebookError: A given notebook cannot be read.
        GradingError: A variant cannot be made here.
    """
    versions = [cell.source for path in given for cell in read(path).cells if cell.cell_type == "code"]
    documents: dict[str, list[Document]] = {}
    for done, record in enumerate(records):
        notify("reading submissions", done, len(records))
        notebook = stored_notebook(store, record.submission)
        if notebook is not None:
            documents.setdefault(record.project.id, []).append(document_of(notebook, record.student))
    package = list(package_functions()) if documents else []
    results: dict[str, Similarity] = {}
    for project, submitted in documents.items():
        for done, document in enumerate(submitted):
            notify(f"comparing submissions of {project}", done, len(submitted))
            prepare(document)
        base = [*versions, *(cell.source for cell in synced_cells(project))]
        originals = [*package, *source_documents(project)]
        for variant_name in sorted(variant_names):
            cells, solutions = _variant_texts(project, variant_name)
            base += cells
            originals += solutions
        groups, pairs = similar_groups(submitted, base)
        truncated = [(document.name, place) for document in submitted for place in document.truncated]
        copies = closest_copies(package_copies(submitted, originals, base))
        results[project] = Similarity(pairs, copies, unparsable(submitted), truncated, groups)
    reduced.cache_clear()
    return results


def closest_copies(copies: Iterable[SimilarPair]) -> list[SimilarPair]:
    """Return one copy for each student and task: of the public solution, or of that of a variant.

    Args:
        copies: The most similar ones first.
    """
    first: dict[tuple[str, str], SimilarPair] = {}
    for pair in copies:
        first.setdefault((pair.names[0], pair.passages[0].places[1]), pair)
    return list(first.values())


def _variant_texts(project: str, variant_name: str) -> tuple[list[str], list[Document]]:
    """Return the code cells of a variant, and a document for each solution that only it has."""
    from mlhood.grading.projects import PROJECTS  # the checks, which nothing else here needs

    cells, solutions = variant_texts(PROJECTS[project], variant_name)
    name = f"the solution of {{}} in the variant {variant_name}"
    return cells, [Document(name.format(task), {task: source}) for task, source in solutions.items()]


def document_of(notebook: NotebookNode, student: str) -> Document:
    """Return the code of a submission, of a long one the beginning: solution cells by task, all others by position."""
    cells: dict[str, list[str]] = {}
    for position, cell in enumerate(notebook.cells, start=1):
        cell_label = label(cell)
        if cell.cell_type == "code":
            place = cell_label.task if cell_label and cell_label.role == "solution" else f"cell {position}"
            cells.setdefault(place, []).append(cell.source)
    sources: dict[str, str] = {}
    truncated, remaining = [], MAX_CHARACTERS
    for place, texts in cells.items():
        source = "\n\n".join(texts)
        sources[place] = source[: min(remaining, MAX_PLACE_CHARACTERS)]
        remaining -= len(sources[place])
        if len(sources[place]) < len(source):
            truncated.append(place)
    return Document(student, sources, truncated)
