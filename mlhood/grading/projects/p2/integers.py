"""Checks of P2.6 to P2.8: four schemas of scale and offset, an integer convolution with its rescaling, and noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, Keywords, compared, comparison
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import RECIPES, TYPES
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.rpc.limited import IsolatedCallError
from mlhood.grading.variants.parameter import Parameter
from mlhood.models import digits

# the last argument of `choose_parameters`, besides the schema
CHOICE_ARGUMENT = Parameter("choice_argument", ("none", "bits", "headroom", "narrow"))
# where `rescale` rounds a number half-way between two integers, and the smallest integer that it returns
HALVES = Parameter("halves", ("up", "down", "away from zero"))
LOWEST = Parameter("lowest", (-128, -127))

# what `choose_parameters` has to think of besides the schema
RANGE_HINT = """ If 0 is not between low and high, the range has to be widened to include it; an empty range \
determines no scale: take 0.1, or 0.125 for a power of two{{ {"none": "",
"bits": "; what are the smallest and the largest integer of so many bits?",
"headroom": "; both ends of the widened range are multiplied by `headroom`",
"narrow": "; if `narrow`, -127 is the smallest integer: in how many steps does 127 follow?"}[choice_argument] }}"""


def draw_ranges(rng: np.random.Generator) -> list[tuple[float, float]]:
    """Draw ranges of every kind: on both sides of 0, on one side only, and far from it."""
    a, b = (float(n) for n in np.exp(rng.normal(size=2)))
    step = 2.0 ** int(rng.integers(-9, 3))
    # Scales of 1.1 and 1.9 steps round up to two steps; a scale of exactly one step stays.
    powers = [(-step, 127 * 1.1 * step), (-128 * 1.9 * step, step), (-128 * step, 0.5 * step), (-step, 127 * step)]
    # The exact offsets -91.6, -64.25 and 95.1 rule out every rounding but to nearest.
    two_sided = [(-a, b), (-b / 6, b), (-b / 3, b), (-a, a / 7), (-1000 * a, 500 * b), (-1e-4 * a, 2e-4)]
    # Only an empty range is empty, and logarithms to base 2 are exact to the last bit, or scales are twice too large.
    small_and_large = [(-128 * each, 0.5 * each) for each in (2.0**-29, 2.0**29)]
    small_and_large += [(-each, 127 * 1.1 * each) for each in (2.0**-29, 2.0**29)]
    return [*two_sided, (0.0, a), (a, a + b), (-a - b, -a), *powers, (-1e-10, 2e-10), *small_and_large]


def _choices(submission: Submission, schema: str) -> Iterator[Arguments]:
    """Yield arguments of `choose_parameters`, and the same with the last one that it has in a variant."""
    rng, name = submission.rng, submission.parameters.choice_argument
    values = {"bits": int(rng.integers(4, 7)), "headroom": float(rng.uniform(1.2, 1.9)), "narrow": True}
    for extra in ({}, *([Keywords({name: values[name]})] if name != "none" else [])):
        for low, high in draw_ranges(rng):
            near = [
                submission.solution("choose_parameters", low * by, high, schema, **extra) for by in (0.9999, 1.0001)
            ]
            if near[0][1] == near[1][1]:  # else rounding errors decide between two offsets
                yield low, high, schema, Keywords(extra)
        yield 0.0, 0.0, schema, Keywords(extra)


def _compare_choices(got: Any, want: tuple[float, int], what: str) -> None:
    got = expect.sequence(got, tuple, what)
    expect.equal(len(got), 2, f"{what} is not (scale, offset)")
    scale, offset = expect.number(got[0], "the scale"), expect.integer(got[1], "the offset")
    what, expected = "the scale that `choose_parameters` returns is wrong", f"{want[0]:.6g}"
    expect.true(abs(scale - want[0]) <= 1e-4 * want[0], what, expected=expected, got=f"{scale:.6g}")
    if want[0] != 0.1 or abs(offset) > abs(want[1]):  # if the range is empty, any integer represents 0
        expect.equal(offset, want[1], "the offset that `choose_parameters` returns is wrong")


WIDE = 'choice_argument in ("none", "headroom")'
# of each schema, the title of its check, and a hint
SCHEMAS = {
    "asymmetric": (
        f'Asymmetric: the range is mapped to all {{{{ "256 " if {WIDE} }}}}integers, and 0 exactly to one of them',
        f'{{{{ "255 steps" if {WIDE} else "steps" }}}} lead from the integer of `low` to that of `high`; which integer '
        "must 0 have, then?",
    ),
    "symmetric": (
        "Symmetric: the same range on both sides of 0, with offset 0",
        "which scale does `low` alone need so that it is not clipped, and which does `high`?",
    ),
    "symmetric_unsigned": (
        "Symmetric or unsigned: no integers are wasted on negative values where there are none",
        "is anything of the widened range below 0? Only then are integers for it needed.",
    ),
    "power_of_two": (
        "Power of two: multiplying by the scale is a shift",
        "which powers of two are not below the symmetric scale? Exact powers stay as they are.",
    ),
}
CHOICES = tuple(
    comparison(
        f"{schema}_is_right",
        title,
        1,
        "choose_parameters",
        _choices,
        schema,
        compare=_compare_choices,
        hint=hint + RANGE_HINT,
    )
    for schema, (title, hint) in SCHEMAS.items()
)


P2_6 = Task(
    "P2.6",
    "Four quantisation schemas",
    checks=CHOICES,
    solution_is_fallback=True,
    varies=(CHOICE_ARGUMENT,),
    libraries=TYPES,
    minutes=15,
)


def _layer(submission: Submission, low: int = -128, high: int = 128) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw x, w and bias of a layer of which no two axes have the same length."""
    rng = submission.rng
    batch, channels, features, tall, wide = (int(n) for n in rng.permutation([1, 2, 3, 4, 5]))
    height, width = (int(n) for n in rng.permutation([6, 7, 8, 9])[:2])
    x = rng.integers(low, high, (batch, channels, height, width)).astype(np.int8)
    w = rng.integers(low, high, (features, channels, tall, wide)).astype(np.int8)
    return x, w, rng.integers(-20_000, 20_000, features).astype(np.int32)


@compared(
    3,
    "integer_conv",
    hint="the offset belongs to x before it is multiplied; the bias enters each sum once",
)
def sums_are_right(submission: Submission) -> Iterator[Arguments]:
    """`integer_conv` sums (x - offset) * w and adds the bias, for any sizes."""
    for offset in (0, int(submission.rng.integers(5, 60)), int(submission.rng.integers(-60, -5))):
        yield *_layer(submission), offset, 0


@compared(1, "integer_conv", hint="which integer represents the real number 0?")
def padding_stands_for_zero(submission: Submission) -> Iterator[Arguments]:
    """Padding represents the real number 0, whatever the offset is."""
    for padding in (1, 2):
        yield *_layer(submission), int(submission.rng.integers(-60, -5)), padding


@compared(
    1,
    "integer_conv",
    hint="neither int8 * int8 nor x - offset fits into int8: convert before you compute; how large do the sums become, "
    "and does the type that you add them up in have every integer up to there?",
)
def sums_do_not_overflow(submission: Submission) -> Iterator[Arguments]:
    """The accumulators have at least 32 bits: nothing overflows."""
    yield *_layer(submission, 110, 128), -128, 0
    # odd sums around 150,000,000: float32 has every integer up to 2**24
    rng = submission.rng
    x, w = (rng.integers(55, 64, shape) * 2 + 1 for shape in ((1, 64, 7, 6), (2, 64, 5, 5)))
    bias = rng.integers(95_000_000, 105_000_000, 2).astype(np.int32)
    yield x.astype(np.int8), w.astype(np.int8), bias, -128, 0


# accumulators with multipliers of which the product over 2**48 is just below a half: in float64, it is a half
JUST_BELOW_A_HALF = ((59_051_851, 302_677_405), (9_600_677, 1_891_026_643))


@compared(
    1,
    "rescale",
    typed=True,
    hint="clamp after the offset is added, and before the numbers become any type in which they may not fit, int8, "
    "int16 or int32; how many bits has the product of two 32-bit integers?",
)
def rescale_saturates(submission: Submission) -> Iterator[Arguments]:
    """`rescale` adds the offset and saturates at {{ lowest }} and 127, even if the product exceeds 32 bits."""
    rng = submission.rng
    results = rng.permutation(np.arange(-210, 210, 7)).reshape(2, 3, 5, 2)  # exact, so that rounding is not tested here
    acc = (results << 16).astype(np.int32)
    offset = int(rng.integers(10, 50))
    yield acc, 1, 16, offset
    yield acc, 1 << 30, 46, offset
    for multiplier in (4, 1 << 30):
        yield np.array([[2**31 - 1, -(2**31 - 1)]], np.int32), multiplier, 1, offset


@compared(
    2,
    "rescale",
    typed=True,
    hint="""`>>` rounds down: what has to be added before it, {{ {"up": "so that half of the last place and more \
rounds up", "down": "so that only more than half rounds up", "away from zero": "for numbers above 0 and for those \
below"}[halves] }}? How much is it if nothing is shifted out? And float64 has 53 bits, the product of two 32-bit \
integers up to 64: which numbers are exact?""",
)
def rescale_rounds(submission: Submission) -> Iterator[Arguments]:
    """`rescale` multiplies, rounds to nearest and shifts, for both signs."""
    rng = submission.rng
    shift = int(rng.integers(12, 20))
    multiplier = int(rng.integers(1 << 9, 1 << 10))
    limit = (100 << shift) // multiplier
    yield rng.integers(-limit, limit, (2, 3, 5, 4)).astype(np.int32), multiplier, shift, 0
    yield np.arange(-40, 40, dtype=np.int32).reshape(1, 2, 8, 5), 1, 2, 0
    yield np.arange(-40, 40, dtype=np.int32), 3, 1, 0
    for multiplier in (2, 1):
        yield rng.integers(-60, 60, (3, 4)).astype(np.int32), multiplier, 0, 5
    if submission.passed(rescale_saturates):  # whether the product has enough bits at all is asked there
        for value, multiplier in JUST_BELOW_A_HALF:
            yield np.array([value, -value], np.int32), multiplier, 48, 0


P2_7 = Task(
    "P2.7",
    "An integer convolution",
    libraries=TYPES,
    minutes=20,
    builds_on=("P2.6",),
    varies=(HALVES, LOWEST),
)


# what `budget` predicts for each layer
EACH_LAYER = Parameter("each_layer", ("share", "without", "finer", "coarser"))

COSTS = "mlhood.grading.projects.reference_runs:recipe_costs"
CALIBRATION = 300
# Arguments of `Recipe`. The second is so coarse that digits are misclassified: only then do accuracy and agreement
# differ from those of the float graph.
RECIPES_ASKED: tuple[dict[str, Any], ...] = (
    {"schema": "power_of_two", "element": "int16"},
    {"schema": "symmetric_unsigned", "per_channel": True, "headroom": 40.0},
)
ONE_IMAGE = 0.004  # share of the test images: the last bit of a profile may decide between two nearly equal logits
COUNTED = ("bytes", "nodes")
# the columns of the table, and what to think of
COLUMNS = ("accuracy", "agreement", "sqnr", "bytes", "nodes")
MEASURED = "of which graph are the logits, constants and nodes; and are the logits compared with labels or with others?"


@compared(
    2,
    "sqnr",
    view=np.atleast_1d,
    rtol=0.0,
    atol=0.01,
    hint="the sums run over all elements, whatever the shape; compute in float64",
    mistakes={
        "decibels: ten times the logarithm to base 10": lambda want, *arrays: want * np.log(10),
        "energies are sums of squares: is it ten or twenty times the logarithm of their ratio?": lambda want, *_: (
            2 * want
        ),
        "use sums of squares, not variances: a constant error is noise, too": lambda want, signal, other: np.atleast_1d(
            10 * np.log10(np.var(signal) / np.var(signal - other))
        ),
    },
)
def sqnr_is_measured(submission: Submission) -> Iterator[Arguments]:
    """`sqnr` is ten times the base-10 logarithm of signal energy over noise energy."""
    rng = submission.rng
    for scale, mean, shape in ((1.0, 0.5, (40, 10)), (1e3, -3.0, (7,)), (1e-3, -0.5, (3, 4, 5))):
        reference = (scale * (rng.standard_normal(shape) + mean)).astype(np.float32)
        noise = scale * float(rng.uniform(0.01, 0.2)) * (rng.standard_normal(shape) + 0.3)
        yield reference, (reference + noise).astype(np.float32)


def _measure(submission: Submission) -> list[dict[str, Any]]:
    """Return the package's results for the notebook's own `optimized` by each recipe."""
    graph = submission.value("optimized")
    if not isinstance(graph, Hir):
        expect.fail("`optimized` is not a graph", got=graph, hint="run the given cells of section 4 first")
    train_images, _, images, labels, _ = digits()
    data = {"seen": train_images[:CALIBRATION], "images": images, "labels": labels}
    try:
        return submission.parser.call(COSTS, graph, list(RECIPES_ASKED), list(COLUMNS), data)
    except IsolatedCallError as failure:
        raise expect.CheckFailed("`optimized` is not a graph that can be quantised", got=str(failure)) from None


@points(2)
def rows_are_measured(submission: Submission) -> None:
    """`measured` returns accuracy, agreement, SQNR, bytes and nodes for any recipe."""
    for arguments, right in zip(RECIPES_ASKED, _measure(submission), strict=True):
        with expect.case(expect.format_call("Recipe", (), arguments), MEASURED):
            recipe = submission.call("mlhood.compiler.quantize:Recipe", **arguments)
            row = expect.mapping(submission.call("measured", recipe), tuple(right), "what `measured` returns")
            for key, want in right.items():
                got = (expect.integer if key in COUNTED else expect.number)(row[key], f"`{key}` of `measured`")
                slack = {"sqnr": 0.1, "bytes": 0, "nodes": 0}.get(key, ONE_IMAGE)
                expect.true(abs(got - want) <= slack, f"`{key}` of `measured` is wrong", expected=want, got=got)


@compared(
    2,
    "budget",
    hint="decibels do not add up, energies do: how large is the noise beside a signal of 1?",
)
def noise_adds_up(submission: Submission) -> Iterator[Arguments]:
    """`budget` predicts the SQNR of all layers together, and {{ {"share": "each layer's share of the noise", "without": "the SQNR without each layer", "finer": "the SQNR if one layer gets one bit more", "coarser": "the SQNR if one layer gets one bit less"}[each_layer] }}."""  # noqa: E501 a template
    for low, high in ((30, 50), (-60, -20), (120, 150)):  # in dB: such as the notebook's, and others
        names = [f"v{i}" for i in submission.rng.permutation(20)[: int(submission.rng.integers(5, 9))]]
        ratios = np.round(submission.rng.uniform(low, high, len(names)), 2).tolist()
        yield (dict(zip(names, ratios, strict=True)),)


P2_8 = Task(
    "P2.8",
    "What does it cost?",
    checks=(sqnr_is_measured, noise_adds_up, rows_are_measured),
    libraries=RECIPES,
    minutes=20,
    builds_on=("P2.6",),
    varies=(EACH_LAYER,),
)
