"""Checks of P2.12 and P2.13: slices for the neural processor, and what they cost in three orders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, comparison
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import TYPES
from mlhood.grading.variants.parameter import Parameter

# what the input slice of `slice_bytes` holds besides what windows read; what each filter has besides its weights; and
# the bytes of an accumulator for each byte of an element
INPUT_SLICE = Parameter(
    "input_slice", ("no padding", "its padding", "no padding, in whole rows", "no padding, in lines of 8 bytes")
)
FILTER_CONSTANTS = Parameter(
    "filter_constants",
    (
        "a bias of four bytes",
        "a bias and a multiplier of four bytes each",
        "a bias, a multiplier and a shift of four bytes each",
    ),
)
PARTIAL_BYTES = Parameter("partial_bytes", ("four", "three", "five"))
# bytes of an element in the programs that `predict` is asked about; what it says of the bytes that they move; and which
# cycles the machine takes besides transfers, waits and products
MOVED_ELEMENT = Parameter("moved_element", (1, 2))
MOVED = Parameter("moved", ("bytes", "loaded and stored", "by operand"))
MORE_CYCLES = Parameter("more_cycles", ("none", "issue", "barrier"))

Layer = dict[str, int]
Cut = dict[str, int]
ORDERS = ("output", "weight", "input")  # what is stationary
AXES = ("rows", "columns", "filters", "channels")


def draw_layer(rng: np.random.Generator, deep: bool = False) -> Layer:
    """Draw a convolution; a deep one has filters of more than a kilobyte, and a small image."""
    kernel = 3 if deep else int(rng.choice([1, 3, 5]))
    size = int(rng.integers(6, 13)) if deep else int(rng.integers(12, 40))
    channels = int(rng.integers(150, 400)) if deep else int(rng.integers(2, 33))
    layer = {"channels": channels, "height": size, "width": size + int(rng.integers(0, 5))}
    layer |= {"filters": int(rng.integers(8, 65)), "kernel": kernel, "stride": int(rng.integers(1, 3))}
    return layer | {"pad": int(rng.integers(0, kernel // 2 + 1))}


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

# templates; a slice is that of a cut, wherever it lies
SPANNED = "the windows of a slice span (rows - 1) * stride + kernel rows, wherever the slice lies"
INPUT_HINT = (
    SPANNED
    + """, and columns likewise; {{ {"no padding": "how many has the image at most?", \
"its padding": "in the image or not", \
"no padding, in whole rows": "how many rows has the image, and how wide is it?", \
"no padding, in lines of 8 bytes": "how many has the image, and in how many bytes is a row stored?"}[input_slice] }}"""
)
CHANNELS_HINT = "input channels are cut: how many of them has a slice, and one of its filters?"
LINE = 8  # bytes


def needed_bytes(rules: SimpleNamespace, layer: Layer, cut: Mapping[str, int], element: int) -> dict[str, int]:
    """Return the bytes of a slice's operands by the rules of the course or a variant."""
    rows, columns, filters, channels = (cut[name] for name in AXES)
    kernel, stride, kind = layer["kernel"], layer["stride"], rules.input_slice
    tall, wide = (rows - 1) * stride + kernel, (columns - 1) * stride + kernel
    if kind != "its padding":
        tall, wide = min(tall, layer["height"]), min(wide, layer["width"])
    line = (layer["width"] if kind.endswith("whole rows") else wide) * element
    line = -(-line // LINE) * LINE if kind.endswith("8 bytes") else line
    constants = 4 * (1 + FILTER_CONSTANTS.values.index(rules.filter_constants))
    accumulator = {"three": 3, "four": 4, "five": 5}[rules.partial_bytes] if channels < layer["channels"] else 1
    return {
        "input": channels * tall * line,
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


def _within_the_image(want: int, layer: Layer, cut: Cut, element: int) -> int:
    """Return the bytes of the input of that slice of which the windows read the most rows and columns of the image."""
    read, (kernel, stride, pad) = 1, (layer[name] for name in ("kernel", "stride", "pad"))
    for side, axis in (("height", "rows"), ("width", "columns")):
        firsts = range(0, whole(layer)[axis], cut[axis])
        ends = (min(first + cut[axis], whole(layer)[axis]) for first in firsts)
        spans = (
            (first * stride - pad, (end - 1) * stride - pad + kernel) for first, end in zip(firsts, ends, strict=True)
        )
        read *= max(min(end, layer[side]) - max(first, 0) for first, end in spans)
    return cut["channels"] * read * element


SIZES = (
    comparison(
        "input_slices_have_a_halo",
        "`slice_bytes` counts what the windows of a slice read of the image, and {{ input_slice }}",
        2,
        "slice_bytes",
        draw_slices,
        key="input",
        hint=INPUT_HINT,
        mistakes={
            CHANNELS_HINT: lambda want, layer, cut, element: want // cut["channels"] * layer["channels"],
            SPANNED + ": a blob has room for them, also where a slice at the border reads fewer": _within_the_image,
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
        "`slice_bytes` counts accumulators of {{ partial_bytes }} bytes for each byte of an element where input "
        "channels are cut",
        1,
        "slice_bytes",
        draw_slices,
        key="output",
        hint="if channels are cut, sums are incomplete, and the output slice holds accumulators; else elements",
    ),
)


def _draw_blobs(submission: Submission) -> Iterator[tuple[Layer, int, int]]:
    """Draw layers, each with the bytes of a blob and of an element; in the last ones, one size fits exactly."""
    rng = submission.rng
    for number in range(10):
        layer = draw_layer(rng, deep=number % 2 == 1)
        yield layer, int(rng.choice([512, 1024, 2048, 8192])), number // 5 + 1
    # the whole layer fits, and fills a blob; the output of the last one has a single row
    for kernel, stride, pad, steps in ((4, 2, 1, 2), (3, 1, 1, 2), (3, 3, 0, 2), (3, 2, 0, 0)):
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
        with expect.case(given_layer(layer, blob=blob, element=element)):
            cut = _fitting(submission, layer, blob, element)
        ratios.append(_moved(rules, layer, cut, element) / _moved(rules, layer, best, element))
    return float(np.exp(np.mean(np.log(ratios))))


def _fitting(submission: Submission, layer: Layer, blob: int, element: int) -> Cut:
    """Return the student's cut, which fits."""
    hint = "a cut has `rows`, `columns`, `filters` and `channels`; an axis of 1 has one size: 1"
    with expect.case(None, hint):
        answer = submission.call("fitting", layer, blob, element)
    what, expected = "`fitting` returns None: it has found no cut that fits", "a cut: there is one for every layer"
    hint = "are the bytes of your `slice_bytes` right, and which sizes do you try (an axis of 1 has one size: 1)?"
    expect.true(answer is not None, what, expected=expected, hint=hint)
    cut, lengths = sizes_of(answer), whole(layer)
    wrong = {name: size for name, size in cut.items() if size > lengths[name]}
    what, hint = "`fitting` returns a slice that is larger than its layer", "how many rows and columns has the output?"
    expect.true(not wrong, what, expected=f"at most {given_layer(lengths)}", got=given_layer(wrong), hint=hint)
    sizes = needed_bytes(submission.parameters, layer, cut, element)
    operand = max(sizes, key=sizes.__getitem__)
    what = f"the slice that `fitting` returns does not fit its blob: {operand}"
    got, hint = (
        f"{sizes[operand]} bytes for {given_layer(cut)}",
        "by your `slice_bytes`, what is the largest of the three?",
    )
    expect.true(sizes[operand] <= blob, what, expected=f"at most {blob} bytes", got=got, hint=hint)
    return cut


def _check_traffic(submission: Submission, limit: float, hint: str) -> None:
    ratio = submission.once("traffic", lambda: _traffic(submission))
    expected, got = f"at most {limit} times the least traffic", f"{ratio:.2f} times"
    expect.true(ratio <= limit, "the slices of `fitting` are loaded too often", expected=expected, got=got, hint=hint)


@points(2, solved=True)
def slices_fit_their_blobs(submission: Submission) -> None:
    """The slices of `fitting` fit the blobs of machines, {{ 'by their verifier, ' if input_slice == 'no padding' else '' }}also where one filter does not fit."""  # noqa: E501
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
    checks=(
        *SIZES,
        slices_fit_their_blobs,
        slices_are_not_tiny,
        slices_move_few_bytes,
    ),
    libraries=TYPES,
    minutes=25,
    builds_on=("P2.3",),
    varies=(INPUT_SLICE, FILTER_CONSTANTS, PARTIAL_BYTES),
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


def _serial_cases(submission: Submission) -> Iterator[tuple[Layer, Cut, dict[str, int]]]:
    """Draw layers, slices and machines; the rows of a slice are full, whatever number of columns it says."""
    for number in range(4):
        layer, cut, machine = draw_serial(submission, number)
        yield layer, cut | {"columns": int(submission.rng.integers(1, cut["columns"]))}, machine


def _moved_cases(submission: Submission, order: str) -> Iterator[Arguments]:
    for layer, cut, _ in _serial_cases(submission):
        yield layer, cut, order


def _cycles_cases(submission: Submission) -> Iterator[Arguments]:
    for layer, cut, machine in _serial_cases(submission):
        yield layer, cut, int(submission.rng.integers(1000, 9999)), machine


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
            _moved_cases,
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
        _cycles_cases,
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
