"""Formulas in Markdown: which are found, which are understood, and how they are converted."""

from __future__ import annotations

import pytest

from mlhood.notebook_view.formulas import Formula, faults, formulas


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("a $x^2$ b $y$", [Formula("x^2", display=False), Formula("y", display=False)]),
        ("$$a\n+ b$$", [Formula("a\n+ b", display=True)]),
        ("`$x$` and ``a ` $y$`` \n```\n$z$\n```\n<!-- $w$ -->", []),
        (r"\$5 and \$6", []),
        ("one $ here\n\nanother $ there", []),
    ],
)
def test_formulas_are_found_where_a_renderer_finds_them(markdown, expected):
    assert formulas(markdown) == expected


@pytest.mark.parametrize(
    ("markdown", "what"),
    [
        ("costs $5", "a dollar sign without a partner"),
        ("costs $5 and $6", "a space inside a dollar sign"),
        (r"where \(x\) is", r"the delimiter \("),
        (r"\[x\]", r"the delimiter \["),
        (r"so \frac{1}{2} of it", r"\frac outside of a formula"),
        (r"$\frac{1$", "{ and } in different numbers"),
        (r"$\left( x$", r"\left and \right in different numbers"),
        (r"$$\begin{aligned} x$$", r"\begin and \end in different numbers"),
        (r"$\qwertz x$", "is not understood"),
        ("| a |\n|---|\n| $|x|$ |", "has a | in a table"),
    ],
)
def test_what_no_renderer_understands_is_found(markdown, what):
    found = list(faults(markdown))
    assert any(what in fault for fault, _ in found), found
    assert all(todo for _, todo in found)


UNDERSTOOD = [
    r"\frac{a_i}{\sqrt{b}}",
    r"\begin{cases} x & x > 0 \\ 0 & \text{otherwise} \end{cases}",
    r"\begin{aligned} a &= b \\ c &= d \end{aligned}",
    r"\left\lfloor \frac{H + 2p - k}{s} \right\rfloor + 1",
    r"\operatorname{softmax}(x)_i \in \mathbb{R}^{n \times m}",
    r"\lVert x \rVert_2 \le \{a\}",
    r"\underbrace{a}_{b} \implies c \dots",
    r"x_{\mathrm{kernel\_h}} \bmod 4",
]


@pytest.mark.parametrize("tex", UNDERSTOOD)
def test_what_mathjax_understands_is_converted(tex):
    assert list(faults(f"so ${tex}$ holds")) == []
