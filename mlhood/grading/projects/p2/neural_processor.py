"""Checks of P2.12 to P2.14: slices for the neural processor, what they cost in three orders, and the fewest cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp.codegen.convolution import convolution, convolution_program
from mlhood.compiler.backends.nmp.codegen.search import Choice, cycles_of, greedy, lower_bound, search
from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing, check_fits, slice_bytes
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.isa.transfers import Load, Transfer
from mlhood.compiler.backends.nmp.machine import Dram, Machine, default_machine
from mlhood.compiler.backends.nmp.program import Program
from mlhood.compiler.backends.nmp.stages import Stage
from mlhood.errors import CompilerError
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import COMPILER, TYPES
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
# tiles of the machine that `fastest` is for, and tilelets of each; and the KiB of its blobs
NMP_TILES = Parameter("nmp_tiles", ((4, 8), (8, 4), (16, 2), (32, 1)))
NMP_BLOB = Parameter("nmp_blob", (8, 6, 12))

Layer = dict[str, int]
AXES = ("rows", "columns", "filters", "channels")
OPERANDS = ("input", "weights", "output")
TRAFFIC = (4.0, 1.01)  # how many times the least traffic the slices may cause


def draw_layer(rng: np.random.Generator, deep: bool = False) -> Layer:
    """Draw a convolution; a deep one has filters of more than a kilobyte, and a small image."""
    kernel = int(rng.choice([1, 3, 5]))
    size = int(rng.integers(6, 13)) if deep else int(rng.integers(12, 40))
    channels = int(rng.integers(150, 400)) if deep else int(rng.integers(2, 33))
    kernel = 3 if deep else kernel
    layer = {"channels": channels, "height": size, "width": size + int(rng.integers(0, 5))}
    layer |= {"filters": int(rng.integers(8, 65)), "kernel": kernel, "stride": int(rng.integers(1, 3))}
    return layer | {"pad": int(rng.integers(0, kernel // 2 + 1))}


def stage_of(layer: Layer, element: int = 1) -> Stage:
    """Return a layer as a stage, for elements of one or two bytes."""
    return replace(convolution(**layer), element=element)


def _cut(value: Any) -> dict[str, int]:
    """Return what a student's function gives as sizes of slices."""
    got = expect.mapping(value, AXES, "the slices")
    return {name: _natural(got[name], name) for name in AXES}


def _natural(value: Any, name: str) -> int:
    number = expect.integer(value, f"`{name}`")
    expect.true(number >= 1, f"`{name}` must be 1 or more", got=value)
    return min(number, 1_000_000)


def _lengths(stage: Stage) -> tuple[int, int, int, int]:
    return stage.out_height, stage.out_width, stage.filters, stage.channels


def _whole(layer: Layer) -> dict[str, int]:
    """Return the cut of a layer into one slice."""
    sizes: dict[str, int] = {}
    sizes.update(zip(AXES, _lengths(stage_of(layer)), strict=True))
    return sizes


def _given(layer: Layer, **others: object) -> str:
    return ", ".join(f"{name}={value}" for name, value in (layer | others).items())


def _slicing(cut: dict[str, int], order: str = "output") -> Slicing:
    return Slicing(*(cut[name] for name in AXES), order=order)


# -- P2.12

INPUT_HINTS = {
    "no padding": "from the first row of the first window to the last row of the last; how many has the image at most?",
    "its padding": "from the first row of the first window to the last row of the last, in the image or not",
    "no padding, in whole rows": "how many rows do the windows read, how many has the image, and how wide is it?",
    "no padding, in lines of 8 bytes": "how many rows do the windows read, and in how many bytes is one stored?",
}
CONSTANT_BYTES = {name: 4 * number for number, name in enumerate(FILTER_CONSTANTS.values, 1)}
ACCUMULATOR_BYTES = {"three": 3, "four": 4, "five": 5}
LINE = 8  # bytes


def needed_bytes(
    rules: SimpleNamespace, stage: Stage, rows: Any, columns: Any, filters: Any, channels: Any
) -> dict[str, Any]:
    """Return the bytes of a slice's operands by the rules of the course or a variant; of many, for arrays of sizes."""
    found = slice_bytes((stage,), rows, columns, filters, channels)
    window, kind = stage.window, rules.input_slice
    tall, wide = (rows - 1) * window.strides[0] + window.kernel[0], (columns - 1) * window.strides[1] + window.kernel[1]
    if kind != "its padding":
        tall, wide = np.minimum(tall, stage.height), np.minimum(wide, stage.width)
    line = (stage.width if kind.endswith("whole rows") else wide) * stage.element
    line = -(-line // LINE) * LINE if kind.endswith("8 bytes") else line
    found |= {"input": channels * tall * line}
    found["weights"] = found["weights"] + filters * (CONSTANT_BYTES[rules.filter_constants] - 4)
    width = np.where(channels < stage.channels, ACCUMULATOR_BYTES[rules.partial_bytes], 1)
    return found | {"output": filters * rows * columns * stage.element * width}


def _needed(rules: SimpleNamespace, stage: Stage, cut: Mapping[str, int]) -> dict[str, int]:
    return {name: int(size) for name, size in needed_bytes(rules, stage, *(cut[name] for name in AXES)).items()}


def _draw_cut(rng: np.random.Generator, layer: Layer, split: bool) -> dict[str, int]:
    """Draw a cut of which rows, columns, filters and channels differ, if the layer has as many of them."""
    cut = {name: int(rng.integers(1, length + 1)) for name, length in _whole(layer).items()}
    cut["channels"] = max(1, layer["channels"] // 3) if split else layer["channels"]
    return cut


def _sliced(rng: np.random.Generator, split: bool) -> Iterator[tuple[Layer, dict[str, int]]]:
    """Draw layers with a cut each: some with full rows, some with full columns, of which padding is a part."""
    for _ in range(4):
        layer = draw_layer(rng, deep=split)
        yield layer, _draw_cut(rng, layer, split)
    for axis, wide in (("rows", 9), ("columns", -5)):
        layer = {"channels": int(rng.integers(4, 9)), "height": 12, "width": 12 + wide, "filters": 7}
        layer |= {"kernel": 5, "stride": 1, "pad": 2}
        cut = _draw_cut(rng, layer, split) | {"rows": 2, "columns": 3}
        yield layer, cut | {axis: _whole(layer)[axis]}


def _check_bytes(submission: Submission, operand: str, split: bool, hint: str) -> None:
    for number, (layer, cut) in enumerate(_sliced(submission.rng, split)):
        element = number % 2 + 1
        want = _needed(submission.parameters, stage_of(layer, element), cut)[operand]
        given = _given(layer, element=element) + f"; {_given(cut)}"
        with expect.case(given, hint):
            answer = expect.mapping(submission.call("slice_bytes", layer, cut, element), OPERANDS, "the result")
            got = expect.integer(answer[operand], f"`{operand}` of `slice_bytes`")
        expect.equal(got, want, f"`slice_bytes` is wrong for the {operand}", given=given, hint=hint)


@points(2)
def input_slices_have_a_halo(submission: Submission) -> None:
    """`slice_bytes` counts what the windows of a slice read of the image, and {{ input_slice }}."""
    _check_bytes(submission, "input", False, INPUT_HINTS[submission.parameters.input_slice])
    hint = "if input channels are cut, how many of them has a slice of the image?"
    _check_bytes(submission, "input", True, hint)


@points(1)
def weights_come_with_their_bias(submission: Submission) -> None:
    """`slice_bytes` counts the weights of a slice and {{ filter_constants }} for each of its filters."""
    hint = "what belongs to one filter? The bias is always int32"
    _check_bytes(submission, "weights", False, hint)
    hint = "if input channels are cut, what belongs to one filter of the slice? The bias, too"
    _check_bytes(submission, "weights", True, hint)


@points(1)
def partial_sums_are_wide(submission: Submission) -> None:
    """`slice_bytes` counts accumulators of {{ partial_bytes }} bytes for each byte of an element where input channels are cut."""  # noqa: E501
    hint = "while sums are incomplete, the output slice holds accumulators, not elements"
    _check_bytes(submission, "output", False, "no channels are cut, so the output slice holds elements")
    _check_bytes(submission, "output", True, hint)


def _fitting(submission: Submission) -> list[tuple[Layer, int, int, dict[str, int]]]:
    """Return drawn layers with blob and element size, and the student's slices."""
    return submission.once("fitting", lambda: _ask(submission))


def _ask(submission: Submission) -> list[tuple[Layer, int, int, dict[str, int]]]:
    found = []
    for layer, blob, element in _draw_blobs(submission):
        given = _given(layer, blob=blob, element=element)
        with expect.case(given, "a cut has `rows`, `columns`, `filters` and `channels`; an axis of 1 has one size: 1"):
            answer = submission.call("fitting", layer, blob, element)
        if answer is None:
            what = "`fitting` returns None: it has found no cut that fits"
            hint = (
                "are the bytes of your `slice_bytes` right, and which sizes do you try (an axis of 1 has one size: 1)?"
            )
            expect.fail(what, expected="a cut: there is one for every layer", given=given, hint=hint)
        with expect.case(given):
            cut = _cut(answer)
        lengths = _whole(layer)
        wrong = {name: size for name, size in cut.items() if size > lengths[name]}
        what = "`fitting` returns a slice that is larger than its layer"
        hint = "how many rows and columns has the output of this layer?"
        expect.true(not wrong, what, expected=f"at most {_given(lengths)}", got=_given(wrong), given=given, hint=hint)
        found.append((layer, blob, element, cut))
    return found


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
        yield layer, max(_needed(submission.parameters, stage_of(layer), _whole(layer)).values()), 1


def _check_fits(submission: Submission) -> None:
    for layer, blob, element, cut in _fitting(submission):
        sizes = _needed(submission.parameters, stage_of(layer, element), cut)
        operand = max(sizes, key=sizes.__getitem__)
        hint = "by your own `slice_bytes`, what is the largest of the three?"
        given = _given(layer, blob=blob, element=element)
        what = f"the slice that `fitting` returns does not fit its blob: {operand}"
        got = f"{sizes[operand]} bytes for {_given(cut)}"
        expect.true(sizes[operand] <= blob, what, expected=f"at most {blob} bytes", got=got, given=given, hint=hint)


@points(2)
def slices_fit_their_blobs(submission: Submission) -> None:
    """The slices of `fitting` fit the blobs of machines, {{ 'by their verifier, ' if input_slice == 'no padding' else '' }}also where one filter does not fit."""  # noqa: E501
    _check_fits(submission)


def traffic(rules: SimpleNamespace, stage: Stage, cut: dict[str, int]) -> int:
    """Return the bytes that output-stationary slices move: input and weights of each slice, and each output once."""
    sizes = _needed(rules, stage, cut)
    lengths = _lengths(stage)
    counts = [-(-length // min(size, length)) for size, length in zip(cut.values(), lengths, strict=True)]
    outputs = stage.out_height * stage.out_width * stage.filters * stage.element
    return int(np.prod(counts)) * (sizes["input"] + sizes["weights"]) + outputs


def least_traffic(rules: SimpleNamespace, stage: Stage, blob: int) -> int:
    """Return the least traffic of slices that fit, over sizes that cut each axis evenly."""
    lengths = np.array(_lengths(stage))
    axes = [np.unique(-(-length // np.arange(1, length + 1))) for length in lengths]
    cuts = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(4, -1)
    sizes = needed_bytes(rules, stage, *cuts)
    fits = np.maximum.reduce([np.broadcast_to(sizes[name], cuts.shape[1:]) for name in OPERANDS]) <= blob
    moved = np.prod(-(-lengths[:, None] // cuts), axis=0) * (sizes["input"] + sizes["weights"])
    outputs = stage.out_height * stage.out_width * stage.filters * stage.element
    return int(moved[fits].min()) + outputs


def _traffic_ratio(submission: Submission) -> float:
    """Return how many times the least traffic the student's slices cause, as a geometric mean."""
    _check_fits(submission)
    rules, ratios = submission.parameters, []
    for layer, blob, element, cut in _fitting(submission):
        stage = stage_of(layer, element)
        ratios.append(traffic(rules, stage, cut) / least_traffic(rules, stage, blob))
    return float(np.exp(np.mean(np.log(ratios))))


def _check_traffic(submission: Submission, limit: float, hint: str) -> None:
    ratio = submission.once("traffic", lambda: _traffic_ratio(submission))
    expected, got = f"at most {limit} times the least traffic", f"{ratio:.2f} times"
    expect.true(ratio <= limit, "the slices of `fitting` are loaded too often", expected=expected, got=got, hint=hint)


@points(1)
def slices_are_not_tiny(submission: Submission) -> None:
    """The slices of `fitting` move at most four times as many bytes as the best that fit."""
    _check_traffic(submission, TRAFFIC[0], "what could be larger in your slices, and would still fit?")


@points(1)
def slices_move_few_bytes(submission: Submission) -> None:
    """The slices of `fitting` move at most a hundredth more bytes than the best that fit."""
    hint = "there are few sizes that cut an axis into equal parts: how many combinations of four such sizes?"
    _check_traffic(submission, TRAFFIC[1], hint)


# -- P2.13


def draw_serial(rng: np.random.Generator, number: int, element: int) -> tuple[Layer, dict[str, int], Machine]:
    """Draw a layer whose slices are all of one size, and a machine of one tilelet that moves bytes one by one.

    Args:
        rng: Generator of what is drawn.
        number: From 0 to 2; kernels, strides and numbers of slices differ with it. In the first, it is better if the
            multipliers share out filters, and in the second, if they share out pixels.
        element: Bytes of an element.
    """
    while True:
        layer, cut, machine = _draw_serial(rng, number)
        pixels, filters, lanes = cut["rows"] * cut["columns"], cut["filters"], machine.lanes(element)
        by_filters, by_pixels = pixels * -(-filters // lanes), filters * -(-pixels // lanes)
        if (by_filters < by_pixels, by_pixels < by_filters, True)[number]:
            return layer, cut, machine


def _draw_serial(rng: np.random.Generator, number: int) -> tuple[Layer, dict[str, int], Machine]:
    kernel, stride = ((3, 1), (1, 2), (5, 2))[number]
    cut = {"rows": 1 + (number + int(rng.integers(2))) % 4, "columns": int(rng.integers(3, 9))}
    cut |= {"filters": int(rng.integers(2, 25)), "channels": 1 + (number + int(rng.integers(2))) % 4}
    counts = [(2, 3, 5), (3, 5, 2), (4, 2, 3)][number]  # slices of channels, rows and filters
    layer = {"channels": cut["channels"] * counts[0]}
    layer |= {
        "height": (cut["rows"] * counts[1] - 1) * stride + kernel + int(rng.integers(stride)),
        "width": (cut["columns"] - 1) * stride + kernel,
    }
    layer |= {"filters": cut["filters"] * counts[2], "kernel": kernel, "stride": stride, "pad": 0}
    dram = Dram(2**20, 1, int(rng.integers(2, 5)), int(rng.integers(5, 40)))
    machine = replace(
        default_machine(), name="serial", tiles=1, tilelets=1, issue_cycles=0, barrier_cycles=0, dram=dram
    )
    return layer, cut, replace(machine, macs_per_cycle=int(rng.choice([4, 8, 16])))


def _measured(submission: Submission) -> list[tuple[str, str, Mapping[str, object], dict[str, int], int]]:
    return submission.once("serial", lambda: _simulate(submission))


def _simulate(submission: Submission) -> list[tuple[str, str, Mapping[str, object], dict[str, int], int]]:
    """Return for drawn layers and all orders what was given, the prediction, and the program's bytes and cycles."""
    found, element = [], submission.parameters.moved_element
    names = MOVED_NAMES[submission.parameters.moved]
    for case in range(3):
        layer, cut, machine = draw_serial(submission.rng, case, element)
        told = cut | {"columns": int(submission.rng.integers(1, cut["columns"]))}  # rows are full, whatever it says
        machine, more = _with_more_cycles(submission, machine)
        numbers = {"lanes": machine.lanes(element), "byte_cycles": machine.dram.burst_cycles}
        numbers |= {"latency": machine.dram.latency_cycles} | more
        for order in ORDERS:
            given = f"{_given(layer)}; {_given(told)}; {order} stationary; {_given(numbers)}"
            with expect.case(given):
                answer = submission.call("predict", layer, told, order, numbers)
                got = expect.mapping(answer, (*names, "cycles"), "what `predict` returns")
            timing = time_program(convolution_program(stage_of(layer, element), _slicing(cut, order), machine))
            found.append((order, given, got, _moved(timing.program, names), timing.cycles))
    return found


MOVED_NAMES = {"bytes": ("bytes",), "loaded and stored": ("loaded", "stored"), "by operand": OPERANDS}


def _with_more_cycles(submission: Submission, machine: Machine) -> tuple[Machine, dict[str, int]]:
    """Return the machine of a variant, and what `predict` is told of it besides."""
    more = submission.parameters.more_cycles
    if more == "none":
        return machine, {}
    cycles = int(submission.rng.integers(2, 6) if more == "issue" else submission.rng.integers(41, 90))
    return replace(machine, **{f"{more}_cycles": cycles}), {more: cycles}


def _moved(program: Program, names: tuple[str, ...]) -> dict[str, int]:
    """Return the bytes that a program moves, all of them or by name; each operand has blobs of its own."""
    moved = dict.fromkeys(names, 0)
    for each in program.instructions:
        if isinstance(each, Transfer):
            blob = min(each.memory // program.machine.blob_bytes, 2)
            by_way = "loaded" if isinstance(each, Load) else "stored"
            name = {1: names[0], 2: by_way, 3: OPERANDS[blob]}[len(names)]
            moved[name] += each.bytes
    return moved


def _check_prediction(submission: Submission, order: str, hint: str) -> None:
    for name, given, got, sizes, _ in _measured(submission):
        for part, size in sizes.items() if name == order else ():
            moved = expect.integer(got[part], f"`{part}` of `predict`", given=given)
            what = "the bytes of `predict` are not the program's" + ("" if part == "bytes" else f": {part}")
            expect.equal(moved, size, what, given=given, hint=hint)


@points(1)
def output_stationary_bytes(submission: Submission) -> None:
    """`predict` gives the bytes of the output-stationary program."""
    hint = "which operands does a step of the innermost loop load anew? The bias comes once for each output slice"
    _check_prediction(submission, "output", hint)


@points(1)
def weight_stationary_bytes(submission: Submission) -> None:
    """`predict` gives the bytes of the weight-stationary program."""
    hint = "how often is a slice of weights loaded, and how often do the accumulators of an output slice travel?"
    _check_prediction(submission, "weight", hint)


@points(1)
def input_stationary_bytes(submission: Submission) -> None:
    """`predict` gives the bytes of the input-stationary program."""
    hint = "how often is a slice of the input loaded, with its halo, and how often a slice of weights?"
    _check_prediction(submission, "input", hint)


@points(3)
def cycles_are_predicted(submission: Submission) -> None:
    """`predict` gives the cycles of all three programs."""
    hint = "transfers, waits and products: how many waits, and how many multipliers are idle in the last group?"
    for _, given, got, _, cycles in _measured(submission):
        taken = expect.integer(got["cycles"], "`cycles` of `predict`", given=given)
        expect.equal(taken, cycles, "the cycles of `predict` are not the program's", given=given, hint=hint)


# -- P2.14


@cache
def rivals(stage: Stage, machine: Machine) -> tuple[int, int, int]:
    """Return the cycles of the greedy slices, of the compiler's search, and the lower bound."""
    return greedy((stage,), machine).cycles, search((stage,), machine).cycles, lower_bound((stage,), machine)


def _open_machine(submission: Submission) -> Machine:
    """Return the machine of `fastest`: that of the course, with other tiles and blobs in a variant."""
    tiles, tilelets = submission.parameters.nmp_tiles
    blob = 1024 * submission.parameters.nmp_blob
    return replace(default_machine(), tiles=tiles, tilelets=tilelets, blob_bytes=blob)


def draw_open(rng: np.random.Generator, machine: Machine, number: int) -> Layer:
    """Draw a layer in which greedy slices waste at least a quarter of the cycles.

    Neither its image nor its output is square. The first layer is padded; the second has strides and no padding.
    """
    while True:
        height, width = (int(n) for n in rng.permutation(np.arange(12, 31))[:2])
        kernel, stride, pad = ((3, 1, 1), (3, 2, 0))[number]
        layer = {"channels": 8 * int(rng.integers(2, 9)), "height": height, "width": width}
        layer |= {"filters": 8 * int(rng.integers(2, 9)), "kernel": kernel, "stride": stride, "pad": pad}
        slow, fast, _ = rivals(stage_of(layer), machine)
        if fast < 0.75 * slow:
            return layer


def _submitted(submission: Submission) -> list[tuple[Layer, Choice]]:
    return submission.once("fastest", lambda: _run_fastest(submission))


def _run_fastest(submission: Submission) -> list[tuple[Layer, Choice]]:
    """Return drawn layers, the student's slicing of each, and its cycles by the judge's own model."""
    found, machine = [], _open_machine(submission)
    for number in range(2):
        layer = draw_open(submission.rng, machine, number)
        with expect.case(_given(layer), "return a dictionary with the fields of a Slicing"):
            answer = expect.mapping(submission.call("fastest", layer), (*AXES, "order"), "what `fastest` returns")
            tiles, tilelets = (_natural(answer.get(name, 1), name) for name in ("tiles", "tilelets"))
            twice = bool(expect.number(answer.get("double_buffered", False), "`double_buffered`"))
            rows, columns, filters, channels = _cut(answer).values()
            slicing = Slicing(rows, columns, filters, channels, str(answer["order"]), tiles, tilelets, twice)
        stage = stage_of(layer)
        try:
            check_fits((stage,), slicing, machine)
        except CompilerError as error:
            expect.fail(
                "the slicing of `fastest` is invalid",
                got=error.one_line(),
                given=_given(layer),
                hint="see `first_misfit`",
            )
        slices = int(np.prod([-(-n // s) for n, s in zip(_lengths(stage), _cut(answer).values(), strict=True)]))
        expect.true(slices <= 50_000, "`fastest` cuts too many slices", expected="at most 50,000", got=slices)
        found.append((layer, Choice(slicing, cycles_of((stage,), slicing, machine))))
    return found


def _saved(submission: Submission) -> tuple[float, str]:
    """Return which share of the cycles that the compiler's search saves `fastest` saves, on average; and all cycles."""
    shares, texts = [], []
    for layer, choice in _submitted(submission):
        slow, fast, bound = rivals(stage_of(layer), _open_machine(submission))
        shares.append((slow - choice.cycles) / (slow - fast))
        texts.append(f"{choice.cycles:,} cycles (greedy {slow:,}, search {fast:,}, lower bound {bound:,})")
    return float(np.mean(shares)), "; ".join(texts)


def _check_cycles(submission: Submission, share: float, hint: str) -> None:
    """Check that a share of the cycles that the search saves is saved, on average."""
    saved, text = submission.once("saved", lambda: _saved(submission))
    submission.reach(100 * saved, course=100.0)
    given = "; ".join(_given(layer) for layer, _ in _submitted(submission))
    expected = f"at least {share:.0%} of the cycles that the compiler's search saves"
    what = "the programs of `fastest` are too slow"
    expect.true(saved >= share, what, expected=expected, got=f"{saved:.0%}: {text}", given=given, hint=hint)


@points(1)
def not_slower_than_greedy(submission: Submission) -> None:
    """The slicing of `fastest` fits, and takes no more cycles than the greedy one."""
    units = _open_machine(submission).units
    hint = f"how many of the {units} tilelets have work, and who shares it out: rows or filters?"
    _check_cycles(submission, 0.0, hint)


@points(1)
def half_of_the_way(submission: Submission) -> None:
    """`fastest` saves at least half of the cycles that the compiler's search saves."""
    _check_cycles(submission, 0.5, "trying is allowed: `time_program` says what each of several cuts takes")


@points(2)
def close_to_the_search(submission: Submission) -> None:
    """`fastest` saves at least nine tenths of the cycles that the compiler's search saves."""
    _check_cycles(submission, 0.9, "the fields that you have not varied yet: do transfers and products overlap?")


TASKS = (
    Task(
        "P2.12",
        "Slice a convolution so that it fits",
        checks=(
            input_slices_have_a_halo,
            weights_come_with_their_bias,
            partial_sums_are_wide,
            slices_fit_their_blobs,
            slices_are_not_tiny,
            slices_move_few_bytes,
        ),
        libraries=TYPES,
        minutes=25,
        builds_on=("P2.3",),
        varies=(INPUT_SLICE, FILTER_CONSTANTS, PARTIAL_BYTES),
    ),
    Task(
        "P2.13",
        "Three orders: bytes and cycles",
        checks=(output_stationary_bytes, weight_stationary_bytes, input_stationary_bytes, cycles_are_predicted),
        libraries=TYPES,
        minutes=20,
        builds_on=("P2.12",),
        varies=(MOVED_ELEMENT, MOVED, MORE_CYCLES),
    ),
    Task(
        "P2.14",
        "Fewest cycles",
        checks=(not_slower_than_greedy, half_of_the_way, close_to_the_search),
        libraries=COMPILER,
        minutes=20,
        builds_on=("P2.12", "P2.13"),
        leaderboard="share of the cycles that the compiler's search saves, in %",
        varies=(NMP_TILES, NMP_BLOB),
    ),
)
