from __future__ import annotations

import pytest

from mlhood.grading.similarity.syntax_tokens import syntax_tokens


def kinds(source: str) -> list[str]:
    return [token.kind for token in syntax_tokens(source)]


@pytest.mark.parametrize(
    ("original", "copy"),
    [
        ("a = 1  # one", "b = 2"),
        ('"""Text."""\nx = 1\npass\nimport numpy as np', "x = 1"),
        ("def f(a: int, b=2) -> int:\n    '''Doc.'''\n    return a", "def g(x, y=3):\n    return x"),
        ("s += x[i]", "s = s + x[i]"),
        ("n: int = len(x)", "m = len(y)"),
        ("x = '\\d' is f(a)", "y = 'd' is f(b)"),
        ("f'{a} and {b}'.strip()", "'text'.strip()"),
        ("a = f(x)\nb = g(x)[0]\nreturn_ = [a, b]", "r = [c, d]\nc = u(z)[1]\nd = v(z)"),
        (
            "class A:\n    def go(self):\n        self.w = 1\n        return self.w",
            "class B:\n    def run(s):\n        s.q = 2\n        return s.q",
        ),
        ("def f(size):\n    return g(size=size)", "def f(n):\n    return g(n=n)"),
        ("%matplotlib inline\nx = f(y)\n  !ls", "x = f(y)"),
        ("out = !ls -l\nx = f(y)", "x = f(y)"),
        ("no python at all\nx = f(y)", "x = f(y)"),
        ("def f(x):\n    %timeit g(x)\n    return g(x)", "def f(x):\n    return g(x)"),
    ],
)
def test_a_disguise_does_not_change_the_tokens(original, copy):
    assert kinds(original) == kinds(copy)
    assert kinds(original)


@pytest.mark.parametrize(
    ("program", "other"),
    [
        ("np.pad(x)", "np.roll(x)"),
        ("sum(x)", "max(x)"),
        ("a + b", "a - b"),
        ("np.zeros(3, dtype=x)", "np.zeros(3, order=x)"),
        ("for i in x:\n    f(i)", "while x:\n    f(i)"),
        ("f('a')", "f(1)"),
        ("if a:\n    f(b)\ng[c]", "if a:\n    f(b)\n    g[c]"),
    ],
)
def test_a_different_program_has_different_tokens(program, other):
    assert kinds(program) != kinds(other)


def test_tokens_have_their_lines():
    assert {token.line for token in syntax_tokens("\n\nx = f(\n    y,\n    z[0],\n)\n")} == {3, 4, 5}


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
        "\n".join(f"this is line {n}" for n in range(50)),
        "\ud800 = 1",
        "[" * 150 + "]" * 150,
    ],
)
def test_hostile_source_has_few_tokens(source):
    assert len(syntax_tokens(source)) <= 2 * len(source)


def test_a_statement_that_is_too_deep_hides_only_itself():
    deep = "x = " + "+".join("1" for _ in range(1_500))
    assert kinds(f"{deep}\ny = f(z)") == [*kinds("y = f(z)"), "deep"]
