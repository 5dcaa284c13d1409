"""Checks of P4.9: operations in StableHLO, and fused computations in optimised HLO.

The texts were printed by JAX 0.10.2 on a CPU, with `jax.jit(f).lower(x).as_text()` and `.compile().as_text()`, for a
convolution with bias and ReLU, two dense layers, a softmax, max pooling, an embedding lookup, and the largest
score with its index, whose fused loop returns a tuple.
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

# how `operations` writes the name of an addition
OPERATION_KEY = Parameter("operation_key", ("add", "stablehlo.add", "ADD"))
# what `fused` returns for each computation: the form of its opcodes, their order, and those that it leaves out
CODES_FORM = Parameter("codes_form", ("a list", "a tuple", "a text"))
LISTED = Parameter("listed", ("in order", "from the last to the first", "in alphabetical order"))
LEFT_OUT = Parameter("left_out", (("parameter",), ("parameter", "constant"), ("parameter", "bitcast")))
KEY_HINT = """{{ {"add": "; the key is the name alone", "stablehlo.add": "; the key is the name with its prefix", \
"ADD": "; the key is the name alone, in capitals"}[operation_key] }}"""
LISTED_HINT = """{{ {"in order": "line by line, as in the text", "from the last to the first": "the operation of the \
last line, the one with ROOT, comes first", "in alphabetical order": "sort the list of each computation"}[listed] }}"""
LAYERS = ("conv", "mlp", "softmax", "pool", "embedding", "argmax")
WITH_A_DIGIT = "atan2"  # stands where these have a maximum, so that an opcode has a digit
FUSED = re.compile(r"%fused_computation(?:\.\d+)?(?![\w.])")
MANY = 4  # fused computations: as many as two dense layers have
WITHOUT_WORK = {"parameter", "constant", "bitcast"}


def text(layer: str, kind: str) -> str:
    """Return a layer as StableHLO ("stablehlo") or after XLA's optimisations ("hlo")."""
    return (files("mlhood.grading.projects.p4") / "texts" / f"{layer}.{kind}.txt").read_text(encoding="utf-8")


def renamed(program: str, rng: np.random.Generator) -> str:
    """Return the same HLO with other names of values and other numbers of fused computations, one without a number."""
    found = list(dict.fromkeys(FUSED.findall(program)))
    numbered = [f"%fused_computation.{number + 10}" for number in rng.permutation(90)[: len(found) - 1]]
    names = dict(zip(found, rng.permutation(["%fused_computation", *numbered]).tolist(), strict=True))
    program = FUSED.sub(lambda match: names[match.group()], program)
    values = set(re.findall(r"^\s+(?:ROOT )?%([\w.-]+) = ", program, re.MULTILINE))
    new_names = dict(zip(sorted(values), (f"value.{number}" for number in rng.permutation(len(values))), strict=True))
    return re.sub(r"%([\w.-]+)", lambda match: "%" + new_names.get(match.group(1), match.group(1)), program)


def _joined(*layers: str) -> Arguments:
    """Return the StableHLO of these layers, one after another."""
    program = "\n".join(text(layer, "stablehlo") for layer in layers)
    return (program.replace("stablehlo.maximum", f"stablehlo.{WITH_A_DIGIT}"),)


def _counts(result: Any) -> dict[str, int]:
    """Return the counts that are not zero, without `return`, which ends a region."""
    result = expect.mapping(result, (), "what `operations` returns")
    names = all(isinstance(name, str) for name in result)
    expect.true(names, "the keys are not names of operations", got=str(result))
    counts = {name: expect.integer(result[name], f"the count of `{name}` by `operations`") for name in result}
    return {name: count for name, count in counts.items() if count and not name.lower().endswith("return")}


def _equal_counts(got: Any, want: Any, what: str, ending: str = "") -> None:
    got, want = _counts(got), _counts(want)
    for name in sorted(name for name in {*got, *want} if name.lower().endswith(ending)):
        found, right = got.get(name, 0), want.get(name, 0)
        what = "`operations` has the wrong count of an operation"
        expect.true(found == right, what, expected=f"{right} of `{name}`", got=f"{found}")


def _equal_quoted_counts(got: Any, want: Any, what: str) -> None:
    _equal_counts(got, want, what, "reduce_window")


def _no_attributes(got: Any, want: Any, what: str) -> None:
    """Fail if an operation is missing, or counted too often: `gather` is in quotes, and lost other points."""
    got, want = _counts(got), _counts(want)
    missing = ", ".join(name for name in want if name not in got and not name.lower().endswith("gather"))
    expect.true(not missing, "`operations` does not find every operation", expected=missing, got=str(got))
    for name, count in got.items():
        right = want.get(name, 0)
        what = "`operations` counts what is not an operation"
        expect.true(count <= right, what, expected=f"{right} of `{name}`", got=f"{count}")


@compared(
    2,
    "operations",
    compare=_equal_counts,
    hint="an operation is written `stablehlo.name`, also behind `applies`" + KEY_HINT,
)
def operations_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`operations` counts the operations of a StableHLO program."""
    yield _joined("conv")
    yield _joined("mlp")
    yield _joined("softmax")
    yield _joined(*submission.rng.choice(["conv", "mlp", "softmax"], 4).tolist())


@compared(
    1,
    "operations",
    compare=_equal_quoted_counts,
    hint='such as %2 = "stablehlo.reduce_window"(%0, %1) <{...}> ({...}): the quotes are not part of the name'
    + KEY_HINT,
)
def quoted_operations_count(submission: Submission) -> Iterator[Arguments]:
    """`operations` also counts the general form, with the name in quotes."""
    yield _joined("pool")
    yield _joined(*["pool"] * int(submission.rng.integers(2, 5)))


@compared(
    1,
    "operations",
    compare=_no_attributes,
    hint='`"stablehlo.gather"(...) <{dimension_numbers = #stablehlo.gather<...>}>` is one operation' + KEY_HINT,
)
def attributes_are_no_operations(submission: Submission) -> Iterator[Arguments]:
    """`operations` does not count attributes, which begin with `#stablehlo`."""
    yield _joined("embedding")
    yield _joined(*["embedding"] * int(submission.rng.integers(2, 6)))


def _optimised(submission: Submission) -> Iterator[Arguments]:
    """Yield each layer after XLA's optimisations, with other names."""
    for layer in LAYERS:
        yield (renamed(text(layer, "hlo"), submission.rng).replace(" maximum(", f" {WITH_A_DIGIT}("),)


def _codes(result: Any, want: dict[str, Any]) -> dict[str, list[str]]:
    """Return the opcodes of each computation; fail unless they are in a container, or a text, as in `want`."""
    codes, form = {}, type(next(iter(want.values())))
    for name, value in expect.mapping(result, (), "what `fused` returns").items():
        where = f"what `fused` returns for {name}"
        if form is str:
            expect.true(isinstance(value, str), f"no text in {where}", got=value)
            codes[name] = str(value).split(", ") if value else []
        else:
            codes[name] = [*expect.sequence(value, tuple if form is tuple else list, where)]
        texts = isinstance(name, str) and all(isinstance(code, str) for code in codes[name])
        expect.true(texts, "`fused` does not return texts", expected="opcodes for each name", got=value)
    return codes


def _equal_names(got: Any, want: Any, what: str) -> None:
    got, want = sorted(_codes(got, want)), sorted(want)
    what = "fused computations are missing in what `fused` returns"
    expect.true(set(got) >= set(want), what, expected=f"{want}", got=f"{got}")
    # XLA wraps single operations in computations that a fusion calls, too
    surplus = [name for name in got if name not in want and not name.startswith("wrapped_")]
    expect.true(not surplus, "`fused` names what are not fused computations", got=f"{surplus}")


def _both(got: dict[str, list[str]], want: dict[str, list[str]]) -> list[str]:
    """Return the names of computations that both have; missing ones have lost other points, unless all of many are."""
    both = sorted(set(got) & set(want))
    expect.true(bool(both) or len(want) < MANY, "`fused` finds no fused computation", expected=f"{sorted(want)}")
    return both


def _left_out(want: dict[str, list[str]]) -> set[str]:
    """Return the opcodes that `fused` is to leave out."""
    return WITHOUT_WORK.difference(*want.values())


def _equal_codes(got: Any, want: Any, what: str) -> None:
    """Compare the opcodes of computations that both have."""
    got, want = _codes(got, want), _codes(want, want)
    for name in _both(got, want):
        listed = [code for code in got[name] if code not in _left_out(want)]
        same = sorted(listed) == sorted(want[name])
        what = f"`fused` has the operations of {name} in the wrong order" if same else f"wrong operations of {name}"
        expect.true(listed == want[name], what, expected=f"{want[name]}", got=f"{got[name]}")


def _no_parameters(got: Any, want: Any, what: str) -> None:
    got, want = _codes(got, want), _codes(want, want)
    both = _both(got, want)
    for name in both:
        listed = next((code for code in got[name] if code in _left_out(want)), "")
        expect.true(not listed, f"`fused` lists {listed}s", got=f"{got[name]}")
    found = any(got[name] for name in both) or not both
    expect.true(found, "`fused` finds no operation in any fused computation")


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


@compared(1, "fused", compare=_no_parameters, hint="omit `{{ left_out | join('` and `') }}`, and nothing else")
def parameters_are_left_out(submission: Submission) -> Iterator[Arguments]:
    """`fused` omits the {{ "s and the ".join(left_out) }}s of a computation, which do no work."""
    return _optimised(submission)


TASKS = (
    Task(
        "P4.9",
        "What XLA made of it",
        checks=(
            operations_are_counted,
            quoted_operations_count,
            attributes_are_no_operations,
            fused_computations_are_found,
            opcodes_are_listed,
            parameters_are_left_out,
        ),
        seconds=30,
        minutes=40,
        builds_on=("P1.6",),
        varies=(OPERATION_KEY, CODES_FORM, LISTED, LEFT_OUT),
        libraries=NESTS,
    ),
)
