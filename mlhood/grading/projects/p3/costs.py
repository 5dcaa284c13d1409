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
# the key under which `conv_cost` returns what it counts
COUNTED = Parameter("counted", ("macs", "flop", "macs_per_image"))
# how often what is moved: x, w and y once; y twice; w once for each image; the bias, too
TRAFFIC = Parameter("traffic", ("once", "write_allocate", "per_image", "bias"))
# the last argument of `output_size`, beside `padding` or in the place of its second half
SIZE_ARGUMENT = Parameter("size_argument", ("none", "dilation", "end", "partial"))
# what the bandwidth of `attainable` and `ridge` counts
BANDWIDTH_UNIT = Parameter("bandwidth_unit", ("bytes", "float32 numbers", "cache lines of 64 bytes"))
UNIT_BYTES = {"bytes": 1, "float32 numbers": 4, "cache lines of 64 bytes": 64}
# what `attainable` returns: FLOP/s, the share of the peak, the seconds of 10**9 FLOP
ROOF = Parameter("roof", ("rate", "share", "seconds"))
# what `predict` returns: the seconds of the whole, how many times as fast it is, the share of its time that is saved
PREDICTED = Parameter("predicted", ("seconds", "speedup", "saved"))
# what `best_possible` returns: how many times as fast, the share of the time that remains, percent of speed gained
LIMIT = Parameter("limit", ("times", "remaining", "percent"))
COLUMN_TYPE = Parameter("column_type", ("float32", "float64", "float16"))
# the arrays whose bytes those of the columns are compared with
COMPARED = Parameter("compared", ("x", "w", "y"))


def _axes(submission: Submission, size: int, kernel: int, stride: int, padding: int) -> Iterator[Arguments]:
    """Yield arguments of `output_size` for as many windows as an axis of this size has without its last argument."""
    rng = submission.rng
    match submission.parameters.size_argument:
        case "none":
            yield size, kernel, stride, padding
        case "dilation":
            for dilation in (1, int(rng.integers(2, 5))):
                yield size + (dilation - 1) * (kernel - 1), kernel, stride, padding, dilation
        case "end":
            end = padding + int(rng.integers(1, 4))
            yield size + padding - end, kernel, stride, padding, end
        case "partial":
            for partial in (False, True):
                yield size, kernel, stride, padding, partial


@compared(
    1,
    "output_size",
    hint="take an axis of 5, a kernel of 3 and stride 1, and count by hand: 3 windows; padding is at both ends"
    '{% if size_argument == "dilation" %}; how many pixels are there from the first to the last of a window whose '
    "pixels are 2 apart?{% endif %}",
)
def windows_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`output_size` counts the positions of a window, with padding on both sides."""
    for padding in (0, 1, 2):
        size, kernel = int(submission.rng.integers(12, 60)), int(submission.rng.integers(2, 8))
        yield from _axes(submission, size, kernel, 1, padding)
    yield from _axes(submission, 5, 5, 1, 0)  # a single one
    yield from _axes(submission, 4, 6, 1, 1)  # only the padding makes room for it


@compared(
    1,
    "output_size",
    hint="how many steps can the first window take before its end is beyond the padded axis? Count itself, too; if not "
    "even that one fits, there is none"
    '{% if size_argument == "partial" %}; and if `partial` is true, is there a pixel left over behind the last one?'
    "{% endif %}",
)
def the_last_step_must_fit(submission: Submission) -> Iterator[Arguments]:
    """`output_size` takes steps of `stride`{% if size_argument == "partial" %}; a last window that does not fit \
counts if `partial` is true{% else %} and omits a last window that does not fit{% endif %}."""
    for stride in (2, 3, 4):
        kernel, steps = int(submission.rng.integers(3, 6)), int(submission.rng.integers(5, 12))
        for size in (steps * stride + kernel, (steps + 1) * stride + kernel - 1):  # fits exactly, or almost one more
            yield from _axes(submission, size, kernel, stride, 0)
            yield from _axes(submission, size - 2, kernel, stride, 1)
            yield from _axes(submission, size, 4, stride, 2)
        if submission.parameters.size_argument != "partial":  # not even one, by little and by far
            yield from _axes(submission, 6, 7, stride, 0)
            yield from _axes(submission, 3, 9 * stride, stride, 1)


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
    key=lambda parameters: parameters.counted,
    hint="how many numbers has a window, and how many windows are summed, for how many filters and images?",
    mistakes={
        '{% if counted != "flop" %}a multiply-accumulate counts once here; it is two FLOP only in `intensity`'
        "{% endif %}": lambda count, x, w, y: 2 * count,
        '{% if counted == "flop" %}a multiply-accumulate is two FLOP{% endif %}': lambda count, x, w, y: count // 2,
        '{% if counted == "macs_per_image" %}these are the multiply-accumulates of the whole batch; how many images '
        "has it?{% endif %}": lambda count, x, w, y: count * x[0],
    },
)
def macs_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`conv_cost` counts {{ {"flop": "the FLOP", "macs_per_image": "the multiply-accumulates of one image"}.get(\
counted, "the multiply-accumulates") }}."""
    return _layers(submission)


@compared(
    2,
    "conv_cost",
    key="bytes",
    hint='count the elements of all {% if traffic == "once" %}three arrays, each array once{% else %}arrays that are '
    "moved, each as often as it is moved{% endif %}",
    mistakes={
        "this is the number of elements; a float32 takes 4 bytes": lambda moved, x, w, y: moved // 4,
        '{{ {"write_allocate": "y is moved twice: a cache line is fetched before it is written to", '
        '"per_image": "w is moved once for each image of the batch", '
        '"bias": "the bias is moved, too: one number for each filter"}.get(traffic, "") }}': (
            lambda moved, *shapes: 4 * sum(map(math.prod, shapes))
        ),
    },
)
def bytes_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`conv_cost` counts the bytes of input, weights and output{{ {"write_allocate": ", which is moved twice", \
"bias": ", and of the bias", "per_image": ", the weights for each image"}.get(traffic, "") }}."""
    return _layers(submission)


def _own_intensity(submission: Submission, cost: Mapping[str, Any], x: Shape, w: Shape, y: Shape) -> float | None:
    """The intensity that follows from the submission's own counts."""
    counted, moved = cost.get(submission.parameters.counted), cost.get("bytes")
    if not isinstance(counted, int | float) or not isinstance(moved, int | float) or min(counted, moved) <= 0:
        return None
    images = x[0] if submission.parameters.counted == "macs_per_image" else 1
    return counted * images * (1 if submission.parameters.counted == "flop" else 2) / moved


@compared(
    1,
    "conv_cost",
    key="intensity",
    own=_own_intensity,
    hint="operations for each byte: a multiply-accumulate is two operations"
    '{% if counted == "macs_per_image" %}, and the bytes are those of the whole batch{% endif %}',
)
def intensity_is_flop_per_byte(submission: Submission) -> Iterator[Arguments]:
    """`conv_cost` returns the arithmetic intensity in FLOP per byte."""
    return _layers(submission)


P3_1 = Task(
    "P3.1",
    "What a convolution costs",
    solution_is_fallback=True,
    varies=(COUNTED, TRAFFIC, SIZE_ARGUMENT),
    libraries=ARRAYS,
    minutes=15,
)


@compared(
    2,
    "im2col_bytes",
    hint="rows and columns of the matrix that `im2col` returns for one image: what are they, in terms of w and y?",
    mistakes={
        "these are the columns of one image; the batch has N of them": lambda count, x, w, y: count // x[0],
        'this is the number of elements; a {{ column_type }} takes {{ {"float32": 4, "float64": 8, "float16": 2}['
        "column_type] }} bytes": lambda count, x, w, y: x[0] * math.prod((*w[1:], *y[2:])),
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


UNIT_HINT = (
    '{% if bandwidth_unit != "bytes" %}; the intensity counts bytes, and the bandwidth {{ bandwidth_unit }}{% endif %}'
)


@compared(
    2,
    "attainable",
    hint="what could memory feed, if arithmetic were free; what could arithmetic do; and which of them limits?"
    + UNIT_HINT,
)
def the_lower_roof_counts(submission: Submission) -> Iterator[Arguments]:
    """`attainable` {{ {"share": "is the share of the peak that the lower of the two roofs allows", \
"seconds": "is the time under the lower of the two roofs"}.get(roof, "is the lower of the two roofs") \
}}: memory bandwidth and peak arithmetic."""
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
    shapes: tuple[Shape, ...] = ((9,), (3, 4), (2, 3, 2), (0,))
    for shape, kind in zip(shapes, (np.float64, np.float32, np.float16, np.float64), strict=True):
        peak, bandwidth = _machine(submission)
        if kind is np.float16:  # which has no number of 10**9
            if submission.parameters.roof == "seconds":
                kind = np.float32
            else:
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
    varies=(BANDWIDTH_UNIT, ROOF),
    libraries=ARRAYS,
    minutes=10,
    builds_on=("P3.1", "P3.5"),
)


def _parts(submission: Submission) -> dict[str, float]:
    """Draw seconds by part, in sixteenths, so that their sums are exact; all differ."""
    drawn = submission.rng.permutation(np.arange(4, 40))[:3]
    return {name: int(number) / 16 for name, number in zip(("convolution", "pooling", "dense"), drawn, strict=True)}


PREDICTED_HINT = """{{ {"speedup": "; the result is the time before in units of the time after", \
"saved": "; the result is the time saved, as a share of the time before"}.get(predicted, "") }}"""


@compared(
    2,
    "predict",
    hint="what is not in `parts` stays; each part has its own factor, found by its name; a factor may be a fraction, "
    "or below 1 if a part becomes slower; two parts may take the same time" + PREDICTED_HINT,
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
    hint="which factor leaves the time of a part as it is? Names decide, and either dictionary may lack some"
    + PREDICTED_HINT,
)
def parts_not_named_keep_their_time(submission: Submission) -> Iterator[Arguments]:
    """`predict` keeps the time of a part that has no factor, and ignores a factor that has no part."""
    parts = _parts(submission)
    for speedups in ({}, {"dense": 1.0}, {"pooling": 2.0}, {"reshape": 4.0, "dense": 2.0}):
        yield sum(parts.values()) + 2.0, parts, speedups


@compared(
    2,
    "best_possible",
    hint="compare the time before with what is left when the parts take none"
    '{% if limit == "percent" %}; twice as fast is a gain of 100 percent{% endif %}',
)
def the_rest_limits_the_speedup(submission: Submission) -> Iterator[Arguments]:
    """`best_possible` is {{ {"remaining": "the share of the time that remains", "percent": "the gain in percent"}.get(\
limit, "the speed-up") }} if the parts took no time at all."""
    for remainder in (0.5, 3.0, 2**-10):
        parts = _parts(submission)
        yield sum(parts.values()) + remainder, parts


@compared(
    1,
    "best_possible",
    view=lambda limit: expect.number(limit, "what `best_possible` returns") in (0, math.inf),
    hint='{% if limit == "remaining" %}nothing is left{% else %}nothing is left, so there is no limit: Python does not '
    "divide by zero{% endif %}",
)
def without_a_rest_there_is_no_limit(submission: Submission) -> Iterator[Arguments]:
    """`best_possible` is {% if limit == "remaining" %}0{% else %}infinite{% endif %} if the parts are the whole, and \
only then."""
    parts = _parts(submission)
    for times in (1, 2):
        yield times * sum(parts.values()), parts


P3_11 = Task(
    "P3.11",
    "What is a faster kernel worth?",
    varies=(PREDICTED, LIMIT),
    libraries=ARRAYS,
    minutes=20,
    builds_on=("P3.5",),
)
