"""Copies are found in any disguise; independent solutions of one task are not reported as copies."""

from __future__ import annotations

import ast
import builtins
import importlib
import random
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from mlhood.grading.notebooks.notebook import label, read
from mlhood.grading.notebooks.source_notebook import solution_source, synced_cells
from mlhood.grading.projects.package_files import source_solutions
from mlhood.grading.similarity import (
    MAX_CHARACTERS,
    PUBLIC,
    Document,
    Passage,
    SimilarCode,
    closest_copies,
    document_of,
    features,
    incomplete,
    package_copies,
    package_functions,
    similar_code,
    solution_documents,
)

ROOT = Path(__file__).parents[2]
PROJECTS = ("P1", "P2", "P3", "P4", "P5")
# Solutions that are too short to tell a copy from what anybody would write.
SHORT = {"P1.1", "P3.9"}


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
    assert similar_code(solutions) == []
    copy = disguised(solutions[1], "copy")
    assert all(copy.sources[place] != source for place, source in solutions[1].sources.items())
    pairs = similar_code([*solutions, copy])
    assert [set(pair.names) for pair in pairs] == [{solutions[1].name, "copy"}]
    assert pairs[0].share > 0.9


def test_a_partial_copy_is_found():
    solutions = examples("P3")
    mixed = Document("mixed", {**disguised(solutions[1], "").sources, "own": solutions[2].sources["P3-2-solution"]})
    pairs = similar_code([*solutions, mixed])
    assert [pair.names for pair in pairs] == [(solutions[1].name, "mixed")]


def test_a_pair_has_the_places_that_are_similar():
    first, *_ = examples("P3")
    pair = similar_code([first, disguised(first, "copy")])[0]
    passage = pair.passages[0]
    assert passage.places[0] == passage.places[1]
    lines = passage.sources[1].splitlines()
    assert all(lines[line - 1].strip() not in ("", "# all my own work") for line in passage.lines[1])
    assert len(passage.lines[0]) > 3


def test_base_code_is_no_evidence():
    first, *_ = examples("P2")
    pair = [first, disguised(first, "copy")]
    assert similar_code(pair)
    assert similar_code(pair, base=first.sources.values()) == []


def names(source: str) -> frozenset[str]:
    return Document("a", {"t": source}).features


def own_work(count: int) -> list[Document]:
    source = "def f{0}(x):\n    return x.m{0}(x[{0}], [x.n{0} for y in x], x.p{0}(x.q{0}), x.r{0}[x.s{0}])"
    return [Document(f"h{i:02}", {"own": source.format(i)}) for i in range(count)]


def test_code_that_many_wrote_on_their_own_is_no_evidence():
    first, *_ = examples("P3")
    others = own_work(14)
    usual = [Document(f"s{i}", {**first.sources, **others[i].sources}) for i in range(7)]
    assert similar_code([*usual, *others[7:]]) == []
    assert len(similar_code(usual[:6])) == 15
    assert len(similar_code([*usual, *own_work(54)[14:]])) == 21  # in a large class seven are few


@pytest.mark.parametrize("size", [2, 7, 30])
def test_the_same_code_is_reported_once_however_large_the_group(size):
    first, second, *_ = examples("P3")
    ring = [disguised(first, f"r{i:02}") for i in range(size)]
    (similar,) = similar_code([*ring, Document("z", second.sources), *own_work(10)])
    assert similar.names == tuple(document.name for document in ring)
    assert (similar.share, len(similar.passages)) == (1.0, 3)


def test_who_changed_a_groups_code_is_paired_with_it():
    first, second, *_ = examples("P3")
    ring = [Document(f"r{i}", first.sources) for i in range(9)]
    changed = Document("z", {**first.sources, "P3-2-solution": second.sources["P3-2-solution"]})
    group, pair = similar_code([*ring, changed])
    assert (len(group.names), pair.names) == (9, ("r0", "z"))


def test_short_and_broken_code_is_similar_to_none():
    short, broken = {"t": "x = 1"}, {"t": "def f(:"}
    assert similar_code([Document("a", short), Document("b", short), Document("c", broken), Document("d", {})]) == []


def test_what_cannot_be_compared_is_reported():
    deep = "x = " + "-" * 20_000 + "1"
    documents = [Document("a", {"t": deep, "u": "def f(:"}), Document("b", {"t": "x = f(y)\n" * 100})]
    assert list(incomplete(documents)) == [("a", "t")]


@pytest.mark.parametrize(("cells", "length"), [(1, 120_000), (30, 10_000), (3, 2_000_000)])
def test_of_a_long_submission_the_beginning_is_compared_and_the_rest_reported(cells, length):
    notebook = new_notebook(cells=[new_code_cell("#" * length) for _ in range(cells)])
    document = document_of(notebook, "eve")
    assert sum(len(source) for source in document.sources.values()) == MAX_CHARACTERS
    cut = [place for place, source in document.sources.items() if len(source) < length]
    assert [place for _, place in incomplete([document])] == cut
    assert cut


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
    part = "def f(x, y):\n    means = np.stack([row.mean() for row in x if row.any()])\n"
    text = f"{part}    return means @ np.roll(y[1:-1], 3)\n"
    source = Document("package: f", {"package: f": text})
    complete, part = (Document("s", {"t": code}) for code in (text, part))
    assert [pair.names for pair in package_copies([complete], [source])] == [("s", "package: f")]
    assert 0 < len(part.features) < len(source.features) < 15
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
    base, originals = (
        [cell.source for cell in synced_cells(project)],
        solution_documents(source_solutions(project), PUBLIC),
    )
    notebook = read(ROOT / f"{project}.ipynb")
    for cell in notebook.cells:
        cell.source = solution_source(cell)
    found = {pair.names[1] for pair in package_copies([document_of(notebook, "eve")], originals, base)}
    assert {original.name for original in originals} - found <= {f"the public solution of {task}" for task in SHORT}
    assert package_copies(examples(project)[1:], originals, base) == []


def test_of_the_solutions_of_several_variants_the_closest_is_named():
    def copied(student, original, task, share):
        passage = Passage((task, task), ("", ""), (frozenset(), frozenset()))
        return SimilarCode((student, original), 9, share, (passage,))

    public, variant = "the public solution of P1.6", "the solution of P1.6 in the variant w"
    copies = [
        copied("eve", public, "P1.6", 1.0),
        copied("ada", variant, "P1.6", 1.0),
        copied("eve", "x.py: f", "x.py: f", 0.9),
        copied("eve", variant, "P1.6", 0.8),
        copied("ada", public, "P1.6", 0.8),
    ]
    assert closest_copies(copies) == copies[:3]


@pytest.mark.parametrize(
    ("original", "copy"),
    [
        ("f(a, b, c, [1, 2], x[0])  # one", "g(b, c, d,\n  [2, 4], y[1])"),
        (
            "def f(a: int, b=2, *c) -> int:\n    'Doc.'\n    return a[a, b, c, 1, f(b, c)]",
            "def g(x, y=3, *z):\n    return x[x, y, z, 2, g(y, z)]",
        ),
        ("s[i] += f(x[i], y[i], z, 1)", "s[i] = s[i] + f(x[i], y[i], z, 2)"),
        ("n: int = f(a, b, c, d, e, 1, 2, 3)", "m = f(a, b, c, d, e, 3, 2, 1)"),
        ("x = f('a', b, c, f'{d}', e, 1, 2).strip()", "x = f('b', b, c, f'{e} and {d}', e, 1, 2).strip()"),
        (
            "class A:\n    def go(self):\n        self.w = f(1, 2, 3)\n        return f(self.w, self.w, size=self.w)",
            "class B:\n    def run(s):\n        s.q = f(1, 2, 3)\n        return f(s.q, s.q, size=s.q)",
        ),
        ("%matplotlib inline\nx = f(a, b, c, d, e, f, g)\n!ls", "x = f(a, b, c, d, e, f, g)"),
    ],
)
def test_a_disguise_does_not_change_the_features(original, copy):
    assert names(original) == names(copy)
    assert names(original)


@pytest.mark.parametrize(
    ("program", "other"),
    [("np.pad(x)", "np.roll(x)"), ("sum(x)", "max(x)"), ("a + b", "a - b"), ("f(k=x)", "f(n=x)"), ("f('a')", "f(1)")],
)
def test_a_different_program_has_different_features(program, other):
    programs = (f"x = [a, b, c, d, e, f, g, {each}]" for each in (program, other))
    assert len(set(map(names, programs))) == 2


def test_features_have_the_lines_of_their_statements():
    source = "for i in range(1, 2, 3, 4, 5, 6, 7):\n    x = f(a)\n\ny = g(\n    a, b, c, d, e, f, h\n)\n"
    assert set().union(*(features(source) or {}).values()) == {1, 4, 5, 6}


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def f(:",
        "x = '" + "\x00'",
        "(" * 5_000,
        "-" * 50_000 + "1",
        "a" * 300_000,
        "x." * 20_000 + "y",
        "\ud800 = 1",
        "[" * 150 + "]" * 150,
    ],
)
def test_hostile_source_has_few_features(source):
    assert len(features(source) or ()) <= len(source)


def test_a_statement_that_is_too_deep_hides_only_itself():
    deep, other = "x = " + "+".join("1" for _ in range(1_500)), "y = f(a, b, c, d, e, f, g)"
    assert names(other) <= names(f"{deep}\n{other}")
