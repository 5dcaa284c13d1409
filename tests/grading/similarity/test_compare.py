"""Copies are found in any disguise; independent solutions of one task are not reported as copies."""

from __future__ import annotations

import ast
import builtins
import importlib
import random
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook

from mlhood.grading.notebooks.notebook import label, read
from mlhood.grading.notebooks.source_notebook import solution_source, synced_cells
from mlhood.grading.similarity import compare
from mlhood.grading.similarity.class_similarity import (
    MAX_CHARACTERS,
    MAX_PLACE_CHARACTERS,
    closest_copies,
    document_of,
    package_functions,
    source_documents,
)
from mlhood.grading.similarity.compare import (
    MIN_SHARE,
    WINDOW,
    Document,
    K,
    Passage,
    SimilarPair,
    package_copies,
    reduced,
    similar_groups,
    unparsable,
    winnow,
)
from mlhood.grading.similarity.syntax_tokens import SyntaxToken

ROOT = Path(__file__).parents[3]
PROJECTS = ("P1", "P2", "P3", "P4", "P5")
# Solutions that are too short to tell a copy from what anybody would write.
SHORT = {"P1.4", "P1.7", "P1.9", "P3.9"}


def similar_pairs(documents, base=()) -> list[SimilarPair]:
    groups, pairs = similar_groups(documents, base)
    assert groups == []
    return pairs


def examples(project: str) -> list[Document]:
    """Return the correct solutions of a project: the source notebook's and those in other styles."""
    styles = vars(importlib.import_module(f"tests.grading.projects.{project.lower()}_right"))
    notebook = read(ROOT / f"{project}.ipynb")
    cells = [cell for cell in notebook.cells if (found := label(cell)) and found.role == "solution"]
    documents = [Document(f"{project} source notebook", {cell.id: cell.source for cell in cells})]
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
    solutions = examples(project)
    assert len(solutions) >= 3
    assert similar_pairs(solutions) == []
    copy = disguised(solutions[1], "copy")
    assert all(copy.sources[place] != source for place, source in solutions[1].sources.items())
    pairs = similar_pairs([*solutions, copy])
    assert [set(pair.names) for pair in pairs] == [{solutions[1].name, "copy"}]
    assert pairs[0].share > 0.9


def test_a_partial_copy_is_found():
    solutions = examples("P3")
    mixed = Document("mixed", {**disguised(solutions[1], "").sources, "own": solutions[2].sources["P3-2-solution"]})
    pairs = similar_pairs([*solutions, mixed])
    assert [pair.names for pair in pairs] == [(solutions[1].name, "mixed")]


def test_a_pair_has_the_places_that_are_similar():
    first, *_ = examples("P3")
    pair = similar_pairs([first, disguised(first, "copy")])[0]
    passage = pair.passages[0]
    assert passage.places[0] == passage.places[1]
    lines = passage.sources[1].splitlines()
    assert all(lines[line - 1].strip() not in ("", "# all my own work") for line in passage.lines[1])
    assert len(passage.lines[0]) > 3


def test_base_code_is_no_evidence():
    first, *_ = examples("P2")
    pair = [first, disguised(first, "copy")]
    assert similar_pairs(pair)
    assert similar_pairs(pair, base=first.sources.values()) == []


def own_work(count: int) -> list[Document]:
    source = "def f{0}(x):\n    return x.m{0}(x[{0}], [x.n{0} for y in x], x.p{0}(x.q{0}), x.r{0}[x.s{0}])"
    return [Document(f"h{i}", {"own": source.format(i)}) for i in range(count)]


def test_code_that_many_wrote_on_their_own_is_no_evidence():
    first, *_ = examples("P3")
    others = own_work(14)
    usual = [Document(f"s{i}", {**first.sources, **others[i].sources}) for i in range(7)]
    assert similar_pairs([*usual, *others[7:]]) == []
    assert len(similar_pairs(usual[:6])) == 15
    assert len(similar_pairs([*usual, *own_work(54)[14:]])) == 21  # in a large class seven are few


@pytest.mark.parametrize("size", [3, 7, 30])
def test_a_group_with_the_same_code_is_reported_as_one_however_large(size):
    first, second, *_ = examples("P3")
    ring = [disguised(first, f"r{i:02}") for i in range(size)]
    groups, pairs = similar_groups([*ring, Document("z", second.sources), *own_work(10)])
    assert [group.names for group in groups] == [tuple(document.name for document in ring)]
    assert groups[0].evidence.passages[0].shared > 10
    assert pairs == []


def test_who_changed_a_groups_code_is_paired_with_it():
    first, second, *_ = examples("P3")
    ring = [Document(f"r{i}", first.sources) for i in range(9)]
    changed = Document("z", {**first.sources, "P3-2-solution": second.sources["P3-2-solution"]})
    groups, pairs = similar_groups([*ring, changed])
    assert len(groups[0].names) == 9
    assert [pair.names for pair in pairs] == [("r0", "z")]


def test_thousands_of_tiny_cells_are_compared_in_linear_time(monkeypatch):
    """Counted, not timed: every passage that is built takes a step, and so does every cell."""
    cells = {f"cell {i}": f"x = f{i % 50}(a[{i}], b[c], [d, e])\ny = g(x, x[1:2], x.m{i})" for i in range(2_000)}
    built = []
    original = compare._passage
    monkeypatch.setattr(compare, "_passage", lambda *args: built.append(args) or original(*args))
    documents = [Document("a", cells), Document("b", {f"{place} ": source for place, source in cells.items()})]
    assert [pair.names for pair in similar_pairs(documents)] == [("a", "b")]
    assert len(built) == compare.MAX_PASSAGES


def test_short_and_broken_code_is_similar_to_none():
    short, broken = {"t": "x = 1"}, {"t": "def f(:"}
    assert similar_pairs([Document("a", short), Document("b", short), Document("c", broken), Document("d", {})]) == []


def test_what_cannot_be_compared_is_reported():
    deep = "x = " + "+".join("1" for _ in range(20_000))
    documents = [Document("a", {"t": deep, "u": "def f(:"}), Document("b", {"t": "x = f(y)\n" * 100})]
    assert unparsable(documents) == [("a", "t")]


@pytest.mark.parametrize(("cells", "length"), [(1, 60_000), (30, 10_000), (3, 2_000_000)])
def test_of_a_long_submission_the_beginning_is_compared_and_the_rest_reported(cells, length):
    notebook = new_notebook(cells=[new_code_cell("#" * length) for _ in range(cells)])
    document = document_of(notebook, "eve")
    sizes = [len(source) for source in document.sources.values()]
    assert max(sizes) <= MAX_PLACE_CHARACTERS
    assert sum(sizes) <= MAX_CHARACTERS
    assert list(document.truncated) == [place for place, source in document.sources.items() if len(source) < length]
    assert document.truncated


# -- the package's own source


@pytest.fixture(scope="module")
def package() -> list[Document]:
    return [source for source in package_functions() if "/kernels/" in source.name]


def test_a_copy_of_the_packages_source_is_found(package):
    original = next(source for source in package if source.name.endswith("loops.py: gemm_packed"))
    copy = Document("student", {"P3.7": disguised(original, "").sources[original.name]})
    best = package_copies([copy], package)[0]
    assert best.names == ("student", original.name)
    assert best.share > 0.9
    assert best.passages[0].places == ("P3.7", original.name)


def test_a_short_function_is_found_only_if_it_is_copied_completely():
    part = "def f(x, y):\n    means = np.stack([np.pad(row, 2).mean() for row in x if row.any()])\n"
    text = f"{part}    return means @ np.roll(y[1:-1], 3) + np.abs(y).sum(axis=0)[None, :]\n"
    source = Document("package: f", {"package: f": text})
    complete, part = (Document("s", {"t": code}) for code in (text, part))
    assert [pair.names for pair in package_copies([complete], [source])] == [("s", "package: f")]
    whole, beginning = (reduced(each).fingerprints.keys() for each in (text, part.sources["t"]))
    assert 0 < len(whole & beginning) < len(whole) < 15
    assert package_copies([part], [source]) == []


@pytest.mark.parametrize("project", PROJECTS)
def test_independent_solutions_are_not_copies_of_the_package(project, package):
    assert package_copies(examples(project)[1:], package) == []


def test_the_source_is_complete_and_excludes_the_harness():
    places = [source.name for source in package_functions()]
    assert any(place.endswith("kernels/loops.py: gemm_naive") for place in places)
    assert not any("/grading/" in place and "/grading/projects/" not in place for place in places)
    assert any("/grading/projects/" in place for place in places)
    source = next(source for source in package_functions() if source.name.endswith("loops.py: gemm_naive"))
    assert ast.parse(source.sources[source.name]).body[0].name == "gemm_naive"


@pytest.mark.parametrize("project", PROJECTS)
def test_the_public_sources_solutions_are_found_and_other_right_ones_are_not(project):
    base, originals = [cell.source for cell in synced_cells(project)], list(source_documents(project))
    notebook = read(ROOT / f"{project}.ipynb")
    for cell in notebook.cells:
        cell.source = solution_source(cell)
    found = {pair.names[1] for pair in package_copies([document_of(notebook, "eve")], originals, base)}
    assert {original.name for original in originals} - found <= {f"the public solution of {task}" for task in SHORT}
    assert package_copies(examples(project)[1:], originals, base) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("project", PROJECTS)
def test_independent_solutions_are_far_from_the_limit(project):
    for pair in combinations(examples(project), 2):
        assert all(similar.share < MIN_SHARE / 2 for similar in similar_pairs(list(pair)))


def test_of_the_solutions_of_several_variants_the_closest_is_named():
    def copied(student, original, task, share):
        passage = Passage((task, task), ("", ""), (frozenset(), frozenset()), 9)
        return SimilarPair((student, original), 9, share, (passage,))

    public, variant = "the public solution of P1.6", "the solution of P1.6 in the variant w"
    copies = [
        copied("eve", public, "P1.6", 1.0),
        copied("ada", variant, "P1.6", 1.0),
        copied("eve", "x.py: f", "x.py: f", 0.9),
        copied("eve", variant, "P1.6", 0.8),
        copied("ada", public, "P1.6", 0.8),
    ]
    assert closest_copies(copies) == copies[:3]


KINDS = st.lists(st.sampled_from("abcd"), max_size=60)


def tokens(kinds: list[str]) -> list[SyntaxToken]:
    return [SyntaxToken(kind, line) for line, kind in enumerate(kinds, start=1)]


@given(KINDS, KINDS, KINDS, KINDS, st.lists(st.sampled_from("abcd"), min_size=K + WINDOW - 1, max_size=40))
def test_every_passage_of_the_guaranteed_length_is_found(before, after, above, below, passage):
    first, second = winnow(tokens(before + passage + after)), winnow(tokens(above + passage + below))
    assert first.keys() & second.keys()


@given(KINDS)
def test_a_fingerprint_is_the_hash_of_a_k_gram(kinds):
    selected = winnow(tokens(kinds))
    assert bool(selected) == (len(kinds) >= K)
    hashes = {print_ for i in range(len(kinds) - K + 1) for print_ in winnow(tokens(kinds[i : i + K]))}
    assert selected.keys() <= hashes


@given(st.permutations("abcdefghijklmnopqrstuvwx"))
def test_nothing_shorter_than_k_is_found(letters):
    first, second = list(letters), [letter.upper() for letter in letters]
    second[5 : 5 + K - 1] = first[3 : 3 + K - 1]
    assert not winnow(tokens(first)).keys() & winnow(tokens(second)).keys()


def test_few_hashes_are_selected():
    kinds = [str(i * i % 1009) for i in range(1000)]
    selected = winnow(tokens(kinds))
    # the paper's density: 2 of WINDOW + 1 hashes
    assert 0.5 * 2 / (WINDOW + 1) < len(selected) / 1000 < 1.5 * 2 / (WINDOW + 1)


def test_fingerprints_have_their_lines():
    source = "x = f(a)\n" * 3 + "\n\n" + "y = [np.pad(row, 2) for row in z if row > 3 and row < 9]\n"
    assert 6 in set().union(*reduced(source).fingerprints.values())
    assert not {4, 5} & set().union(*reduced(source).fingerprints.values())
