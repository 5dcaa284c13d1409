"""Checks of P4.9: fused computations in optimised HLO, and the bytes that they move.

The texts were printed by JAX 0.10.2 on a CPU, with `jax.jit(f).lower(x).compile().as_text()`, for a convolution
with bias and ReLU, two dense layers, a softmax, max pooling, an embedding lookup, and the largest score with its index,
whose fused loop returns a tuple. A computation without parameters is added to each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.variants.parameter import Parameter

# the keys of what `moved` returns
MOVED_KEYS = Parameter("moved_keys", (("read", "written"), ("in", "out"), ("loaded", "stored"), ("from", "to")))
# the order of the opcodes that `fused` returns for each computation
LISTED = Parameter("listed", ("in order", "from the last to the first", "in alphabetical order"))
LISTED_HINT = """{{ {"in order": "line by line, as in the text", "from the last to the first": "the operation of the \
last line, the one with ROOT, comes first", "in alphabetical order": "sort the list of each computation"}[listed] }}"""
LAYERS = ("conv", "mlp", "softmax", "pool", "embedding", "argmax")
WITH_A_DIGIT = "atan2"  # stands where these have a maximum, so that an opcode has a digit
FUSED = re.compile(r"%fused_computation(?:\.\d+)?(?![\w.])")
WITHOUT_PARAMETERS = """
%fused_computation.9 () -> f32[8] {
  ROOT %iota.1 = f32[8]{0} iota(), iota_dimension=0
}
"""
MANY = 5  # fused computations: more than two dense layers have


def text(layer: str) -> str:
    """Return the HLO of a layer after XLA's optimisations."""
    return (files("mlhood.grading.projects.p4") / "texts" / f"{layer}.hlo.txt").read_text(encoding="utf-8")


def renamed(program: str, rng: np.random.Generator) -> str:
    """Return the same HLO with other names of values and other numbers of fused computations, one without a number."""
    found = list(dict.fromkeys(FUSED.findall(program)))
    numbered = [f"%fused_computation.{number + 10}" for number in rng.permutation(90)[: len(found) - 1]]
    names = dict(zip(found, rng.permutation(["%fused_computation", *numbered]).tolist(), strict=True))
    program = FUSED.sub(lambda match: names[match.group()], program)
    values = set(re.findall(r"^\s+(?:ROOT )?%([\w.-]+) = ", program, re.MULTILINE))
    new_names = dict(zip(sorted(values), (f"value.{number}" for number in rng.permutation(len(values))), strict=True))
    return re.sub(r"%([\w.-]+)", lambda match: "%" + new_names.get(match.group(1), match.group(1)), program)


def _optimised(submission: Submission) -> Iterator[Arguments]:
    """Yield each layer after XLA's optimisations, with other names."""
    for layer in LAYERS:
        yield (renamed(text(layer) + WITHOUT_PARAMETERS, submission.rng).replace(" maximum(", f" {WITH_A_DIGIT}("),)


def _codes(result: Any, want: dict[str, Any]) -> dict[str, list[str]]:
    """Return the opcodes of each computation; fail unless they are texts in a list."""
    codes: dict[Any, Any] = dict(expect.mapping(result, (), what := "what `fused` returns"))
    right = all(isinstance(name, str) and type(value) is list for name, value in codes.items())
    expect.true(right, f"no list for each computation in {what}", expected=want, got=codes)
    right = all(isinstance(code, str) for value in codes.values() for code in value)
    expect.true(right, f"no opcodes in {what}", expected=want, got=codes)
    return codes


def _equal_names(got: Any, want: Any, what: str) -> None:
    # XLA wraps single operations in computations that a fusion calls, too
    names = [name for name in sorted(_codes(got, want)) if name in want or not name.startswith("wrapped_")]
    expect.equal(names, sorted(want), "`fused` does not name the fused computations")


def _both(got: Any, want: Any) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the computations that both name; missing ones have lost other points, unless all of many are."""
    got = _codes(got, want)
    both = sorted(set(got) & set(want))
    expect.true(bool(both) or len(want) < MANY, "`fused` finds no fused computation", expected=f"{sorted(want)}")
    for name in both:
        yield name, got[name], want[name]


def _equal_codes(got: Any, want: Any, what: str) -> None:
    """Compare the opcodes of computations that both have."""
    for name, codes, right in _both(got, want):
        listed = [code for code in codes if code != "parameter"]
        expect.equal(listed, right, f"wrong operations of {name}, or in the wrong order")


def _no_parameters(got: Any, want: Any, what: str) -> None:
    found = [*_both(got, want)]
    for _, codes, _ in found:
        expect.true("parameter" not in codes, "`fused` lists parameters", got=f"{codes}")
    expect.true(not found or any(codes for _, codes, _ in found), "`fused` finds no operation in any computation")


@compared(
    2,
    "fused",
    compare=_equal_names,
    hint="a fused computation begins with a line `%fused_computation... {` and ends with a line `}`",
)
def fused_computations_are_found(submission: Submission) -> Iterator[Arguments]:
    """`fused` finds every fused computation, and no other computation."""
    return _optimised(submission)


@compared(
    2,
    "fused",
    compare=_equal_codes,
    hint="`%add.1 = f32[4,64]{1,0} broadcast(%p), ...` is a broadcast: the opcode precedes the parenthesis; "
    + LISTED_HINT,
)
def opcodes_are_listed(submission: Submission) -> Iterator[Arguments]:
    """`fused` lists the operations of a computation, whatever the names of their results."""
    return _optimised(submission)


@compared(1, "fused", compare=_no_parameters, hint="omit `parameter`, and nothing else")
def parameters_are_left_out(submission: Submission) -> Iterator[Arguments]:
    """`fused` omits the parameters of a computation, which do no work."""
    return _optimised(submission)


def _of_other_types(submission: Submission) -> Iterator[Arguments]:
    """Yield the same texts, some with elements of another size."""
    for (program,) in _optimised(submission):
        yield (program.replace("f32[", submission.rng.choice(["f32[", "f64[", "bf16["])),)


@compared(
    2,
    "moved",
    key=lambda parameters: parameters.moved_keys[0],
    hint="a computation reads each of its parameters once, and the bytes are those that `instruction` returns",
)
def bytes_read_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`moved` counts the bytes of what each fused computation reads."""
    return _of_other_types(submission)


@compared(
    2,
    "moved",
    key=lambda parameters: parameters.moved_keys[1],
    hint="a computation writes its result, the line with ROOT, and nothing of what it computes before",
)
def bytes_written_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`moved` counts the bytes of what each fused computation writes."""
    return _of_other_types(submission)


P4_9 = Task(
    "P4.9",
    "What XLA made of it",
    seconds=30,
    minutes=40,
    builds_on=("P1.6",),
    varies=(LISTED, MOVED_KEYS),
    libraries=NESTS,
)
