"""The text form of programs: the same program, the same text, and back."""

import numpy as np
import pytest

from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.parse import constants_by_digest, parse
from mlhood.compiler.lir.text import to_text
from mlhood.compiler.lir.verify import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError

TEXT = """\
function "two"
declare {
  input %x : float32[2, 3]
  constant %"odd name" : float32[3] = [0.5, -1.0, inf]
  constant %q : int8[2] quantized(scale=[0.1, 0.25], offset=[0, -3], axis=0) = [1, 2]
  output "x" = %x_1 : float32[6]
  output %y : float32[2, 3]
}
program {
  alloc %a : float32[2, 3]
  elementsub @out %a, @in %x, @in %"odd name"
  elementsub @in %x, @inout %a
  call Erf @inout %a
  tensorview %flat : float32[6] = %a
  copy @out %x_1, @in %flat
  alloc %limit : float32[2, 3]
  clip @out %limit, @in %a {low=0.0, high=6.0}
  dealloc %a
  copy @out %y, @in %limit
  dealloc %limit
}
"""


def test_text_and_program_go_both_ways():
    program = parse(TEXT)
    verify(program)
    assert to_text(program) == TEXT
    assert list(program.outputs) == ["x", "y"]


def test_a_lowered_network_is_read_back(lenet_onnx):
    program = lower(import_model(lenet_onnx))
    text = to_text(program)
    again = parse(text, constants_by_digest(program))
    verify(again)
    assert to_text(again) == text
    np.testing.assert_array_equal(again.weights["fc1.weight"].data, program.weights["fc1.weight"].data)
    with pytest.raises(CompilerError, match="was not given"):
        parse(text)


def test_inputs_that_are_left_out_keep_their_place():
    line = "call InstanceNormalization @out %a, @in %x, @in none, @in %x"
    text = TEXT.replace('elementsub @out %a, @in %x, @in %"odd name"', line)
    assert line in to_text(parse(text))


def test_comments_and_empty_lines_are_skipped():
    assert to_text(parse("# twice\n\n" + TEXT.replace("program {", "program {\n  # first"))) == TEXT


@pytest.mark.parametrize(
    ("line", "column", "expected", "got"),
    [
        ("frobnicate @out %y, @in %x", 3, "an instruction", "'frobnicate'"),
        ("relu %y, @in %x", 8, "@in or @out or @inout", "'%y'"),
        ("relu @out %y @in %x", 16, "the end of the line", "'@in'"),
        ("relu @out %y, @in", 20, "a value", "the end of the line"),
        ("relu @out %y, @in %z", 21, "declares, allocates or views", "%z"),
        ("alloc %x : float32[2]", 9, "another name", "x"),
        ("alloc %b float32[2]", 12, "':'", "'float32'"),
        ("tensorview %b : float32[6] %x", 30, "'='", "'%x'"),
        ("copy @in %x, @out %y", None, "@out, @in", "@in, @out"),
        ("elementadd @inout %y, @inout %y", None, "one @inout", "@inout, @inout"),
        ("call Nonsense @out %y, @in %x", None, None, "Nonsense"),
        ("relu @out %y, @in %x {slope=1}", None, None, "slope"),
        ("§", 3, None, "§"),
        ("declare {", 3, "an instruction", "'declare'"),
    ],
)
def test_a_line_that_is_wrong_is_refused_with_its_place(line, column, expected, got):
    text = 'function "f"\ndeclare {\n  input %x : float32[2]\n  output %y : float32[2]\n}\nprogram {\n  '
    with pytest.raises(CompilerError) as caught:
        parse(f"{text}{line}\n}}\n")
    parts = caught.value.parts
    assert parts["where"] == ("line 7" if column is None else f"line 7, column {column}")
    assert (expected or "") in parts.get("expected", "")
    assert got in parts["got"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("relu @out %y, @in %x", "function, declare or program"),
        ("declare {\n", "'}'"),
        ("declare {\n  alloc %x : float32[2]\n}", "input, constant, output"),
        ("declare {\n  constant %c : float32[2] = [1.0]\n}", "the line is invalid"),
        ('declare {\n  output %y : float32[2]\n  output "y" = %z : float32[2]\n}', "two outputs of one name"),
        ("}", "function, declare or program"),
    ],
)
def test_what_stands_in_the_wrong_part_is_refused(text, message):
    with pytest.raises(CompilerError) as caught:
        parse(text)
    assert message in str(caught.value)
