"""Parsing HLO: every part of a line, and XLA's text for loops, conditionals, sorting and random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.errors import XlaError
from mlhood.jaxlab.xla.hlo import ArrayType, HloInstruction, parse, strip_sources
from mlhood.jaxlab.xla.views import view

# a compiled module, abridged
COMPILED = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

FileNames
1 "elsewhere/probe.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=8 end_line=8 column=2 end_column=22}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%sum.1 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a, %b), metadata={op_name="jit(f)/sum" stack_frame_id=1}
}

%fused.2 (p: f32[2,3,4]) -> (f32[4], s32[2,2]) {
  %p = f32[2,3,4]{0,2,1:T(8,128)} parameter(0)
  %c = s32[2,2]{1,0} constant({ { 1, 2 }, { 3, 4 } })
  %z = f32[] constant(0)
  %reduce = f32[4]{0} reduce(%p, %z), dimensions={0,1}, to_apply=%sum.1
  ROOT %t = (f32[4]{0}, /*index=1*/s32[2,2]{1,0}) tuple(f32[4]{0} %reduce, s32[2,2]{1,0} %c)
}

ENTRY %main.3 (x.1: f32[2,3,4]) -> f32[4] {
  %x.1 = f32[2,3,4]{0,2,1} parameter(0), metadata={op_name="x"}
  %once = (f32[4]{0}, s32[2,2]{1,0}) fusion(%x.1), kind=kLoop, calls=%fused.2
  %twice = (f32[4]{0}, s32[2,2]{1,0}) fusion(%x.1), kind=kCustom, calls=%fused.2, backend_config={"kind":"a(b"}
  %one = f32[4]{0} get-tuple-element(%once), index=0
  ROOT %two = f32[4]{0} get-tuple-element(%twice), index=0
}
"""


def test_every_part_of_a_line_is_parsed():
    module = parse(COMPILED)
    assert (module.name, module.entry_name) == ("jit_f", "main.3")
    assert [*module.computations] == ["sum.1", "fused.2", "main.3"]
    lines = module.entry.instructions
    assert lines["once"] == HloInstruction(
        "once", "(f32[4]{0}, s32[2,2]{1,0})", "fusion", ("x.1",), ("fused.2",), "", "kind=kLoop, calls=%fused.2"
    )
    assert lines["once"].arrays == (ArrayType("f32", (4,), (0,)), ArrayType("s32", (2, 2), (1, 0)))
    assert (lines["once"].attribute("kind"), lines["one"].attribute("index")) == ("kLoop", "0")
    assert lines["once"].attribute("to_apply") is None
    assert module.entry.root is lines["two"]
    inside = module.computations["fused.2"].instructions
    assert inside["p"].arrays == (ArrayType("f32", (2, 3, 4), (0, 2, 1)),)
    assert inside["c"].literal == "{ { 1, 2 }, { 3, 4 } }"
    assert inside["c"].operands == ()
    assert inside["t"].operands == ("reduce", "c")
    assert inside["reduce"].calls == ("sum.1",)
    assert inside["reduce"].attribute("dimensions") == "{0,1}"


def test_a_fusions_operations_are_counted_for_each_call_and_a_reductions_sum_is_not():
    module = parse(COMPILED)
    assert module.operations() == {"constant": 4, "fusion": 2, "get-tuple-element": 2, "reduce": 2, "tuple": 2}
    assert module.operations(inside=False) == {"fusion": 2, "get-tuple-element": 2}
    assert module.fusions() == dict.fromkeys(("once", "twice"), ("constant", "constant", "reduce", "tuple"))


def test_only_source_information_is_stripped():
    text = strip_sources(COMPILED)
    assert "elsewhere" not in text
    assert "stack_frame" not in text
    assert parse(text).operations() == parse(COMPILED).operations()
    assert text.startswith(COMPILED.splitlines()[0])
    assert text.endswith(COMPILED[COMPILED.index("ENTRY") :])


@pytest.mark.parametrize(
    ("text", "size"),
    [("f32[2,3]", 24), ("bf16[5]", 10), ("pred[7]", 7), ("s4[3]", 3), ("c64[2]", 16), ("f8e4m3fn[4]", 4), ("u8[]", 1)],
)
def test_bytes_of_an_array(text, size):
    array = HloInstruction("a", text, "copy").arrays[0]
    assert array.bytes == size
    assert str(array) == text


@pytest.mark.parametrize("text", ["", "module @jit_f {\n}", "HloModule m\n\nENTRY main {\n}\n"])
def test_other_text_is_rejected(text):
    with pytest.raises(XlaError, match="not an HLO module"):
        parse(text)


def test_an_invalid_line_is_rejected():
    with pytest.raises(XlaError, match="invalid line of HLO"):
        parse("HloModule m\n\nENTRY main {\n  what is this\n}\n")


def everything(x):
    """Use operations that have computations of their own."""
    _, y = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5), (0, x))
    z = jax.nn.softmax(jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2), (1, 2), "VALID"))
    return jnp.sort(z), {"c": jax.lax.cond(z[0, 0] > 0, jnp.sin, jnp.cos, z), "k": jax.random.normal(jax.random.key(0))}


@pytest.mark.parametrize("stage", ["hlo", "optimized"])
def test_references_in_xlas_text_are_consistent(stage):
    module = view(everything, np.ones((2, 8), np.float32)).module(stage)
    all_names = set().union(*(computation.instructions for computation in module.computations.values()))
    for computation in module.computations.values():
        # a region of StableHLO may use values of the enclosing ones
        visible = all_names if stage == "stablehlo" else set(computation.instructions)
        for instruction in computation.instructions.values():
            assert set(instruction.operands) <= visible, instruction
            assert set(instruction.calls) <= set(module.computations), instruction
            assert instruction.arrays or instruction.opcode in ("return", "token"), instruction
    counts = module.operations()
    # XLA may unroll the loop and turn the conditional into a select
    assert counts["sort"] == 1
    assert counts["cosine"] == counts["sine"] == 1
    if stage != "optimized":
        assert counts["while"] >= 1
        assert counts["conditional"] == 1
