"""Checks of P3.1, P3.9, P3.10 and P3.11: costs of a convolution and im2col, the roofline, and Amdahl's law."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mlhood.grading.bare.libraries import ARRAYS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task
from mlhood.grading.variants.parameter import Parameter

Shape = tuple[int, ...]
# how often what is moved: x, w and y once; y twice; w once for each image; the bias, too
TRAFFIC = Parameter("traffic", ("once", "write_allocate", "per_image", "bias"))
# what the bandwidth of `attainable` and `ridge` counts
BANDWIDTH_UNIT = Parameter("bandwidth_unit", ("bytes", "float32 numbers", "cache lines of 64 bytes"))
UNIT_BYTES = {"bytes": 1, "float32 numbers": 4, "cache lines of 64 bytes": 64}
# what `predict` returns: the seconds of the whole, how many times as fast it is, the share of its time that is saved
PREDICTED = Parameter("predicted", ("seconds", "speedup", "saved"))
COLUMN_TYPE = Parameter("column_type", ("float32", "float64", "float16"))
# the arrays whose bytes those of the columns are compared with
COMPARED = Parameter("compared", ("x", "w", "y"))


@compared(
    1,
    "output_size",
    hint="take an axis of 5, a kernel of 3 and stride 1, and count by hand: 3 windows; padding is at both ends",
)
def windows_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`output_size` counts the positions of a window, with padding on both sides."""
    for padding in (0, 1, 2):
        yield int(submission.rng.integers(12, 60)), int(submission.rng.integers(2, 8)), 1, padding
    yield 5, 5, 1, 0  # a single one
    yield 4, 6, 1, 1  # only the padding makes room for it


@compared(
    1,
    "output_size",
    hint="how many steps can the first window take before its end is beyond the padded axis? Count itself, too; if not "
    "even that one fits, there is none",
)
def the_last_step_must_fit(submission: Submission) -> Iterator[Arguments]:
    """`output_size` takes steps of `stride` and omits a last window that does not fit."""
    for stride in (2, 3, 4):
        kernel, steps = int(submission.rng.integers(3, 6)), int(submission.rng.integers(5, 12))
        for size in (steps * stride + kernel, (steps + 1) * stride + kernel - 1):  # fits exactly, or almost one more
            yield from ((size, kernel, stride, 0), (size - 2, kernel, stride, 1), (size, 4, stride, 2))
        yield from ((6, 7, stride, 0), (3, 9 * stride, stride, 1))  # not even one, by little and by far


def _layers(submission: Submission) -> Iterator[tuple[Shape, Shape, Shape]]:
    """Yield shapes of x, w and y, whose sizes differ; those of the last have more to count than fits in 32 bits."""
    rng = submission.rng
    for times in (1, 1, 1, 17):
        images, sizes = int(rng.integers(2, 4)), rng.permutation(times * np.arange(20, 60))[:2].tolist()
        channels, filters = rng.permutation(times * np.arange(5, 40))[:2].tolist()
        kernel = rng.permutation([1, 2, 3, 4])[:2].tolist()
        stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2))
        out = [(size + 2 * padding - k) // stride + 1 for size, k in zip(sizes, kernel, strict=True)]
        yield (images, channels, *sizes), (filters, channels, *kernel), (images, filters, *out)


@compared(
    1,
    "conv_cost",
    key="macs",
    hint="how many numbers has a window, and how many windows are summed, for how many filters and images?",
    mistakes={
        "a multiply-accumulate counts once here; it is two FLOP only in `intensity`": lambda count, x, w, y: 2 * count
    },
)
def macs_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`conv_cost` counts the multiply-accumulates."""
    return _layers(submission)


@compared(
    2,
    "conv_cost",
    key="bytes",
    hint='count the elements of all {% if traffic == "once" %}three arrays, each array once{% else %}arrays that are '
    "moved, each as often as it is moved{% endif %}",
    mistakes={
        "this is the number of elements; a float32 takes 4 bytes": lambda moved, x, w, y: moved // 4,
    },
)
def bytes_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`conv_cost` counts the bytes of input, weights and output{{ {"write_allocate": ", which is moved twice", \
"bias": ", and of the bias", "per_image": ", the weights for each image"}.get(traffic, "") }}."""
    return _layers(submission)


def _own_intensity(submission: Submission, cost: Mapping[str, Any], x: Shape, w: Shape, y: Shape) -> float | None:
    """The intensity that follows from the submission's own counts."""
    macs, moved = cost.get("macs"), cost.get("bytes")
    if not isinstance(macs, int | float) or not isinstance(moved, int | float) or min(macs, moved) <= 0:
        return None
    return 2 * macs / moved


@compared(
    1,
    "conv_cost",
    key="intensity",
    own=_own_intensity,
    hint="operations for each byte: a multiply-accumulate is two operations",
)
def intensity_is_flop_per_byte(submission: Submission) -> Iterator[Arguments]:
    """`conv_cost` returns the arithmetic intensity in FLOP per byte."""
    return _layers(submission)


P3_1 = Task(
    "P3.1",
    "What a convolution costs",
    solution_is_fallback=True,
    varies=(TRAFFIC,),
    libraries=ARRAYS,
    minutes=15,
)


@compared(
    2,
    "im2col_bytes",
    hint="rows and columns of the matrix that `im2col` returns for one image: what are they, in terms of w and y?",
    mistakes={
        "these are the columns of one image; the batch has N of them": lambda count, x, w, y: count // x[0],
        "this is the number of elements; how many bytes does one take?": (
            lambda count, x, w, y: x[0] * math.prod((*w[1:], *y[2:]))
        ),
    },
)
def columns_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`im2col_bytes` returns the size of a batch's columns in bytes."""
    return _layers(submission)


def _own_growth(submission: Submission, growth: Any, *shapes: Shape) -> float | None:
    """The growth that follows from the submission's own `im2col_bytes`."""
    own = submission.call("im2col_bytes", *shapes)
    image = 4 * math.prod(shapes["xwy".index(submission.parameters.compared)])
    return own / image if isinstance(own, int | float) and 0 < own < math.inf else None


@compared(
    2,
    "growth",
    own=_own_growth,
    hint="two numbers of bytes, and what the first is in units of the second",
    mistakes={
        "the fraction is inverted: divide the bytes of the columns by those of {{ compared }}": (
            lambda growth, x, w, y: 1 / growth
        )
    },
)
def growth_is_against_the_input(submission: Submission) -> Iterator[Arguments]:
    """`growth` returns how many times larger than {{ {"x": "the input"}.get(compared, compared) }} the columns are."""
    return _layers(submission)


P3_10 = Task(
    "P3.10",
    "What im2col costs",
    varies=(COLUMN_TYPE, COMPARED),
    libraries=ARRAYS,
    minutes=10,
    builds_on=("P3.3",),
)


def _machine(submission: Submission) -> tuple[float, float]:
    """Draw a peak, in FLOP/s, and a bandwidth, in bytes/s."""
    return float(submission.rng.integers(50, 400)) * 1e9, float(submission.rng.integers(5, 40)) * 1e9


def _in_units(submission: Submission, bandwidth: float) -> float:
    """A bandwidth in bytes/s in the unit of this variant."""
    return bandwidth / UNIT_BYTES[submission.parameters.bandwidth_unit]


UNIT_HINT = "; the intensity counts bytes, and the bandwidth {{ bandwidth_unit }}"


@compared(
    2,
    "attainable",
    hint="what could memory feed, if arithmetic were free; what could arithmetic do; and which of them limits?"
    + UNIT_HINT,
)
def the_lower_roof_counts(submission: Submission) -> Iterator[Arguments]:
    """`attainable` is the lower of the two roofs: memory bandwidth and peak arithmetic."""
    peak, bandwidth = _machine(submission)
    for share in (0.1, 0.7, 1.5, 30.0):
        yield round(share * peak / bandwidth, 3), peak, _in_units(submission, bandwidth)


def _own_roofs(submission: Submission, results: Any, intensities: np.ndarray, *machine: float) -> np.ndarray:
    """The submission's own results for single intensities."""
    what = "what `attainable` returns"
    own = [expect.number(submission.call("attainable", float(value), *machine), what) for value in intensities.ravel()]
    return np.reshape(own, intensities.shape)


@compared(
    1,
    "attainable",
    own=_own_roofs,
    typed=True,
    hint="`min` and `if` need a single number; NumPy has functions that go element by element, whatever the shape",
)
def roofs_of_many_at_once(submission: Submission) -> Iterator[Arguments]:
    """`attainable` also takes an array of intensities, and returns an array of its type."""
    for shape, kind in (((9,), np.float64), ((3, 4), np.float32), ((2, 3, 2), np.float16), ((0,), np.float64)):
        peak, bandwidth = _machine(submission)
        if kind is np.float16:  # which has no number of 10**9
            peak, bandwidth = 8.0 * int(submission.rng.integers(4, 16)), 4.0
        intensity = (submission.rng.uniform(0.1, 2.5, shape) * peak / bandwidth).astype(kind)
        yield intensity, peak, _in_units(submission, bandwidth)


@compared(
    2,
    "ridge",
    hint="at this intensity, `attainable` is on both roofs at once; check the units: FLOP per byte" + UNIT_HINT,
)
def roofs_meet_at_the_ridge(submission: Submission) -> Iterator[Arguments]:
    """`ridge` is the intensity at which the two roofs meet."""
    for _ in range(2):
        peak, bandwidth = _machine(submission)
        yield peak, _in_units(submission, bandwidth)


P3_9 = Task(
    "P3.9",
    "Under the roof",
    varies=(BANDWIDTH_UNIT,),
    libraries=ARRAYS,
    minutes=10,
    builds_on=("P3.1", "P3.5"),
)


def _parts(submission: Submission) -> dict[str, float]:
    """Draw seconds by part, in sixteenths, so that their sums are exact; all differ."""
    drawn = submission.rng.permutation(np.arange(4, 40))[:3]
    return {name: int(number) / 16 for name, number in zip(("convolution", "pooling", "dense"), drawn, strict=True)}


@compared(
    2,
    "predict",
    hint="what is not in `parts` stays; each part has its own factor, found by its name; a factor may be a fraction, "
    "or below 1 if a part becomes slower; two parts may take the same time",
)
def parts_are_divided_by_their_factors(submission: Submission) -> Iterator[Arguments]:
    """`predict` divides the seconds of each part by its factor; the remaining time stays."""
    for remainder in (1.5, 0.25):
        parts = _parts(submission)
        drawn = submission.rng.permutation(np.arange(2, 9))[:3]  # in another order than the parts: names decide
        factors = {name: float(factor) for name, factor in zip(reversed(parts), drawn, strict=True)}
        yield sum(parts.values()) + remainder, parts, factors
    parts = _parts(submission)
    parts["dense"] = parts["convolution"]
    yield sum(parts.values()) + 1.5, parts, dict(zip(parts, (2.5, 0.5, 3.0), strict=True))


@compared(
    1,
    "predict",
    hint="which factor leaves the time of a part as it is? Names decide, and either dictionary may lack some",
)
def parts_not_named_keep_their_time(submission: Submission) -> Iterator[Arguments]:
    """`predict` keeps the time of a part that has no factor, and ignores a factor that has no part."""
    parts = _parts(submission)
    for speedups in ({}, {"dense": 1.0}, {"pooling": 2.0}, {"reshape": 4.0, "dense": 2.0}):
        yield sum(parts.values()) + 2.0, parts, speedups


@compared(
    2,
    "best_possible",
    hint="compare the time before with what is left when the parts take none",
)
def the_rest_limits_the_speedup(submission: Submission) -> Iterator[Arguments]:
    """`best_possible` is the speed-up if the parts took no time at all."""
    for remainder in (0.5, 3.0, 2**-10):
        parts = _parts(submission)
        yield sum(parts.values()) + remainder, parts


@compared(
    1,
    "best_possible",
    view=lambda limit: expect.number(limit, "what `best_possible` returns") == math.inf,
    hint="nothing is left: Python does not divide by zero",
)
def without_a_rest_there_is_no_limit(submission: Submission) -> Iterator[Arguments]:
    """`best_possible` is infinite if the parts are the whole, and only then."""
    parts = _parts(submission)
    for times in (1, 2):
        yield times * sum(parts.values()), parts


P3_11 = Task(
    "P3.11",
    "What is a faster kernel worth?",
    varies=(PREDICTED,),
    libraries=ARRAYS,
    minutes=20,
    builds_on=("P3.5",),
)
