"""Copies are found in any disguise; honest solutions of one task are not called copies."""

from __future__ import annotations

import ast
import importlib
import random
from itertools import combinations
from pathlib import Path

import pytest

from mlhood.grading.notebooks.notebook import label, read
from mlhood.grading.similarity.compare import LEAST_SHARE, Work, alike, copied, unread
from mlhood.grading.similarity.package_source import own_source
from mlhood.grading.similarity.winnowing import fingerprints

ROOT = Path(__file__).parents[3]
PROJECTS = ("P1", "P2", "P3", "P4", "P5")


def gallery(project: str) -> list[Work]:
    """The right solutions of a project: the master's and those in other styles."""
    styles = vars(importlib.import_module(f"{project.lower()}_right"))
    cells = [
        cell for cell in read(ROOT / f"{project}.ipynb").cells if (known := label(cell)) and known.role == "solution"
    ]
    found = [Work(f"{project} master", {cell.id: cell.source for cell in cells})]
    found += [
        Work(f"{project} {name}", style)
        for name, style in styles.items()
        if name.isupper() and isinstance(style, dict) and any(place.startswith(f"{project}-") for place in style)
    ]
    return found


class Disguise(ast.NodeTransformer):
    """Other names, other numbers and texts, statements in another order, other docstrings."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: dict[str, str] = {}

    def new(self, name: str) -> str:
        return self.names.setdefault(name, f"my_{len(self.names)}_{self.random.randrange(1000)}")

    def visit_Name(self, node):
        known = node.id in dir(__import__("builtins"))
        return node if known else ast.copy_location(ast.Name(self.new(node.id), node.ctx), node)

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


def disguised(work: Work, name: str) -> Work:
    sources = {}
    for place, source in work.sources.items():
        tree = Disguise(len(place)).visit(ast.parse(source))
        text = ast.unparse(ast.fix_missing_locations(tree))
        sources[place] = "# all my own work\n\n" + text.replace("\n", "  # indeed\n\n")
    return Work(name, sources)


@pytest.mark.parametrize("project", PROJECTS)
def test_a_disguised_copy_is_found_and_honest_solutions_are_not(project):
    honest = gallery(project)
    assert len(honest) >= 3
    assert alike(honest) == []
    copy = disguised(honest[1], "copy")
    assert all(copy.sources[place] != source for place, source in honest[1].sources.items())
    found = alike([*honest, copy])
    assert [set(pair.names) for pair in found] == [{honest[1].name, "copy"}]
    assert found[0].share > 0.9


def test_a_copy_with_a_part_of_ones_own_is_found():
    honest = gallery("P3")
    mixed = Work("mixed", {**disguised(honest[1], "").sources, "own": honest[2].sources["P3-2-solution"]})
    found = alike([*honest, mixed])
    assert [pair.names for pair in found] == [(honest[1].name, "mixed")]


def test_a_pair_says_where():
    first, *_ = gallery("P3")
    pair = alike([first, disguised(first, "copy")])[0]
    passage = pair.passages[0]
    assert passage.places[0] == passage.places[1]
    lines = passage.sources[1].splitlines()
    assert all(lines[line - 1].strip() not in ("", "# all my own work") for line in passage.lines[1])
    assert len(passage.lines[0]) > 3


def test_what_was_given_tells_nothing():
    first, *_ = gallery("P2")
    pair = [first, disguised(first, "copy")]
    assert alike(pair)
    assert alike(pair, given=first.sources.values()) == []


def test_what_many_have_tells_nothing():
    first, *_ = gallery("P3")
    ring = [Work(f"s{at}", first.sources) for at in range(7)]
    assert alike(ring) == []
    assert len(alike(ring[:6])) == 15
    # in a large class seven are few
    honest = [
        Work(f"h{at}", {"own": f"def f{at}(x):\n    return x.m{at}(x[{at}], [x.n{at} for y in x])"}) for at in range(40)
    ]
    assert len(alike([*ring, *honest])) == 21


def test_short_and_broken_work_is_alike_with_nobody():
    assert (
        alike([Work("a", {"t": "x = 1"}), Work("b", {"t": "x = 1"}), Work("c", {"t": "def f(:"}), Work("d", {})]) == []
    )


def test_what_cannot_be_compared_is_told():
    deep = "x = " + "+".join("1" for _ in range(20_000))
    works = [Work("a", {"t": deep, "u": "def f(:"}), Work("b", {"t": "x = f(y)\n" * 100})]
    assert unread(works) == [("a", "t")]


# -- the package's own source


@pytest.fixture(scope="module")
def package() -> list[Work]:
    return [source for source in own_source() if "/kernels/" in source.name]


def test_a_copy_of_the_packages_source_is_found(package):
    original = next(source for source in package if source.name.endswith("loops.py: gemm_blocked"))
    copy = Work("student", {"P3.6": disguised(original, "").sources[original.name]})
    best = copied([copy], package)[0]
    assert best.names == ("student", original.name)
    assert best.share > 0.9
    assert best.passages[0].places == ("P3.6", original.name)


def test_a_short_function_is_found_only_if_it_is_whole():
    part = "def f(x, y):\n    means = np.stack([np.pad(one, 2).mean() for one in x if one.any()])\n"
    text = f"{part}    return means @ np.roll(y[1:-1], 3) + np.abs(y).sum(axis=0)[None, :]\n"
    source = Work("package: f", {"package: f": text})
    whole, part = (Work("s", {"t": code}) for code in (text, part))
    assert [pair.names for pair in copied([whole], [source])] == [("s", "package: f")]
    assert 0 < len(fingerprints(text).keys() & fingerprints(part.sources["t"]).keys()) < len(fingerprints(text)) < 15
    assert copied([part], [source]) == []


@pytest.mark.parametrize("project", PROJECTS)
def test_honest_solutions_are_no_copies_of_the_package(project, package):
    assert copied(gallery(project)[1:], package) == []


def test_the_source_is_whole_and_leaves_the_harness_out():
    places = [source.name for source in own_source()]
    assert any(place.endswith("kernels/loops.py: gemm_naive") for place in places)
    assert not any("/grading/" in place for place in places)
    source = next(source for source in own_source() if source.name.endswith("loops.py: gemm_naive"))
    assert ast.parse(source.sources[source.name]).body[0].name == "gemm_naive"


@pytest.mark.parametrize("project", PROJECTS)
def test_honest_solutions_are_far_from_the_limit(project):
    works = gallery(project)
    for pair in combinations(works, 2):
        assert all(found.share < LEAST_SHARE / 2 for found in alike(list(pair)))
