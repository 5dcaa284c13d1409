"""Checks of P2.11 to P2.13: slices for the neural processor, what they cost in three orders, and the fewest cycles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp.codegen.convolution import convolution, convolution_program, first_misfit
from mlhood.compiler.backends.nmp.codegen.search import Choice, cycles_of, greedy, lower_bound, search
from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing, check_fits, operand_bytes
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.machine import Dram, Machine, default_machine
from mlhood.compiler.backends.nmp.stages import Stage
from mlhood.errors import CompilerError
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

Layer = dict[str, int]
AXES = ("rows", "columns", "filters", "channels")
OPERANDS = ("input", "weights", "output")
TRAFFIC = (4.0, 1.5)  # how many times the least traffic the slices may cause


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
    number = expect.number(value, f"`{name}`")
    whole = math.isfinite(number) and number >= 1 and number == int(number)
    expect.true(whole, f"`{name}` must be a whole number, 1 or more", got=value)
    return int(min(number, 1e6))


def _given(layer: Layer, **others: object) -> str:
    return ", ".join(f"{name}={value}" for name, value in (layer | others).items())


def _slicing(cut: dict[str, int], order: str = "output") -> Slicing:
    return Slicing(*(cut[name] for name in AXES), order=order)


# -- P2.11


def _check_bytes(submission: Submission, operand: str, split: bool, hint: str) -> None:
    for number in range(4):
        layer, element = draw_layer(submission.rng, deep=split), number % 2 + 1
        stage = stage_of(layer, element)
        lengths = (stage.out_height, stage.out_width, stage.filters, stage.channels)
        cut = {name: int(submission.rng.integers(1, n + 1)) for name, n in zip(AXES, lengths, strict=True)}
        cut["channels"] = max(1, stage.channels // 3) if split else stage.channels
        want = operand_bytes((stage,), _slicing(cut))[operand]
        given = _given(layer, element=element) + f"; {_given(cut)}"
        with expect.case(given, hint):
            answer = expect.mapping(submission.call("slice_bytes", layer, cut, element), OPERANDS, "the result")
            got = expect.number(answer[operand], f"`{operand}`")
        expect.equal(got, float(want), f"the bytes of the {operand} slice are wrong", given=given, hint=hint)


@points(2)
def input_slices_have_a_halo(submission: Submission) -> None:
    """`slice_bytes` counts what the windows of a slice read of the image, and no padding."""
    hint = "rows that are read: (rows - 1) * stride + kernel, but no more than the image has; columns likewise"
    _check_bytes(submission, "input", False, hint)


@points(1)
def weights_come_with_their_bias(submission: Submission) -> None:
    """`slice_bytes` counts the weights of a slice and a bias of four bytes for each of its filters."""
    hint = "filters * (4 + channels * kernel * kernel * element): the bias is always int32"
    _check_bytes(submission, "weights", False, hint)


@points(1)
def partial_sums_are_wide(submission: Submission) -> None:
    """`slice_bytes` counts accumulators of four bytes for each byte of an element where input channels are cut."""
    hint = "while sums are incomplete, the output slice holds accumulators: 4 * element bytes each"
    _check_bytes(submission, "output", False, "rows * columns * filters * element, if no channels are cut")
    _check_bytes(submission, "output", True, hint)


def _fitting(submission: Submission) -> list[tuple[Layer, int, int, dict[str, int]]]:
    """Return drawn layers with blob and element size, and the student's slices."""
    return submission.once("fitting", lambda: _ask(submission))


def _ask(submission: Submission) -> list[tuple[Layer, int, int, dict[str, int]]]:
    found = []
    for number in range(8):
        layer, element = draw_layer(submission.rng, deep=number % 2 == 1), number // 4 + 1
        blob = int(submission.rng.choice([512, 1024, 2048, 8192]))
        with expect.case(_given(layer, blob=blob, element=element)):
            cut = _cut(submission.call("fitting", layer, blob, element))
        found.append((layer, blob, element, cut))
    return found


def _check_fits(submission: Submission) -> None:
    for layer, blob, element, cut in _fitting(submission):
        machine = replace(default_machine(), blob_bytes=blob)
        misfit = first_misfit(stage_of(layer, element), _slicing(cut), machine)
        if misfit is not None:
            operand, size, room = misfit
            hint = "make the slice smaller until the largest of your `slice_bytes` is at most `blob`"
            given = _given(layer, blob=blob, element=element)
            what = f"the slice does not fit its blob: {operand}"
            expect.fail(what, expected=f"at most {room} bytes", got=f"{size} bytes for {cut}", given=given, hint=hint)


@points(2)
def slices_fit_their_blobs(submission: Submission) -> None:
    """The slices of `fitting` fit the blobs of machines, by their verifier, also where one filter does not fit."""
    _check_fits(submission)


def traffic(stage: Stage, cut: dict[str, int]) -> int:
    """Return the bytes that output-stationary slices move: input and weights of each slice, and each output once."""
    sizes = operand_bytes((stage,), _slicing(cut))
    lengths = (stage.out_height, stage.out_width, stage.filters, stage.channels)
    counts = [-(-length // min(size, length)) for size, length in zip(cut.values(), lengths, strict=True)]
    outputs = stage.out_height * stage.out_width * stage.filters * stage.element
    return int(np.prod(counts)) * (sizes["input"] + sizes["weights"]) + outputs


def least_traffic(stage: Stage, blob: int) -> int:
    """Return the least traffic of slices that fit, over sizes that cut each axis evenly."""
    lengths = (stage.out_height, stage.out_width, stage.filters, stage.channels)
    axes = [sorted({-(-length // n) for n in range(1, length + 1)}) for length in lengths]
    cuts: Iterator[dict[str, int]] = (
        dict(zip(AXES, cut, strict=True)) for cut in product(*(axis[-12:] + axis[:4] for axis in axes))
    )
    fitting = (cut for cut in cuts if max(operand_bytes((stage,), _slicing(cut)).values()) <= blob)
    return min(traffic(stage, cut) for cut in fitting)


def _traffic_ratio(submission: Submission) -> float:
    """Return how many times the least traffic the student's slices cause, as a geometric mean."""
    _check_fits(submission)
    ratios = [
        traffic(stage_of(layer, element), cut) / least_traffic(stage_of(layer, element), blob)
        for layer, blob, element, cut in _fitting(submission)[::3]
    ]
    return float(np.exp(np.mean(np.log(ratios))))


def _check_traffic(submission: Submission, limit: float, hint: str) -> None:
    ratio = submission.once("traffic", lambda: _traffic_ratio(submission))
    expected, got = f"at most {limit} times the least traffic", f"{ratio:.2f} times"
    expect.true(ratio <= limit, "small slices are loaded too often", expected=expected, got=got, hint=hint)


@points(1)
def slices_are_not_tiny(submission: Submission) -> None:
    """The slices of `fitting` move at most four times as many bytes as the best that fit."""
    _check_traffic(submission, TRAFFIC[0], "a slice should fill its blob: try larger sizes before smaller ones")


@points(1)
def slices_move_few_bytes(submission: Submission) -> None:
    """The slices of `fitting` move at most one and a half times as many bytes as the best that fit."""
    hint = "among the slices that fit, take those with the least number of slices * (input + weights)"
    _check_traffic(submission, TRAFFIC[1], hint)


# -- P2.12


def draw_serial(rng: np.random.Generator) -> tuple[Layer, dict[str, int], Machine]:
    """Draw a layer whose slices are all of one size, and a machine of one tilelet that moves bytes one by one."""
    kernel, stride = int(rng.choice([1, 3])), int(rng.integers(1, 3))
    cut = {"rows": int(rng.integers(1, 4)), "columns": int(rng.integers(3, 9))}
    cut |= {"filters": int(rng.integers(2, 25)), "channels": int(rng.integers(1, 5))}
    counts = [int(n) for n in rng.integers(2, 5, 3)]
    layer = {"channels": cut["channels"] * counts[0]}
    layer |= {
        "height": (cut["rows"] * counts[1] - 1) * stride + kernel,
        "width": (cut["columns"] - 1) * stride + kernel,
    }
    layer |= {"filters": cut["filters"] * counts[2], "kernel": kernel, "stride": stride, "pad": 0}
    dram = Dram(2**20, 1, int(rng.integers(1, 5)), int(rng.integers(0, 40)))
    machine = replace(
        default_machine(), name="serial", tiles=1, tilelets=1, issue_cycles=0, barrier_cycles=0, dram=dram
    )
    return layer, cut, replace(machine, macs_per_cycle=int(rng.choice([4, 8, 16])))


def _measured(submission: Submission) -> list[tuple[str, str, dict[str, float], int, int]]:
    return submission.once("serial", lambda: _simulate(submission))


def _simulate(submission: Submission) -> list[tuple[str, str, dict[str, float], int, int]]:
    """Return for drawn layers and all orders what was given, the prediction, and the program's bytes and cycles."""
    found = []
    for _ in range(3):
        layer, cut, machine = draw_serial(submission.rng)
        numbers = {"lanes": machine.macs_per_cycle, "byte_cycles": machine.dram.burst_cycles}
        numbers |= {"latency": machine.dram.latency_cycles}
        for order in ORDERS:
            given = f"{_given(layer)}; {_given(cut)}; {order} stationary; {_given(numbers)}"
            with expect.case(given):
                answer = expect.mapping(
                    submission.call("predict", layer, cut, order, numbers), ("bytes", "cycles"), "the result"
                )
                got = {name: expect.number(answer[name], f"`{name}`") for name in ("bytes", "cycles")}
            timing = time_program(convolution_program(stage_of(layer), _slicing(cut, order), machine))
            found.append((order, given, got, timing.bytes, timing.cycles))
    return found


def _check_prediction(submission: Submission, order: str, hint: str) -> None:
    for name, given, got, size, _ in _measured(submission):
        if name == order:
            expect.equal(got["bytes"], float(size), "the bytes are not those of the program", given=given, hint=hint)


@points(1)
def output_stationary_bytes(submission: Submission) -> None:
    """`predict` gives the bytes of the output-stationary program."""
    hint = "every slice loads its input and its weights; a bias comes with the first slice of channels only"
    _check_prediction(submission, "output", hint)


@points(1)
def weight_stationary_bytes(submission: Submission) -> None:
    """`predict` gives the bytes of the weight-stationary program."""
    hint = "weights are loaded once; accumulators go to DRAM and back between two slices of channels: 4 bytes each"
    _check_prediction(submission, "weight", hint)


@points(1)
def input_stationary_bytes(submission: Submission) -> None:
    """`predict` gives the bytes of the input-stationary program."""
    hint = "input slices are loaded once, halos included; weights again for each slice of rows"
    _check_prediction(submission, "input", hint)


@points(3)
def cycles_are_predicted(submission: Submission) -> None:
    """`predict` gives the cycles of all three programs."""
    hint = "bytes * byte_cycles + slices * (cycles of one) + (slices + 1) * latency; lanes share filters or pixels"
    for _, given, got, _, cycles in _measured(submission):
        expect.equal(got["cycles"], float(cycles), "the cycles are not those of the program", given=given, hint=hint)


# -- P2.13


@cache
def rivals(stage: Stage) -> tuple[int, int, int]:
    """Return the cycles of the greedy slices, of the compiler's search, and the lower bound."""
    machine = default_machine()
    return greedy((stage,), machine).cycles, search((stage,), machine).cycles, lower_bound((stage,), machine)


def draw_open(rng: np.random.Generator) -> Layer:
    """Draw a layer in which greedy slices waste at least a quarter of the cycles."""
    while True:
        size, kernel = int(rng.integers(10, 29)), int(rng.choice([1, 3]))
        layer = {"channels": 8 * int(rng.integers(2, 9)), "height": size, "width": size}
        layer |= {"filters": 8 * int(rng.integers(2, 9)), "kernel": kernel, "stride": 1, "pad": kernel // 2}
        slow, fast, _ = rivals(stage_of(layer))
        if fast < 0.75 * slow:
            return layer


def _submitted(submission: Submission) -> list[tuple[Layer, Choice]]:
    return submission.once("fastest", lambda: _run_fastest(submission))


def _run_fastest(submission: Submission) -> list[tuple[Layer, Choice]]:
    """Return drawn layers, the student's slicing of each, and its cycles by the judge's own model."""
    found, machine = [], default_machine()
    for _ in range(2):
        layer = draw_open(submission.rng)
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
            expect.fail("the slicing is invalid", got=error.one_line(), given=_given(layer), hint="see `first_misfit`")
        slices = int(np.prod([-(-n // s) for n, s in zip(_lengths(stage), _cut(answer).values(), strict=True)]))
        expect.true(slices <= 50_000, "there are too many slices", expected="at most 50,000", got=slices)
        found.append((layer, Choice(slicing, cycles_of((stage,), slicing, machine))))
    return found


def _lengths(stage: Stage) -> tuple[int, int, int, int]:
    return stage.out_height, stage.out_width, stage.filters, stage.channels


def _check_cycles(submission: Submission, share: float, hint: str) -> None:
    """Check that of the cycles between greedy and search at most a share is left, on average."""
    left, texts = [], []
    for layer, choice in _submitted(submission):
        slow, fast, bound = rivals(stage_of(layer))
        left.append((choice.cycles - fast) / (slow - fast))
        texts.append(f"{choice.cycles:,} cycles (greedy {slow:,}, search {fast:,}, lower bound {bound:,})")
    given = "; ".join(_given(layer) for layer, _ in _submitted(submission))
    expected = f"at most {share:.0%} of the cycles between greedy and search left"
    got = f"{np.mean(left):.0%}: " + "; ".join(texts)
    expect.true(
        float(np.mean(left)) <= share, "the program is too slow", expected=expected, got=got, given=given, hint=hint
    )


@points(1)
def not_slower_than_greedy(submission: Submission) -> None:
    """The slicing of `fastest` fits, and takes no more cycles than the greedy one."""
    _check_cycles(submission, 1.0, "share the work among all 32 tilelets: by rows, by filters, or both")


@points(1)
def half_of_the_way(submission: Submission) -> None:
    """`fastest` saves at least half of the cycles that the compiler's search saves."""
    _check_cycles(submission, 0.5, "try several cuts and orders with `time_program`, and keep the best")


@points(2)
def close_to_the_search(submission: Submission) -> None:
    """`fastest` saves at least nine tenths of the cycles that the compiler's search saves."""
    _check_cycles(submission, 0.1, "double buffering, and cuts that leave no tilelet and no multiplier idle")


_OFF_LIMITS = ("mlhood.compiler.backends.nmp.codegen.search", "mlhood.compiler.backends.nmp.codegen.estimate")
_OFF_LIMITS += ("mlhood.compiler.backends.nmp.codegen.generate", "mlhood.compiler.bench_nmp")
_ANSWERS = ("mlhood.compiler.backends.nmp.codegen", "mlhood.compiler.backends.nmp.cycles", "mlhood.compiler.bench_nmp")

TASKS = (
    Task(
        "P2.11",
        "Slice a convolution so that it fits",
        checks=(
            input_slices_have_a_halo,
            weights_come_with_their_bias,
            partial_sums_are_wide,
            slices_fit_their_blobs,
            slices_are_not_tiny,
            slices_move_few_bytes,
        ),
        forbidden=_ANSWERS,
    ),
    Task(
        "P2.12",
        "Three orders: bytes and cycles",
        checks=(output_stationary_bytes, weight_stationary_bytes, input_stationary_bytes, cycles_are_predicted),
        forbidden=_ANSWERS,
    ),
    Task(
        "P2.13",
        "Fewest cycles",
        checks=(not_slower_than_greedy, half_of_the_way, close_to_the_search),
        forbidden=_OFF_LIMITS,
    ),
)
