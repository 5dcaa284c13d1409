"""Checks of P2.12 to P2.14: slices for the neural processor, what they cost in three orders, and the fewest cycles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp.codegen.convolution import convolution
from mlhood.compiler.backends.nmp.codegen.search import cycles_of, greedy, search
from mlhood.compiler.backends.nmp.codegen.slicing import Slicing, check_fits
from mlhood.compiler.backends.nmp.machine import Machine, default_machine
from mlhood.errors import CompilerError
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, comparison
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import COMPILER, TYPES
from mlhood.grading.variants.parameter import Parameter

# what each filter has besides its weights
FILTER_CONSTANTS = Parameter(
    "filter_constants",
    (
        "a bias of four bytes",
        "a bias and a multiplier of four bytes each",
        "a bias, a multiplier and a shift of four bytes each",
    ),
)
# bytes of an element in the programs that `predict` is asked about; what it says of the bytes that they move; and which
# cycles the machine takes besides transfers, waits and products
MOVED_ELEMENT = Parameter("moved_element", (1, 2))
MOVED = Parameter("moved", ("bytes", "loaded and stored", "by operand"))
MORE_CYCLES = Parameter("more_cycles", ("none", "issue", "barrier"))
# tiles of the machine that `fastest` is for, and tilelets of each; and the KiB of its blobs
NMP_TILES = Parameter("nmp_tiles", ((4, 8), (8, 4), (16, 2), (32, 1)))
NMP_BLOB = Parameter("nmp_blob", (8, 6, 12))

Layer = dict[str, int]
Cut = dict[str, int]
ORDERS = ("output", "weight", "input")  # what is stationary
AXES = ("rows", "columns", "filters", "channels")


def draw_layer(rng: np.random.Generator, deep: bool = False) -> Layer:
    """Draw a convolution; a deep one has filters of more than a kilobyte, and a small image."""
    kernel, size = (3, int(rng.integers(6, 13))) if deep else (int(rng.choice([1, 3, 5])), int(rng.integers(12, 40)))
    layer = {"channels": int(rng.integers(*((150, 400) if deep else (2, 33)))), "height": size}
    layer |= {"width": size + int(rng.integers(0, 5)), "filters": int(rng.integers(8, 65)), "kernel": kernel}
    return layer | {"stride": int(rng.integers(1, 3)), "pad": int(rng.integers(0, kernel // 2 + 1))}


def whole(layer: Layer) -> Cut:
    """Return the cut of a layer into one slice."""
    rows, columns = (
        (layer[side] + 2 * layer["pad"] - layer["kernel"]) // layer["stride"] + 1 for side in ("height", "width")
    )
    return {"rows": rows, "columns": columns, "filters": layer["filters"], "channels": layer["channels"]}


def sizes_of(value: Any) -> Cut:
    """Return the sizes of slices that a student's function returns; fail if they are none."""
    got = expect.mapping(value, AXES, "the slices")
    return {name: natural(got[name], name) for name in AXES}


def natural(value: Any, name: str) -> int:
    """Return an integer of 1 or more; fail if the value is none."""
    number = expect.integer(value, f"`{name}`")
    expect.true(number >= 1, f"`{name}` must be 1 or more", got=value)
    return min(number, 1_000_000)


def given_layer(layer: Layer, **others: object) -> str:
    """Return a layer, and what else is given, in words."""
    return ", ".join(f"{name}={value}" for name, value in (layer | others).items())


# -- P2.12

INPUT_HINT = (
    "the windows of a slice span (rows - 1) * stride + kernel rows, wherever it lies, and columns too; how many of \
them has the image, at most?"
)
CHANNELS_HINT = "input channels are cut: how many of them has a slice, and one of its filters?"


def needed_bytes(rules: SimpleNamespace, layer: Layer, cut: Mapping[str, int], element: int) -> dict[str, int]:
    """Return the bytes of a slice's operands by the rules of the course or a variant."""
    rows, columns, filters, channels = (cut[name] for name in AXES)
    kernel, stride, accumulator = layer["kernel"], layer["stride"], 4 if channels < layer["channels"] else 1
    tall, wide = ((size - 1) * stride + kernel for size in (rows, columns))
    constants = 4 * (1 + FILTER_CONSTANTS.values.index(rules.filter_constants))
    return {
        "input": channels * min(tall, layer["height"]) * min(wide, layer["width"]) * element,
        "weights": filters * (constants + channels * kernel * kernel * element),
        "output": filters * rows * columns * element * accumulator,
    }


def draw_slices(submission: Submission) -> Iterator[Arguments]:
    """Draw layers with a cut each, and the bytes of an element; some cuts have full rows, some full columns."""
    rng = submission.rng
    for split in (False, True):
        layers = [draw_layer(rng, deep=split) for _ in range(4)]
        for wide in (9, -5):
            layer = {"channels": int(rng.integers(4, 9)), "height": 12, "width": 12 + wide, "filters": 7}
            layers.append(layer | {"kernel": 5, "stride": 1, "pad": 2})
        for number, layer in enumerate(layers):
            lengths = whole(layer)
            cut = {name: int(rng.integers(1, length + 1)) for name, length in lengths.items()}
            cut["channels"] = max(1, layer["channels"] // 3) if split else layer["channels"]
            if number > 3:  # padding is a part of what full rows or columns read
                full = ("rows", "columns")[number % 2]
                cut |= {"rows": 2, "columns": 3} | {full: lengths[full]}
            yield layer, cut, number % 2 + 1


SIZES = (
    comparison(
        "input_slices_have_a_halo",
        "`slice_bytes` counts what the windows of a slice read of the image, and no padding",
        2,
        "slice_bytes",
        draw_slices,
        key="input",
        hint=INPUT_HINT,
        mistakes={
            CHANNELS_HINT: lambda want, layer, cut, element: want // cut["channels"] * layer["channels"],
        },
    ),
    comparison(
        "weights_come_with_their_bias",
        "`slice_bytes` counts the weights of a slice and {{ filter_constants }} for each of its filters",
        1,
        "slice_bytes",
        draw_slices,
        key="weights",
        hint="what belongs to one filter of the slice, also if channels are cut? The bias is always int32, and so are "
        "all other constants of a filter",
        mistakes={
            CHANNELS_HINT: lambda want, layer, cut, element: (
                want + cut["filters"] * (layer["channels"] - cut["channels"]) * layer["kernel"] ** 2 * element
            )
        },
    ),
    comparison(
        "partial_sums_are_wide",
        "`slice_bytes` counts accumulators of four bytes for each byte of an element where input channels are cut",
        1,
        "slice_bytes",
        draw_slices,
        key="output",
        hint="if channels are cut, sums are incomplete, and the output slice holds accumulators; else elements",
    ),
)


def _draw_blobs(submission: Submission) -> Iterator[tuple[Layer, int, int]]:
    """Draw layers, each with the bytes of a blob and of an element; each of the last ones fills a blob as a whole."""
    rng = submission.rng
    for number in range(10):
        yield draw_layer(rng, deep=number % 2 == 1), int(rng.choice([512, 1024, 2048, 8192])), number // 5 + 1
    for kernel, stride, pad, steps in ((4, 2, 1, 2), (3, 3, 0, 2), (3, 2, 0, 0)):  # the output of the last has one row
        layer = {"channels": 4, "height": steps * stride + kernel - 2 * pad, "width": 3 * stride + kernel - 2 * pad}
        layer |= {"filters": 16, "kernel": kernel, "stride": stride, "pad": pad}
        yield layer, max(submission.solution("slice_bytes", layer, whole(layer), 1).values()), 1


def _moved(rules: SimpleNamespace, layer: Layer, cut: Cut, element: int) -> int:
    """Return the bytes that all slices load, and those of the output, which is stored once."""
    sizes, lengths = needed_bytes(rules, layer, cut, element), whole(layer)
    slices = math.prod(-(-lengths[name] // cut[name]) for name in AXES)
    return slices * (sizes["input"] + sizes["weights"]) + math.prod(lengths[name] for name in AXES[:3]) * element


def _traffic(submission: Submission) -> float:
    """Return how many times the least traffic the student's slices, which fit, cause, as a geometric mean."""
    rules, ratios = submission.parameters, []
    for layer, blob, element in _draw_blobs(submission):
        best = submission.solution("fitting", layer, blob, element)
        hint = "which cut is the largest by your `slice_bytes`? An axis of 1 has one size: 1"
        with expect.case(given_layer(layer, blob=blob, element=element), hint):
            cut = _fitting(submission, layer, blob, element)
        ratios.append(_moved(rules, layer, cut, element) / _moved(rules, layer, best, element))
    return float(np.exp(np.mean(np.log(ratios))))


def _fitting(submission: Submission, layer: Layer, blob: int, element: int) -> Cut:
    """Return the student's cut, which fits."""
    cut, lengths = sizes_of(submission.call("fitting", layer, blob, element)), whole(layer)
    wrong = {name: size for name, size in cut.items() if size > lengths[name]}
    what = "`fitting` returns a slice that is larger than its layer"
    expect.true(not wrong, what, expected=f"at most {given_layer(lengths)}", got=given_layer(wrong))
    sizes = needed_bytes(submission.parameters, layer, cut, element)
    what, fits = "the slice that `fitting` returns does not fit its blob", max(sizes.values()) <= blob
    expect.true(fits, what, expected=f"at most {blob} bytes", got=f"{given_layer(sizes)} for {given_layer(cut)}")
    return cut


def _check_traffic(submission: Submission, limit: float, hint: str) -> None:
    ratio = submission.once("traffic", lambda: _traffic(submission))
    expected, got = f"at most {limit} times the least traffic", f"{ratio:.2f} times"
    expect.true(ratio <= limit, "the slices of `fitting` are loaded too often", expected=expected, got=got, hint=hint)


@points(2, solved=True)
def slices_fit_their_blobs(submission: Submission) -> None:
    """The slices of `fitting` fit the blobs of machines, by their verifier, also where one filter does not fit."""
    _check_traffic(submission, math.inf, "")


@points(1, solved=True)
def slices_are_not_tiny(submission: Submission) -> None:
    """The slices of `fitting` move at most four times as many bytes as the best that fit."""
    _check_traffic(submission, 4.0, "what could be larger in your slices, and would still fit?")


@points(1, solved=True)
def slices_move_few_bytes(submission: Submission) -> None:
    """The slices of `fitting` move at most a hundredth more bytes than the best that fit."""
    hint = "there are few sizes that cut an axis into equal parts: how many combinations of four such sizes?"
    _check_traffic(submission, 1.01, hint)


P2_12 = Task(
    "P2.12",
    "Slice a convolution so that it fits",
    checks=(*SIZES, slices_fit_their_blobs, slices_are_not_tiny, slices_move_few_bytes),
    libraries=TYPES,
    minutes=25,
    builds_on=("P2.3",),
    varies=(FILTER_CONSTANTS,),
)


# -- P2.13


def draw_serial(submission: Submission, number: int) -> tuple[Layer, Cut, dict[str, int]]:
    """Draw a layer whose slices are all of one size, and a machine of one tilelet that moves bytes one by one.

    Args:
        submission: Its generator and parameters are used.
        number: From 0 to 3; kernels, strides and numbers of slices differ with it. The multipliers share out filters if
            it is even, pixels if it is odd. In the first two some of them are idle at the end, in the others none.
    """
    rng, more = submission.rng, submission.parameters.more_cycles
    kernel, stride = ((3, 1), (1, 2), (5, 2), (2, 3))[number]
    while True:
        cut = {"rows": 1 + (number + int(rng.integers(2))) % 4, "columns": int(rng.integers(3, 9))}
        cut |= {"filters": int(rng.integers(2, 25)), "channels": 1 + (number + int(rng.integers(2))) % 4}
        pixels, filters, lanes = cut["rows"] * cut["columns"], cut["filters"], int(rng.choice([2, 4, 8]))
        by_filters, by_pixels = pixels * -(-filters // lanes), filters * -(-pixels // lanes)
        shared, best = (pixels, by_pixels < by_filters) if number % 2 else (filters, by_filters < by_pixels)
        if best and shared > lanes and ((0 < shared % lanes < lanes / 2) if number < 2 else shared % lanes == 0):
            break
    counts = ((2, 3, 5), (3, 5, 2), (4, 2, 3), (3, 2, 2))[number]  # slices of channels, rows and filters
    layer = {"channels": cut["channels"] * counts[0]}
    layer |= {
        "height": (cut["rows"] * counts[1] - 1) * stride + kernel + int(rng.integers(stride)),
        "width": (cut["columns"] - 1) * stride + kernel,
    }
    layer |= {"filters": cut["filters"] * counts[2], "kernel": kernel, "stride": stride, "pad": 0}
    machine = {"lanes": lanes, "byte_cycles": int(rng.integers(2, 5)), "latency": int(rng.integers(5, 40))}
    if more != "none":
        machine[more] = int(rng.integers(2, 6) if more == "issue" else rng.integers(41, 90))
    return layer, cut, machine


def _serial_cases(submission: Submission, order: str = "") -> Iterator[Arguments]:
    """Draw arguments of `bytes_moved` for an order, or of `cycles_of`; a cut's columns do not count: rows are full."""
    for number in range(4):
        layer, cut, machine = draw_serial(submission, number)
        cut["columns"] = int(submission.rng.integers(1, cut["columns"]))
        yield (layer, cut, order) if order else (layer, cut, int(submission.rng.integers(1000, 9999)), machine)


BYTES_HINTS = {
    "output": "which operands does a step of the innermost loop load anew? The bias comes once for each output slice",
    "weight": "how often is a slice of weights loaded, and how often do the accumulators of an output slice travel?",
    "input": "how often is a slice of the input loaded, with its halo, and how often a slice of weights?",
}
CYCLES_HINT = """transfers, waits and products{{ {"issue": ", and the issue of instructions", \
"barrier": ", and the barrier"}.get(more_cycles, "") }}: how many waits, and how many multipliers are idle in the last \
group?"""
COSTS = (
    *(
        comparison(
            f"{order}_stationary_bytes",
            f"`bytes_moved` gives the bytes of the {order}-stationary program",
            2,
            "bytes_moved",
            _serial_cases,
            order,
            hint=hint,
        )
        for order, hint in BYTES_HINTS.items()
    ),
    comparison(
        "cycles_are_predicted",
        "`cycles_of` gives the cycles of a program, for any number of bytes",
        4,
        "cycles_of",
        _serial_cases,
        hint=CYCLES_HINT,
    ),
)


P2_13 = Task(
    "P2.13",
    "Three orders: bytes and cycles",
    checks=COSTS,
    libraries=TYPES,
    minutes=45,
    builds_on=("P2.12",),
    varies=(MOVED_ELEMENT, MOVED, MORE_CYCLES),
)


# -- P2.14

LAYERS = 5  # of which the mean counts
MOST_SLICES = 50_000


@cache
def rivals(layer: tuple[tuple[str, int], ...], machine: Machine) -> tuple[int, int]:
    """Return the cycles of the greedy slices, and of the compiler's search."""
    stages = (convolution(**dict(layer)),)
    return greedy(stages, machine).cycles, search(stages, machine).cycles


def _open_machine(submission: Submission) -> Machine:
    """Return the machine of `fastest`: that of the course, with other tiles and blobs in a variant."""
    tiles, tilelets = submission.parameters.nmp_tiles
    blob = 1024 * submission.parameters.nmp_blob
    return replace(default_machine(), tiles=tiles, tilelets=tilelets, blob_bytes=blob)


def draw_open(rng: np.random.Generator, machine: Machine, number: int) -> Layer:
    """Draw a layer in which greedy slices waste at least a quarter of the cycles.

    Neither its image nor its output is square. Every other layer has strides and no padding.
    """
    while True:
        height, width = (int(n) for n in rng.permutation(np.arange(10, 25))[:2])
        kernel, stride, pad = ((3, 1, 1), (3, 2, 0))[number % 2]
        layer = {"channels": 8 * int(rng.integers(2, 7)), "height": height, "width": width}
        layer |= {"filters": 8 * int(rng.integers(2, 9)), "kernel": kernel, "stride": stride, "pad": pad}
        slow, fast = rivals(tuple(layer.items()), machine)
        if fast < 0.75 * slow:
            return layer


def _cycles(submission: Submission, layer: Layer, machine: Machine) -> int:
    """Return the cycles of the student's slicing by the grader's own model."""
    answer = expect.mapping(submission.call("fastest", layer), (*AXES, "order"), "what `fastest` returns")
    tiles, tilelets = (natural(answer.get(name, 1), name) for name in ("tiles", "tilelets"))
    twice = bool(expect.number(answer.get("double_buffered", False), "`double_buffered`"))
    cut, stages = sizes_of(answer), (convolution(**layer),)
    slicing = Slicing(**cut, order=str(answer["order"]), tiles=tiles, tilelets=tilelets, double_buffered=twice)
    try:
        check_fits(stages, slicing, machine)
    except CompilerError as error:
        expect.fail("the slicing of `fastest` is invalid", got=error.one_line(), hint="see `first_misfit`")
    slices = math.prod(-(-length // cut[name]) for name, length in whole(layer).items())
    what = "`fastest` cuts too many slices"
    expect.true(slices <= MOST_SLICES, what, expected=f"at most {MOST_SLICES:,}", got=slices)
    return cycles_of(stages, slicing, machine)


def _saved(submission: Submission) -> tuple[float, str]:
    """Return which share of the cycles that the compiler's search saves `fastest` saves, on average; and all cycles."""
    shares, texts, machine = [], [], _open_machine(submission)
    for number in range(LAYERS):
        layer = draw_open(submission.rng, machine, number)
        with expect.case(given_layer(layer), "return a dictionary with the fields of a Slicing"):
            cycles = _cycles(submission, layer, machine)
        slow, fast = rivals(tuple(layer.items()), machine)
        shares.append((slow - cycles) / (slow - fast))
        texts.append(f"{cycles:,} cycles (greedy {slow:,}, search {fast:,})")
    return float(np.mean(shares)), "; ".join(texts)


def _check_cycles(submission: Submission, share: float, hint: str) -> None:
    """Check that a share of the cycles that the search saves is saved, on average."""
    saved, text = submission.once("saved", lambda: _saved(submission))
    submission.reach(100 * saved, course=100.0)
    expected = f"at least {share:.0%} of the cycles that the compiler's search saves"
    what, given = "the programs of `fastest` are too slow", f"the mean of {LAYERS} drawn layers"
    expect.true(saved >= share, what, expected=expected, got=f"{saved:.0%}: {text}", given=given, hint=hint)


@points(2)
def not_slower_than_greedy(submission: Submission) -> None:
    """The slicing of `fastest` fits, and takes no more cycles than the greedy one."""
    _check_cycles(submission, 0.0, "how many of the tilelets have work, and who shares it out: rows or filters?")


@points(2)
def half_of_the_way(submission: Submission) -> None:
    """`fastest` saves at least half of the cycles that the compiler's search saves."""
    _check_cycles(submission, 0.5, "trying is allowed: `time_program` says what each of several cuts takes")


@points(4)
def close_to_the_search(submission: Submission) -> None:
    """`fastest` saves at least nine tenths of the cycles that the compiler's search saves."""
    _check_cycles(submission, 0.9, "the fields that you have not varied yet: do transfers and products overlap?")


P2_14 = Task(
    "P2.14",
    "Fewest cycles",
    libraries=COMPILER,
    minutes=45,
    builds_on=("P2.12", "P2.13"),
    leaderboard="share of the cycles that the compiler's search saves, in %",
    varies=(NMP_TILES, NMP_BLOB),
)
