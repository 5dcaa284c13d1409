"""Copies are found in any disguise; independent solutions of one task are not reported as copies."""

from __future__ import annotations

import ast
import builtins
import importlib
import random
from itertools import combinations
from pathlib import Path

import pytest

from mlhood.grading.notebooks.notebook import label, read
from mlhood.grading.similarity.class_similarity import package_functions
from mlhood.grading.similarity.compare import MIN_SHARE, Document, package_copies, similar_pairs, unparsable
from mlhood.grading.similarity.winnowing import fingerprints

ROOT = Path(__file__).parents[3]
PROJECTS = ("P1", "P2", "P3", "P4", "P5")


def gallery(project: str) -> list[Document]:
    """Return the correct solutions of a project: the master's and those in other styles."""
    styles = vars(importlib.import_module(f"tests.grading.projects.{project.lower()}_right"))
    notebook = read(ROOT / f"{project}.ipynb")
    cells = [cell for cell in notebook.cells if (found := label(cell)) and found.role == "solution"]
    documents = [Document(f"{project} master", {cell.id: cell.source for cell in cells})]
    documents += [
        Document(f"{project} {name}", style)
        for name, style in styles.items()
        if name.isupper() and isinstance(style, dict) and any(place.startswith(f"{project}-") for place in style)
    ]
    return documents


class Disguise(ast.NodeTransformer):
    """Changes names, numbers, texts and docstrings, and the order of statements."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: dict[str, str] = {}

    def new(self, name: str) -> str:
        return self.names.setdefault(name, f"my_{len(self.names)}_{self.random.randrange(1000)}")

    def visit_Name(self, node):
        builtin = node.id in dir(builtins)
        return node if builtin else ast.copy_location(ast.Name(self.new(node.id), node.ctx), node)

    def visit_arg(self, node):
        return ast.arg(self.new(node.arg))

    def visit_Constant(self, node):
        changed = {int: lambda: node.value + 17, float: lambda: node.value * 3, str: lambda: f"{node.value} indeed"}
        return ast.Constant(changed.get(type(node.value), lambda: node.value)())

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        self.random.shuffle(node.body)
        node.name = self.new(node.name)
        return node


def disguised(document: Document, name: str) -> Document:
    sources = {}
    for place, source in document.sources.items():
        tree = Disguise(len(place)).visit(ast.parse(source))
        text = ast.unparse(ast.fix_missing_locations(tree))
        sources[place] = "# all my own work\n\n" + text.replace("\n", "  # indeed\n\n")
    return Document(name, sources)


@pytest.mark.parametrize("project", PROJECTS)
def test_a_disguised_copy_is_found_and_independent_solutions_are_not(project):
    solutions = gallery(project)
    assert len(solutions) >= 3
    assert similar_pairs(solutions) == []
    copy = disguised(solutions[1], "copy")
    assert all(copy.sources[place] != source for place, source in solutions[1].sources.items())
    pairs = similar_pairs([*solutions, copy])
    assert [set(pair.names) for pair in pairs] == [{solutions[1].name, "copy"}]
    assert pairs[0].share > 0.9


def test_a_partial_copy_is_found():
    solutions = gallery("P3")
    mixed = Document("mixed", {**disguised(solutions[1], "").sources, "own": solutions[2].sources["P3-2-solution"]})
    pairs = similar_pairs([*solutions, mixed])
    assert [pair.names for pair in pairs] == [(solutions[1].name, "mixed")]


def test_a_pair_has_the_places_that_are_similar():
    first, *_ = gallery("P3")
    pair = similar_pairs([first, disguised(first, "copy")])[0]
    passage = pair.passages[0]
    assert passage.places[0] == passage.places[1]
    lines = passage.sources[1].splitlines()
    assert all(lines[line - 1].strip() not in ("", "# all my own work") for line in passage.lines[1])
    assert len(passage.lines[0]) > 3


def test_base_code_is_no_evidence():
    first, *_ = gallery("P2")
    pair = [first, disguised(first, "copy")]
    assert similar_pairs(pair)
    assert similar_pairs(pair, base=first.sources.values()) == []


def test_code_of_many_students_is_no_evidence():
    first, *_ = gallery("P3")
    ring = [Document(f"s{i}", first.sources) for i in range(7)]
    assert similar_pairs(ring) == []
    assert len(similar_pairs(ring[:6])) == 15
    # in a large class seven are few
    independent = [
        Document(f"h{i}", {"own": f"def f{i}(x):\n    return x.m{i}(x[{i}], [x.n{i} for y in x])"}) for i in range(40)
    ]
    assert len(similar_pairs([*ring, *independent])) == 21


def test_short_and_broken_code_is_similar_to_none():
    short, broken = {"t": "x = 1"}, {"t": "def f(:"}
    assert similar_pairs([Document("a", short), Document("b", short), Document("c", broken), Document("d", {})]) == []


def test_what_cannot_be_compared_is_reported():
    deep = "x = " + "+".join("1" for _ in range(20_000))
    documents = [Document("a", {"t": deep, "u": "def f(:"}), Document("b", {"t": "x = f(y)\n" * 100})]
    assert unparsable(documents) == [("a", "t")]


# -- the package's own source


@pytest.fixture(scope="module")
def package() -> list[Document]:
    return [source for source in package_functions() if "/kernels/" in source.name]


def test_a_copy_of_the_packages_source_is_found(package):
    original = next(source for source in package if source.name.endswith("loops.py: gemm_blocked"))
    copy = Document("student", {"P3.6": disguised(original, "").sources[original.name]})
    best = package_copies([copy], package)[0]
    assert best.names == ("student", original.name)
    assert best.share > 0.9
    assert best.passages[0].places == ("P3.6", original.name)


def test_a_short_function_is_found_only_if_it_is_copied_completely():
    part = "def f(x, y):\n    means = np.stack([np.pad(row, 2).mean() for row in x if row.any()])\n"
    text = f"{part}    return means @ np.roll(y[1:-1], 3) + np.abs(y).sum(axis=0)[None, :]\n"
    source = Document("package: f", {"package: f": text})
    complete, part = (Document("s", {"t": code}) for code in (text, part))
    assert [pair.names for pair in package_copies([complete], [source])] == [("s", "package: f")]
    assert 0 < len(fingerprints(text).keys() & fingerprints(part.sources["t"]).keys()) < len(fingerprints(text)) < 15
    assert package_copies([part], [source]) == []


@pytest.mark.parametrize("project", PROJECTS)
def test_independent_solutions_are_not_copies_of_the_package(project, package):
    assert package_copies(gallery(project)[1:], package) == []


def test_the_source_is_complete_and_excludes_the_harness():
    places = [source.name for source in package_functions()]
    assert any(place.endswith("kernels/loops.py: gemm_naive") for place in places)
    assert not any("/grading/" in place for place in places)
    source = next(source for source in package_functions() if source.name.endswith("loops.py: gemm_naive"))
    assert ast.parse(source.sources[source.name]).body[0].name == "gemm_naive"


@pytest.mark.parametrize("project", PROJECTS)
def test_independent_solutions_are_far_from_the_limit(project):
    for pair in combinations(gallery(project), 2):
        assert all(similar.share < MIN_SHARE / 2 for similar in similar_pairs(list(pair)))
