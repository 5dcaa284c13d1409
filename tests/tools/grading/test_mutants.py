from __future__ import annotations

import ast

import numpy as np
import pytest

from tests.tools.grading.mutants import APPLIED, mutants
from tests.tools.grading.styles import STYLES, styles

SOURCE = '''
import numpy as np

def mean_of_rows(x, keep=False):
    """Mean of each row."""
    rows, columns = x.shape
    if rows == 0 and not keep:
        return np.zeros(0, np.float32)
    total = np.zeros(rows, np.float32)
    for i in range(columns):
        total[i % rows] += 0
        total += x[:, i]
    y = total / columns
    return y.astype(np.float32)

class Counter:
    def count(self, items):
        return [len(item) + 1 for item in sorted(items)] if items else []
'''


def changes(source: str) -> set[tuple[str, str]]:
    return {(mutant.kind, mutant.change) for mutant in mutants(source)}


@pytest.mark.parametrize(
    ("source", "kind", "change"),
    [
        ("a < b", "another comparison", "a < b -> a <= b"),
        ("a + b", "a term is dropped", "a + b -> a"),
        ("a - b", "swapped operands", "a - b -> b - a"),
        ("x[0]", "off by one", "0 -> 1"),
        ("range(n)", "off by one", "range(n) -> range(n - 1)"),
        ("np.sum(x, axis=1)", "wrong axis", "np.sum(x, axis=1) -> np.sum(x)"),
        ("f(a, b)", "swapped arguments", "f(a, b) -> f(b, a)"),
        ("x.max()", "another function", "x.max -> x.min"),
        ("x.copy()", "a call is dropped", "x.copy() -> x"),
        ("a and b", "a condition is dropped", "a and b -> a"),
        ("y = x + b", "in place", "y = x + b -> if True: x += b y = x"),
        ("a += b", "assigned instead of added", "a += b -> a = b"),
        ("x[a:b]", "a bound is dropped", "a:b -> :b"),
        ("(a, b)", "wrong order", "(a, b) -> (b, a)"),
        ("u if c else v", "a special case only", "u if c else v -> u if True else v"),
    ],
)
def test_each_kind_of_mistake_is_made(source, kind, change):
    assert (kind, change) in changes(source)


def test_mutants_are_python_and_differ_from_the_source_and_each_other():
    found = mutants(SOURCE)
    texts = [mutant.source for mutant in found]
    assert len(set(texts)) == len(texts) > 40
    assert ast.unparse(ast.parse(SOURCE)) not in texts
    for text in texts:
        compile(text, "mutant", "exec")


def test_mutants_name_the_function_that_they_are_in():
    assert {mutant.function for mutant in mutants(SOURCE)} == {"mean_of_rows", "Counter"}


def test_a_change_far_behind_the_beginning_is_shown():
    call = f"fill({', '.join(f'{name}=number_{name}' for name in 'abcdefgh')})"
    shown = {change for kind, change in changes(call) if kind == "an argument is left out"}
    assert "...number_f, g=number_g, h=number_h) -> ...number_f, g=number_g)" in shown
    assert len(shown) == 8


def test_arguments_whose_order_does_not_matter_are_not_swapped():
    assert "swapped arguments" not in {kind for kind, _ in changes("max(a, b)\nnp.maximum(a, b)")}


def test_guards_and_docstrings_have_no_mutants():
    assert changes('y = zip(a, strict=True)\n"""text"""') == set()


def run(source: str, x: np.ndarray) -> tuple[np.ndarray, list[int]]:
    names: dict = {}
    exec(source, names)
    return names["mean_of_rows"](x), names.get(APPLIED, [])


def test_wrappers_change_values_at_run_time_and_say_so():
    wrapped = {mutant.kind: mutant.source for mutant in mutants(SOURCE) if mutant.wrapped}
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = x.copy()
    result, applied = run(wrapped["a list for an array"], x)
    assert result == [1.0, 4.0]
    assert applied
    result, applied = run(wrapped["float64 for float32"], x)
    assert result.dtype == np.float64
    assert applied
    assert not run(wrapped["float for int"], x)[1]
    assert np.array_equal(x, before)
    run(wrapped["its input is changed"], x)
    assert not np.array_equal(x, before)


def test_styles_compute_the_same():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = run(SOURCE, x)[0]
    found = list(styles({"cell": SOURCE}))
    assert {style.name for style in found} == set(STYLES)
    for style in found:
        assert style.sources["cell"] != ast.unparse(ast.parse(SOURCE))
        np.testing.assert_array_equal(run(style.sources["cell"], x)[0], expected)


def test_definitions_change_places():
    source = "def f(a):\n    '''Text.'''\n    return a\n\ndef g(a):\n    return f(a)"
    (style,) = [style for style in styles({"cell": source}) if style.name == "definitions in another order"]
    assert style.sources["cell"] == "def g(a):\n    return f(a)\n\ndef f(a):\n    return a"


def test_a_solution_without_anything_to_write_differently_has_no_styles():
    assert list(styles({"cell": "x = 1"})) == []
