"""Checks of P4.9: operations in StableHLO, and fused computations in optimised HLO.

The texts were printed by JAX 0.10.2 on a CPU, with `jax.jit(f).lower(x).as_text()` and `.compile().as_text()`, for a
convolution with bias and ReLU, two dense layers, a softmax, max pooling, an embedding lookup, and the largest
score with its index, whose fused loop returns a tuple.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.variants.parameter import Parameter

# how `operations` writes the name of an addition
OPERATION_KEY = Parameter("operation_key", ("add", "stablehlo.add", "ADD"))
# what `fused` returns for each computation: the form of its opcodes, their order, and those that it leaves out
CODES_FORM = Parameter("codes_form", ("a list", "a tuple", "a text"))
LISTED = Parameter("listed", ("in order", "from the last to the first", "in alphabetical order"))
LEFT_OUT = Parameter("left_out", (("parameter",), ("parameter", "constant"), ("parameter", "bitcast")))
KEY_HINTS = {
    "add": "the key is the name alone",
    "stablehlo.add": "the key is the name with its prefix",
    "ADD": "the key is the name alone, in capitals",
}
LISTED_HINTS = {
    "in order": "line by line, as in the text",
    "from the last to the first": "the operation of the last line, the one with ROOT, comes first",
    "in alphabetical order": "sort the list of each computation",
}
LAYERS = ("conv", "mlp", "softmax", "pool", "embedding", "argmax")
WITH_A_DIGIT = "atan2"  # stands where these have a maximum, so that an opcode has a digit
OPERATION = re.compile(r"(?<!#)\bstablehlo\.(\w+)")
APPLIED = re.compile(r"applies stablehlo\.(\w+)")
QUOTED = re.compile(r'"stablehlo\.(\w+)"')
COMPUTATION = re.compile(r"^%(\S+) \(.*\{\n((?:  .*\n)*)\}", re.MULTILINE)
OPCODE = re.compile(r"^\s+(?:ROOT )?%\S+ = (?:\(.*?\)|\S+) ([\w-]+)\(", re.MULTILINE)
CALLED = re.compile(r" fusion\(.*calls=%([\w.-]+)")
FUSED = re.compile(r"%fused_computation(?:\.\d+)?(?![\w.])")


def text(layer: str, kind: str) -> str:
    """Return a layer as StableHLO ("stablehlo") or after XLA's optimisations ("hlo")."""
    return (files("mlhood.grading.projects.p4") / "texts" / f"{layer}.{kind}.txt").read_text(encoding="utf-8")


def operations(program: str) -> Counter[str]:
    """Count each operation of a StableHLO program, except `return`, which ends a region."""
    return Counter(name for name in OPERATION.findall(program) if name != "return")


def fused(program: str) -> dict[str, list[str]]:
    """Return the opcodes, without parameters, of each computation that a fusion of optimised HLO calls."""
    called = set(CALLED.findall(program))
    opcodes = {name: OPCODE.findall(body) for name, body in COMPUTATION.findall(program)}
    return {name: [code for code in opcodes[name] if code != "parameter"] for name in opcodes if name in called}


def _plain(submission: Submission, key: str) -> str:
    """Return the name of the operation that a key of `operations` stands for."""
    form = submission.parameters.operation_key
    right = {"add": True, "stablehlo.add": key.startswith("stablehlo."), "ADD": key == key.upper()}[form]
    expect.true(right, "a key of `operations` is not written as asked", got=key, hint=KEY_HINTS[form])
    return {"add": key, "stablehlo.add": key.removeprefix("stablehlo."), "ADD": key.lower()}[form]


def _as_listed(submission: Submission, codes: list[str]) -> list[str]:
    """Return the opcodes of a computation that `fused` is to list, in their order."""
    kept = [code for code in codes if code not in submission.parameters.left_out]
    listed = submission.parameters.listed
    return kept if listed == "in order" else kept[::-1] if listed.startswith("from") else sorted(kept)


def renamed(program: str, rng: np.random.Generator) -> str:
    """Return the same HLO with other names of values and other numbers of fused computations, one without a number."""
    found = list(dict.fromkeys(FUSED.findall(program)))
    numbered = [f"%fused_computation.{number + 10}" for number in rng.permutation(90)[: len(found) - 1]]
    names = dict(zip(found, rng.permutation(["%fused_computation", *numbered]).tolist(), strict=True))
    program = FUSED.sub(lambda match: names[match.group()], program)
    values = set(re.findall(r"^\s+(?:ROOT )?%([\w.-]+) = ", program, re.MULTILINE))
    new_names = dict(zip(sorted(values), (f"value.{number}" for number in rng.permutation(len(values))), strict=True))
    return re.sub(r"%([\w.-]+)", lambda match: "%" + new_names.get(match.group(1), match.group(1)), program)


def _operations(submission: Submission, layers: list[str]) -> tuple[dict[str, int], str, str]:
    """Return the student's counts for the programs of some layers, the joined programs, and their description."""
    program, given = "\n".join(text(layer, "stablehlo") for layer in layers), " and ".join(layers)
    program = program.replace("stablehlo.maximum", f"stablehlo.{WITH_A_DIGIT}")
    with expect.case(given):
        result = expect.mapping(submission.call("operations", program), (), "what `operations` returns")
        names = all(isinstance(name, str) for name in result)
        expect.true(names, "the keys are not names of operations", got=str(result))
        counts = {
            _plain(submission, name): expect.integer(result[name], f"the count of `{name}` by `operations`")
            for name in result
        }
    return {name: count for name, count in counts.items() if name != "return" and count}, program, given


def _first_difference(got: dict[str, int], want: Counter[str]) -> dict[str, str]:
    """The parts of a message about the first operation with a different count."""
    for name in sorted({*got, *want}):
        if got.get(name, 0) != want[name]:
            return {"expected": f"{want[name]} of `{name}`", "got": f"{got.get(name, 0)}"}
    return {}


@points(2)
def operations_are_counted(submission: Submission) -> None:
    """`operations` counts the operations of a StableHLO program."""
    hint = f"an operation is written `stablehlo.name`; {KEY_HINTS[submission.parameters.operation_key]}"
    drawn = [str(layer) for layer in submission.rng.choice(["conv", "mlp", "softmax"], 4)]
    for layers in (["conv"], ["mlp"], drawn):
        got, program, given = _operations(submission, layers)
        want = operations(program)  # with or without those that the short form of `reduce` applies
        right = got in (dict(want), dict(want - Counter(APPLIED.findall(program))))
        difference = _first_difference(got, want)
        expect.true(right, "`operations` has the wrong count of an operation", given=given, hint=hint, **difference)


@points(1)
def quoted_operations_count(submission: Submission) -> None:
    """`operations` also counts the general form, with the name in quotes."""
    hint = 'such as %2 = "stablehlo.reduce_window"(%0, %1) <{...}> ({...}): the quotes are not part of the name'
    for layers in (["pool"], ["pool"] * int(submission.rng.integers(2, 5))):
        got, program, given = _operations(submission, layers)
        for name, want in Counter(QUOTED.findall(program)).items():
            count = got.get(name, 0)
            what = f"`operations` has the wrong count of `{name}`"
            expect.true(count == want, what, expected=want, got=f"{count}", given=given, hint=hint)


@points(1)
def attributes_are_no_operations(submission: Submission) -> None:
    """`operations` does not count attributes, which begin with `#stablehlo`."""
    for layers in (["embedding"], ["embedding"] * int(submission.rng.integers(2, 6))):
        got, program, given = _operations(submission, layers)
        want = operations(program)
        unquoted = [name for name in want if name not in QUOTED.findall(program)]
        missing = ", ".join(name for name in unquoted if name not in got)
        what = "`operations` does not find every operation"
        expect.true(not missing, what, expected=missing, got=str(got), given=given)
        surplus = {name: count for name, count in got.items() if count > want[name]}
        hint = '`"stablehlo.gather"(...) <{dimension_numbers = #stablehlo.gather<...>}>` is one operation'
        difference = _first_difference(surplus, Counter({name: want[name] for name in surplus}))
        expect.true(not surplus, "`operations` counts what is not an operation", given=given, hint=hint, **difference)


def _codes(submission: Submission, name: object, value: object) -> list:
    """Return the opcodes of a computation, of which `fused` returns a list, a tuple, or a text with commas."""
    form, what = submission.parameters.codes_form, f"what `fused` returns for {name}"
    if form != "a text":
        return list(expect.sequence(value, tuple if form == "a tuple" else list, what))
    if not isinstance(value, str):
        expect.fail(f"{what} is no text", expected='such as "broadcast, add"', got=value)
    return value.split(", ") if value else []


def _fused(submission: Submission, layer: str) -> tuple[dict[str, list[str]], dict[str, list[str]], str]:
    """Return the student's `fused` of a layer's program with other names, the right result, and a description."""
    program, given = renamed(text(layer, "hlo"), submission.rng), f"{layer}, compiled"
    program = program.replace(" maximum(", f" {WITH_A_DIGIT}(")
    with expect.case(given):
        result = expect.mapping(submission.call("fused", program), (), "what `fused` returns")
        lists = {}
        for name, value in result.items():
            codes = _codes(submission, name, value)
            texts = isinstance(name, str) and all(isinstance(code, str) for code in codes)
            expected = f"{submission.parameters.codes_form} of opcodes for each name"
            expect.true(texts, "`fused` does not return texts", expected=expected, got=value)
            lists[name] = codes
    want = {name: _as_listed(submission, codes) for name, codes in fused(program).items()}
    return lists, want, given


@points(2)
def fused_computations_are_found(submission: Submission) -> None:
    """`fused` finds every fused computation, and no other computation."""
    hint = "a fused computation begins with a line `%fused_computation... {` and ends with a line `}`"
    for layer in LAYERS:
        got, want, given = _fused(submission, layer)
        names = {name for name in want if name.startswith("fused_computation")}
        missing, surplus = sorted(names - set(got)), sorted(set(got) - set(want))
        with expect.case(given, hint):
            what = "fused computations are missing in what `fused` returns"
            expect.true(not missing, what, expected=f"{sorted(names)}", got=f"{sorted(got)}")
            expect.true(not surplus, "`fused` names what are not fused computations", got=f"{surplus}")


@points(2)
def opcodes_are_listed(submission: Submission) -> None:
    """`fused` lists the operations of a computation, whatever the names of their results."""
    hint = "`%add.1 = f32[4,64]{1,0} broadcast(%p), ...` is a broadcast: the opcode precedes the parenthesis"
    compared = False
    for layer in LAYERS:
        got, want, given = _fused(submission, layer)
        for name in sorted(set(got) & set(want)):  # missing ones have lost the points of the check above
            compared = True
            listed = [code for code in got[name] if code not in submission.parameters.left_out]
            parts = {"expected": f"{want[name]}", "got": f"{got[name]}", "given": given}
            expect.true(
                sorted(listed) == sorted(want[name]), f"`fused` has the wrong operations of {name}", **parts, hint=hint
            )
            what = f"`fused` has the operations of {name} in the wrong order"
            expect.true(listed == want[name], what, **parts, hint=LISTED_HINTS[submission.parameters.listed])
    expect.true(compared, "`fused` finds no fused computation")


@points(1)
def parameters_are_left_out(submission: Submission) -> None:
    """`fused` omits the {{ "s and the ".join(left_out) }}s of a computation, which do no work."""
    omitted = submission.parameters.left_out
    nonempty = False
    for layer in LAYERS:
        got, want, given = _fused(submission, layer)
        for name in set(got) & set(want):
            hint = f"omit {' and '.join(f'`{code}`' for code in omitted)}, and nothing else"
            listed = next((code for code in omitted if code in got[name]), "")
            expect.true(not listed, f"`fused` lists {listed}s", got=f"{got[name]}", given=given, hint=hint)
            nonempty = nonempty or bool(got[name])
    expect.true(nonempty, "`fused` finds no operation in any fused computation")


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
