"""Drawings of traced programs."""

import pytest

from mlhood.jaxlab.tracing import tracer
from mlhood.jaxlab.tracing.tracer import Equation, Program, TraceError, fresh
from tests.graph_drawing.geometry import check, check_words


def test_a_program_is_drawn_completely_and_readably(tmp_path):
    def function(x, w):
        y = tracer.relu(x @ w)
        return 2.0 - y * y, x.sum(), 3.5

    drawing = tracer.trace(function, (4, 3), (3, 5)).draw()
    check(drawing.placement)
    check_words(drawing)
    titles = [placed.box.lines[0].text for placed in drawing.placement.boxes]
    assert titles == ["a", "b", "matmul", "relu", "mul", "sub", "sum", "result 0", "result 1", "result 2"]
    text = drawing.save(tmp_path / "program.svg").read_text(encoding="utf-8")
    assert ">sub 2.0 e<" in text
    assert ">[4, 5]<" in text


def test_an_undefined_variable_is_shown_with_its_number():
    undefined = fresh((2,))
    program = Program((), (Equation("neg", (undefined,), fresh((2,))),), (undefined,))
    assert f"?{undefined.number}" in program.draw().svg


def test_invalid_and_long_programs_are_rejected():
    first, second = fresh(()), fresh(())
    cycle = Equation("neg", (second,), first), Equation("neg", (first,), second)
    with pytest.raises(TraceError, match="before its definition"):
        Program((), cycle, (first,)).draw()
    long = tracer.trace(lambda x: [x := -x for _ in range(151)][-1], ())
    with pytest.raises(TraceError, match="too long to be drawn"):
        long.draw()
