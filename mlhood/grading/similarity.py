"""Find copies: students whose code is similar, and copies of the package's source and of the course's solutions.

Code is reduced to its statements, each to the tokens of its syntax tree without what a copy is disguised with (see
`_tokens`), and these to sequences of K tokens, the features that are compared. The order of statements does not matter.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from pathlib import Path

from nbformat import NotebookNode

from mlhood.grading.gradebook.records import Record, stored_notebook
from mlhood.grading.notebooks.notebook import label, read
from mlhood.grading.notebooks.source_notebook import synced_cells, variant_texts
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.package_files import source_solutions

PACKAGE = Path(__file__).parents[1]
# the harness, its commands and its errors solve no task; the references of its checks do
EXCLUDED = ("grading", "doctor", "cli.py", "errors.py")
REFERENCES = ("grading", "projects")
MAX_CHARACTERS = 100_000  # of a submission that are compared; a notebook of the course has 36,000
K = 10  # tokens of a feature
MIN_SHARED = 10
MIN_SHARE = 0.5
# a feature of more than a fifth of a class, and of at least seven, is the usual solution
COMMON_SHARE = 0.2
COMMON_COUNT = 6
# everybody writes a loop of three lines in the same way, so a part of a function is evidence only if it is longer
MIN_COPIED = 15
COPIED_SHARE = 0.65
MIN_COPIED_COMPLETELY = 9
COMPLETE_SHARE = 0.9
MIN_UNPARSABLE = 200  # characters; a few words that are not a program are no loss
MAX_PASSAGES = 3
PUBLIC = "the public solution of {}"
BUILTINS = frozenset(dir(builtins))
MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """The code of a student or of the package.

    Args:
        name: Of the student, or of the package's function.
        sources: Source by place, such as a task's id, or a file and a function.
        truncated: Places of which only the beginning is in `sources`.
    """

    name: str
    sources: Mapping[str, str]
    truncated: Sequence[str] = ()

    @cached_property
    def features(self) -> frozenset[str]:
        """The features of all places."""
        return frozenset(feature for source in self.sources.values() for feature in features(source) or ())


@dataclass(frozen=True)
class Passage:
    """Two places that are similar: their names, sources, and the lines (from 1) that they have in common."""

    places: tuple[str, str]
    sources: tuple[str, str]
    lines: tuple[frozenset[int], frozenset[int]]


@dataclass(frozen=True)
class SimilarCode:
    """Two similar documents, or any number of documents with the same features.

    Args:
        names: Of the documents.
        shared: Number of common features.
        share: Their fraction of the smaller document's features (of the original's, for the package's source).
        passages: The similar places of the first two, those with most in common first.
    """

    names: tuple[str, ...]
    shared: int
    share: float
    passages: tuple[Passage, ...]


@dataclass(frozen=True)
class Similarity:
    """What a comparison of a project's submissions has found.

    Args:
        similar: Students whose code is similar.
        copies: Students whose code contains a function of the package, or a solution of the source notebook.
        incomplete: Students and places whose code was not compared, or only its beginning.
    """

    similar: Sequence[SimilarCode] = ()
    copies: Sequence[SimilarCode] = ()
    incomplete: Sequence[tuple[str, str]] = ()


@lru_cache(maxsize=20_000)  # most cells are the course's, and the same in the whole class
def features(source: str) -> Mapping[str, frozenset[int]] | None:
    """Return the features of a program with the lines of their statements; None if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in a student's strings
            tree = ast.parse(MAGIC.sub(r"\1pass", source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    defined = frozenset(_defined_names(tree))
    found: dict[str, set[int]] = defaultdict(set)
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        try:
            tokens = list(_tokens(node, defined))
        except RecursionError:  # such as a sum of thousands of terms: the rest of the program still counts
            continue
        ends = [child.end_lineno or 0 for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        lines = range(node.lineno, max([node.lineno, *ends]) + 1)
        for i in range(len(tokens) - K + 1):
            found[" ".join(tokens[i : i + K])].update(lines)
    return {feature: frozenset(lines) for feature, lines in found.items()}


def _defined_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a program itself gives to functions, classes, attributes and parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _tokens(node: ast.AST, defined: frozenset[str]) -> Iterator[str]:
    """Yield the tokens of a statement without those in its body.

    1. Comments, docstrings and annotations are no tokens.
    2. All names are one token, except those of Python's builtins; so are attributes and keywords that the program
       itself defines. Those of libraries are kept: `np.pad` and `np.roll` are different operations.
    3. A literal is its kind: number, text, or other constant.
    4. `a += b` is `a = a + b`, and `a: int = b` is `a = b`.
    """
    if isinstance(node, ast.AugAssign):
        node = ast.Assign([node.target], ast.BinOp(node.target, node.op, node.value))
    elif isinstance(node, ast.AnnAssign):
        node = ast.Assign([node.target], node.value or ast.Constant(None))
    match node:
        case ast.Name(id=name):
            yield name if name in BUILTINS else "name"
        case ast.Attribute(attr=name):
            yield "attribute" if name in defined else f".{name}"
        case ast.keyword(arg=name):
            yield "keyword" if name in defined else f"{name}="
        case ast.Constant(value=str()) | ast.JoinedStr():
            yield "text"
            return
        case ast.Constant(value=value):
            yield "number" if type(value) in (int, float, complex) else "constant"
        case ast.expr_context():
            return
        case _:
            yield type(node).__name__
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if (
                isinstance(child, ast.AST)
                and not isinstance(child, ast.stmt)
                and field not in ("annotation", "returns")
            ):
                yield from _tokens(child, defined)


def similar_code(documents: Sequence[Document], base: Iterable[str] = ()) -> list[SimilarCode]:
    """Return which documents are the same, and which pairs share half of the smaller one; the most similar ones first.

    The documents are of one project and have unique names. What `base`, the sources given by the course, contains is no
    evidence, nor is what many have on their own: of documents that are the same only the first counts, and is compared
    with the others.
    """
    given = _features_of(base)
    same: dict[frozenset[str], list[Document]] = defaultdict(list)
    for document in sorted(documents, key=lambda document: document.name):
        if len(own := document.features - given) >= MIN_SHARED:
            same[own].append(document)
    found = [_similar(members, own, 1.0) for own, members in same.items() if len(members) > 1]
    common = _common(same, len(documents) - sum(len(members) - 1 for members in same.values()))
    firsts = [(members[0], own - common) for own, members in same.items()]
    for (a, own), (b, other) in combinations(firsts, 2):
        shared = own & other
        if len(shared) >= max(MIN_SHARED, MIN_SHARE * min(len(own), len(other))):
            found.append(_similar([a, b], shared, len(shared) / min(len(own), len(other))))
    return sorted(found, key=_rank)


def package_copies(
    documents: Sequence[Document], originals: Sequence[Document], base: Iterable[str] = ()
) -> list[SimilarCode]:
    """Return the documents that share most of a longer original's features, or nearly all of a shorter one's.

    The originals are the package's, one for each function (see `package_functions`); `base` as in `similar_code`.
    """
    given = _features_of(base)
    common = given | _common((document.features for document in documents), len(documents))
    sources = [(original, original.features - given) for original in originals]
    found = []
    for document in documents:
        own = document.features - common
        for original, source in sources:
            shared = source & own
            share = len(shared) / max(len(source), 1)
            partial = len(shared) >= MIN_COPIED and share >= COPIED_SHARE
            if partial or (len(shared) >= MIN_COPIED_COMPLETELY and share >= COMPLETE_SHARE):
                found.append(_similar([document, original], shared, share))
    return sorted(found, key=_rank)


def _features_of(sources: Iterable[str]) -> frozenset[str]:
    return frozenset(feature for source in sources for feature in features(source) or ())


def _common(documents: Iterable[frozenset[str]], size: int) -> frozenset[str]:
    """Return the features that many of the documents of a class of this size have."""
    counts = Counter(feature for own in documents for feature in own)
    return frozenset(feature for feature, n in counts.items() if n > max(COMMON_COUNT, COMMON_SHARE * size))


def _rank(similar: SimilarCode) -> tuple[float, int, tuple[str, ...]]:
    return -similar.share, -len(similar.names), similar.names


def _similar(documents: Sequence[Document], shared: frozenset[str], share: float) -> SimilarCode:
    """Return what is similar in the first two documents: the places with most in common, each of the first once."""
    a, b, *_ = documents
    holders = {feature: place for place, source in b.sources.items() for feature in features(source) or ()}
    counts = Counter(
        (place, holders[feature])
        for place, source in a.sources.items()
        for feature in shared & (features(source) or {}).keys()
    )
    best: dict[str, str] = {}  # the place of `b` for each of `a`
    for (place, other), _ in counts.most_common():
        best.setdefault(place, other)
    passages = []
    for places in list(best.items())[:MAX_PASSAGES]:
        sources = a.sources[places[0]], b.sources[places[1]]
        first, second = (features(source) or {} for source in sources)
        common = shared & first.keys() & second.keys()
        lines = (frozenset(line for feature in common for line in found[feature]) for found in (first, second))
        passages.append(Passage(places, sources, (next(lines), next(lines))))
    return SimilarCode(tuple(document.name for document in documents), len(shared), share, tuple(passages))


def package_functions() -> Iterator[Document]:
    """Yield a document for each function and class of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE)
        if name.parts[0] in EXCLUDED and name.parts[:2] != REFERENCES:
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                location = f"{PACKAGE.name}/{name.as_posix()}: {node.name}"
                yield Document(location, {location: "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])})


def solution_documents(solutions: Mapping[str, str], name: str) -> list[Document]:
    """Return a document for each task's solution; `name` has `{}` for the task."""
    return [Document(name.format(task), {task: source}) for task, source in solutions.items()]


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
    for done, (project, submitted) in enumerate(documents.items()):
        notify("comparing submissions", done, len(documents))
        base = [*versions, *(cell.source for cell in synced_cells(project))]
        originals = [*package, *solution_documents(source_solutions(project), PUBLIC)]
        for variant_name in sorted(variant_names):
            cells, solutions = variant_texts(PROJECTS[project], variant_name)
            base += cells
            originals += solution_documents(solutions, f"the solution of {{}} in the variant {variant_name}")
        copies = closest_copies(package_copies(submitted, originals, base))
        results[project] = Similarity(similar_code(submitted, base), copies, list(incomplete(submitted)))
    return results


def closest_copies(copies: Iterable[SimilarCode]) -> list[SimilarCode]:
    """Return one copy for each student and task: of the public solution, or of that of a variant.

    Args:
        copies: The most similar ones first.
    """
    first: dict[tuple[str, str], SimilarCode] = {}
    for copy in copies:
        first.setdefault((copy.names[0], copy.passages[0].places[1]), copy)
    return list(first.values())


def document_of(notebook: NotebookNode, student: str) -> Document:
    """Return the code of a submission, of a long one the beginning: solution cells by task, all others by position."""
    cells: dict[str, list[str]] = {}
    for position, cell in enumerate(notebook.cells, start=1):
        cell_label = label(cell)
        if cell.cell_type == "code":
            place = cell_label.task if cell_label and cell_label.role == "solution" else f"cell {position}"
            cells.setdefault(place, []).append(cell.source)
    whole = {place: "\n\n".join(texts) for place, texts in cells.items()}
    sources: dict[str, str] = {}
    remaining = MAX_CHARACTERS
    for place, source in whole.items():
        sources[place] = source[:remaining]
        remaining -= len(sources[place])
    return Document(student, sources, [place for place in whole if len(sources[place]) < len(whole[place])])


def incomplete(documents: Iterable[Document]) -> Iterator[tuple[str, str]]:
    """Yield the documents and places that were not compared, since they are not Python, or only their beginning."""
    for document in documents:
        for place, source in document.sources.items():
            if place in document.truncated or (len(source) >= MIN_UNPARSABLE and features(source) is None):
                yield document.name, place
