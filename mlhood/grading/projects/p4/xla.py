"""Checks of P4.7: operations in StableHLO, and fused computations in what XLA made of it.

The texts were printed by JAX 0.10.2 on a CPU, `jax.jit(f).lower(x).as_text()` and `.compile().as_text()`, for a
convolution with bias and ReLU, two dense layers, a softmax, max-pooling, and rows that are looked up in a table.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

LAYERS = ("conv", "mlp", "softmax", "pool", "embedding")
OPERATION = re.compile(r"(?<!#)\bstablehlo\.(\w+)")
APPLIED = re.compile(r"applies stablehlo\.(\w+)")
QUOTED = re.compile(r'"stablehlo\.(\w+)"')
COMPUTATION = re.compile(r"^%(\S+) \(.*\{\n((?:  .*\n)*)\}", re.MULTILINE)
OPCODE = re.compile(r"^\s+(?:ROOT )?%\S+ = (?:\(.*?\)|\S+) ([\w-]+)\(", re.MULTILINE)
CALLED = re.compile(r" fusion\(.*calls=%([\w.-]+)")
FUSED = re.compile(r"%fused_computation(?:\.\d+)?(?![\w.])")


def text(layer: str, kind: str) -> str:
    """A layer as StableHLO ("stablehlo") or after XLA's optimisations ("hlo")."""
    return (files("mlhood.grading.projects.p4") / "texts" / f"{layer}.{kind}.txt").read_text(encoding="utf-8")


def operations(program: str) -> Counter[str]:
    """How often each operation stands in StableHLO, without what ends a region."""
    return Counter(name for name in OPERATION.findall(program) if name != "return")


def fused(program: str) -> dict[str, list[str]]:
    """The opcodes of each computation that a fusion calls, without parameters, in optimised HLO."""
    called = set(CALLED.findall(program))
    found = {name: OPCODE.findall(body) for name, body in COMPUTATION.findall(program)}
    return {name: [one for one in found[name] if one != "parameter"] for name in found if name in called}


def renamed(program: str, rng: np.random.Generator) -> str:
    """The same HLO with other names of values, and other numbers of fused computations."""
    numbers = iter(rng.permutation(90))
    names = {name: f"%fused_computation.{next(numbers) + 10}" for name in dict.fromkeys(FUSED.findall(program))}
    program = FUSED.sub(lambda found: names[found.group()], program)
    values = set(re.findall(r"^\s+(?:ROOT )?%([\w.-]+) = ", program, re.MULTILINE))
    other = dict(zip(sorted(values), (f"value.{number}" for number in rng.permutation(len(values))), strict=True))
    return re.sub(r"%([\w.-]+)", lambda found: "%" + other.get(found.group(1), found.group(1)), program)


def _operations(submission: Submission, layers: list[str]) -> tuple[dict[str, float], str, str]:
    """What `operations` counts in the programs of some layers together, the programs, and which they are."""
    program, given = "\n".join(text(layer, "stablehlo") for layer in layers), " and ".join(layers)
    with expect.case(given):
        found = expect.mapping(submission.call("operations", program), (), "what `operations` returns")
        expect.true(all(isinstance(name, str) for name in found), "keys are no names of operations", got=str(found))
        counts = {name: expect.number(found[name], f"the count of `{name}`") for name in found}
    bare = {name: number for name, number in counts.items() if name != "return" and number}
    return bare, program, given


def _accepted(program: str) -> list[Counter[str]]:
    """The operations, with those that a short form of reduce applies, and without."""
    every = operations(program)
    return [every, every - Counter(APPLIED.findall(program))]


def _parts(got: dict[str, float], want: Counter[str]) -> dict[str, str]:
    """The first operation that is counted otherwise, for a message."""
    for name in sorted({*got, *want}):
        if got.get(name, 0) != want[name]:
            return {"expected": f"{want[name]} of `{name}`", "got": f"{got.get(name, 0):g}"}
    return {}


@points(3)
def operations_are_counted(submission: Submission) -> None:
    """`operations` counts the operations of a program in StableHLO."""
    hint = "an operation is `stablehlo.` and a name; the name alone is the key"
    for layers in (["conv"], ["mlp"], [str(one) for one in submission.rng.choice(["conv", "mlp", "softmax"], 4)]):
        got, program, given = _operations(submission, layers)
        right = any(got == dict(want) for want in _accepted(program))
        expect.true(right, "operations are counted otherwise", given=given, hint=hint,
                    **_parts(got, operations(program)))  # fmt: skip


@points(2)
def quoted_operations_count(submission: Submission) -> None:
    """`operations` counts the general form, too, which has the name in quotes."""
    hint = 'such as %2 = "stablehlo.reduce_window"(%0, %1) <{...}> ({...}): the quotes do not belong to the name'
    for layers in (["pool"], ["pool"] * int(submission.rng.integers(2, 5))):
        got, program, given = _operations(submission, layers)
        for name, number in Counter(QUOTED.findall(program)).items():
            expect.true(got.get(name, 0) == number, f"`{name}` is counted otherwise", expected=number,
                        got=f"{got.get(name, 0):g}", given=given, hint=hint)  # fmt: skip


@points(1)
def attributes_are_no_operations(submission: Submission) -> None:
    """`operations` does not count attributes, which begin with `#stablehlo`."""
    got, program, given = _operations(submission, ["embedding"])
    want = operations(program)
    plain = [name for name in want if name not in QUOTED.findall(program)]
    expect.true(any(name in got for name in plain), "no operation is found", given=given, got=str(got))
    more = {name: number for name, number in got.items() if number > want[name]}
    hint = '`"stablehlo.gather"(...) <{dimension_numbers = #stablehlo.gather<...>}>` is one operation'
    expect.true(not more, "something counts that is no operation", given=given, hint=hint,
                **_parts(more, Counter({name: want[name] for name in more})))  # fmt: skip


def _fused(submission: Submission, layer: str) -> tuple[dict[str, list[str]], dict[str, list[str]], str]:
    """What `fused` says of a layer's program under other names, what it should, and which layer it is."""
    program, given = renamed(text(layer, "hlo"), submission.rng), f"{layer}, compiled"
    with expect.case(given):
        found = expect.mapping(submission.call("fused", program), (), "what `fused` returns")
        named = {str(name).lstrip("%"): value for name, value in found.items()}
        lists = {name: [str(one) for one in value] for name, value in named.items() if isinstance(value, list | tuple)}
        expect.true(len(lists) == len(found), "values are no lists of opcodes", got=str(found))
    return lists, fused(program), given


@points(2)
def fused_computations_are_found(submission: Submission) -> None:
    """`fused` finds every fused computation, and no other."""
    hint = "a fused computation begins with a line `%fused_computation... {` and ends with a line `}`"
    for layer in LAYERS:
        got, want, given = _fused(submission, layer)
        named = {name for name in want if name.startswith("fused_computation")}
        missing, more = sorted(named - set(got)), sorted(set(got) - set(want))
        expect.true(not missing, "fused computations are missing", expected=f"{sorted(named)}", got=f"{sorted(got)}",
                    given=given, hint=hint)  # fmt: skip
        expect.true(not more, "these are no fused computations", got=f"{more}", given=given, hint=hint)


@points(3)
def opcodes_are_listed(submission: Submission) -> None:
    """`fused` lists the operations of a computation, whatever their results are called."""
    hint = "`%add.1 = f32[4,64]{1,0} broadcast(%p), ...` is a broadcast: the opcode stands before the bracket"
    found = False
    for layer in LAYERS:
        got, want, given = _fused(submission, layer)
        for name in sorted(set(got) & set(want)):  # what is missing costs the points of the check above
            found = True
            listed = [one for one in got[name] if one != "parameter"]
            expect.true(sorted(listed) == sorted(want[name]), f"{name} has other operations", expected=f"{want[name]}",
                        got=f"{got[name]}", given=given, hint=hint)  # fmt: skip
            expect.true(listed == want[name], f"{name} has its operations in another order", expected=f"{want[name]}",
                        got=f"{got[name]}", given=given, hint="line by line, as they stand in the text")  # fmt: skip
    expect.true(found, "no fused computation is there")


@points(1)
def parameters_are_left_out(submission: Submission) -> None:
    """`fused` leaves out the parameters of a computation, which are no work."""
    found = False
    for layer in LAYERS:
        got, want, given = _fused(submission, layer)
        for name in set(got) & set(want):
            hint = "leave out `parameter`, and nothing else"
            expect.true(
                "parameter" not in got[name], "parameters are listed", got=f"{got[name]}", given=given, hint=hint
            )
            found = found or bool(got[name])
    expect.true(found, "no fused computation has an operation")


TASKS = (
    Task(
        "P4.7",
        "What XLA made of it",
        checks=(
            operations_are_counted,
            quoted_operations_count,
            attributes_are_no_operations,
            fused_computations_are_found,
            opcodes_are_listed,
            parameters_are_left_out,
        ),
        forbidden=("mlhood.jaxlab.xla.hlo", "mlhood.jaxlab.xla.stablehlo"),
    ),
)
