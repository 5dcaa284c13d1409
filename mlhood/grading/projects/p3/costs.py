"""Checks of P3.1, P3.9, P3.10 and P3.11: costs of a convolution and im2col, the roofline, and Amdahl's law."""

from __future__ import annotations

import math

import numpy as np

from mlhood.grading.bare.libraries import ARRAYS
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p3.reference import ConvolutionShapes, draw_shapes, output_size
from mlhood.grading.variants.parameter import Parameter

NAMES = ("convolution", "pooling", "dense")
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


def _check_size(submission: Submission, size: int, kernel: int, stride: int, padding: int, hint: str) -> None:
    """Check the number of windows of an axis that, padded, has the size that it has for adjacent pixels."""
    argument = submission.parameters.size_argument
    if argument == "none":
        cases: list[tuple[int, ...]] = [()]
    elif argument == "dilation":
        cases = [(1,), (int(submission.rng.integers(2, 5)),)]
    elif argument == "end":
        cases = [(padding + int(submission.rng.integers(1, 4)),)]
    else:
        cases = [(False,), (True,)]
    for extra in cases:
        axis = size + (extra[0] - 1) * (kernel - 1) if argument == "dilation" else size
        axis = size + padding - extra[0] if argument == "end" else axis
        name = "start" if argument == "end" else "padding"
        given = f"size {axis}, kernel {kernel}, stride {stride}, {name} {padding}"
        given += "".join(f", {argument} {value}" for value in extra)
        with expect.case(given):
            got = expect.integer(
                submission.call("output_size", axis, kernel, stride, padding, *extra), "what `output_size` returns"
            )
            # the added pixels are those that the longer window or the longer end takes
            want = output_size(size, kernel, stride, padding)
            if argument == "partial" and extra[0]:
                want += (size + 2 * padding - kernel) % stride > 0
            expect.close_number(got, want, "`output_size` is wrong", hint=hint)


@points(1)
def windows_are_counted(submission: Submission) -> None:
    """`output_size` counts the positions of a window, with padding on both sides."""
    rng = submission.rng
    hint = "take an axis of 5, a kernel of 3 and stride 1, and count by hand: 3 windows; padding is at both ends"
    if submission.parameters.size_argument == "dilation":
        hint += "; how many pixels are there from the first to the last of a window whose pixels are 2 apart?"
    for padding in (0, 1, 2):
        _check_size(submission, int(rng.integers(12, 60)), int(rng.integers(2, 8)), 1, padding, hint)


@points(1)
def the_last_step_must_fit(submission: Submission) -> None:
    """`output_size` takes steps of `stride`{% if size_argument == "partial" %}; a last window that does not fit \
counts if `partial` is true{% else %} and omits a last window that does not fit{% endif %}."""
    rng = submission.rng
    hint = "how many steps can the first window take before its end is beyond the padded axis? Count itself, too"
    if submission.parameters.size_argument == "partial":
        hint += "; and if `partial` is true, is there a pixel left over behind the last one?"
    for stride in (2, 3, 4):
        kernel, steps = int(rng.integers(3, 6)), int(rng.integers(5, 12))
        exact = steps * stride + kernel
        for remainder in (0, stride - 1):
            _check_size(submission, exact + remainder, kernel, stride, 0, hint)
            _check_size(submission, exact + remainder - 2, kernel, stride, 1, hint)
            _check_size(submission, exact + remainder, 4, stride, 2, hint)


def _costs(submission: Submission, key: str) -> list[tuple[ConvolutionShapes, dict]]:
    """Return the student's `conv_cost` of a few layers, as dictionaries that have `key`."""

    def ask() -> list[tuple[ConvolutionShapes, object]]:
        layers = [draw_shapes(submission.rng) for _ in range(3)] + [draw_shapes(submission.rng, times=17)]
        return [(layer, submission.call("conv_cost", layer.x, layer.w, layer.y)) for layer in layers]

    hint = f'return {{"{submission.parameters.counted}": ..., "bytes": ..., "intensity": ...}}'
    return [
        (layer, dict(expect.mapping(cost, (key,), "what `conv_cost` returns", hint=hint)))
        for layer, cost in submission.once("costs", ask)
    ]


@points(2)
def macs_are_counted(submission: Submission) -> None:
    """`conv_cost` counts {{ {"flop": "the FLOP", "macs_per_image": "the multiply-accumulates of one image"}.get(\
counted, "the multiply-accumulates") }}."""
    key = submission.parameters.counted
    for layer, cost in _costs(submission, key):
        with expect.case(str(layer)):
            got = expect.integer(cost[key], f"`{key}` of `conv_cost`")
        hint = "how many numbers has a window, and how many windows are summed, for how many filters and images?"
        want = _counted(submission, layer)
        if key != "flop" and expect.same_number(got, 2 * want):
            hint = "a multiply-accumulate counts once here; it is two FLOP only in `intensity`"
        if key == "flop" and expect.same_number(2 * got, want):
            hint = "a multiply-accumulate is two FLOP"
        if key == "macs_per_image" and expect.same_number(got, layer.macs):
            hint = "these are the multiply-accumulates of the whole batch; how many images has it?"
        expect.close_number(got, want, f"`{key}` of `conv_cost` is wrong", given=str(layer), hint=hint)


def _counted(submission: Submission, layer: ConvolutionShapes) -> int:
    """What `conv_cost` counts in this variant of the course."""
    return layer.macs * 2 if submission.parameters.counted == "flop" else layer.macs // _images(submission, layer)


def _images(submission: Submission, layer: ConvolutionShapes) -> int:
    """The number of images that the count of multiply-accumulates is divided by."""
    return layer.x[0] if submission.parameters.counted == "macs_per_image" else 1


def _moved(submission: Submission, layer: ConvolutionShapes) -> int:
    """The bytes that `conv_cost` counts in this variant of the course."""
    more = {
        "once": 0,
        "write_allocate": math.prod(layer.y),
        "per_image": (layer.x[0] - 1) * math.prod(layer.w),
        "bias": layer.w[0],
    }
    return layer.bytes + 4 * more[submission.parameters.traffic]


FORGOTTEN = {
    "write_allocate": "y is moved twice: a cache line is fetched before it is written to",
    "per_image": "w is moved once for each image of the batch",
    "bias": "the bias is moved, too: one number for each filter",
}


@points(2)
def bytes_are_counted(submission: Submission) -> None:
    """`conv_cost` counts the bytes of input, weights and output{{ {"write_allocate": ", which is moved twice", \
"bias": ", and of the bias", "per_image": ", the weights for each image"}.get(traffic, "") }}."""
    for layer, cost in _costs(submission, "bytes"):
        with expect.case(str(layer)):
            got = expect.integer(cost["bytes"], "`bytes` of `conv_cost`")
        want = _moved(submission, layer)
        hint = "count the elements of all three arrays, each array once"
        if submission.parameters.traffic != "once":
            hint = "count the elements of all arrays that are moved, each as often as it is moved"
        if want != layer.bytes and expect.same_number(got, layer.bytes):
            hint = FORGOTTEN[submission.parameters.traffic]
        if expect.same_number(4 * got, want):
            hint = "this is the number of elements; a float32 takes 4 bytes"
        expect.close_number(got, want, "`bytes` of `conv_cost` is wrong", given=str(layer), hint=hint)


@points(2)
def intensity_is_flop_per_byte(submission: Submission) -> None:
    """`conv_cost` returns the arithmetic intensity in FLOP per byte."""
    for layer, cost in _costs(submission, "intensity"):
        got = expect.number(cost["intensity"], "`intensity`")
        if expect.same_number(got, _own_intensity(submission, layer, cost)):
            continue
        hint = "operations for each byte: a multiply-accumulate is two operations"
        if submission.parameters.counted == "macs_per_image":
            hint += ", and the bytes are those of the whole batch"
        want = 2 * layer.macs / _moved(submission, layer)
        expect.close_number(got, want, "`intensity` of `conv_cost` is wrong", given=str(layer), hint=hint)


def _own_intensity(submission: Submission, layer: ConvolutionShapes, cost: dict) -> float:
    """The intensity by the student's own count and `bytes`, so that an error in them does not count twice."""
    counted, moved = cost.get(submission.parameters.counted), cost.get("bytes")
    if not isinstance(counted, int | float) or not isinstance(moved, int | float) or min(counted, moved) <= 0:
        return math.nan
    flop = counted if submission.parameters.counted == "flop" else 2 * counted * _images(submission, layer)
    return flop / moved


@points(3)
def columns_are_counted(submission: Submission) -> None:
    """`im2col_bytes` returns the size of a batch's columns in bytes."""
    for _ in range(3):
        layer = draw_shapes(submission.rng)
        with expect.case(str(layer)):
            got = expect.integer(
                submission.call("im2col_bytes", layer.x, layer.w, layer.y), "what `im2col_bytes` returns"
            )
        element = submission.parameters.column_type
        want = _column_bytes(submission, layer)
        hint = "rows and columns of the matrix that `im2col` returns for one image: what are they, in terms of w and y?"
        if expect.same_number(got * layer.x[0], want):
            hint = "these are the columns of one image; the batch has N of them"
        if expect.same_number(got, layer.column_bytes // 4):
            hint = f"this is the number of elements; a {element} takes {np.dtype(element).itemsize} bytes"
        expect.close_number(got, want, "`im2col_bytes` is wrong", given=str(layer), hint=hint)


def _column_bytes(submission: Submission, layer: ConvolutionShapes) -> int:
    """The bytes of the columns, in the type that this variant of the course stores them in."""
    return layer.column_bytes // 4 * np.dtype(submission.parameters.column_type).itemsize


@points(2)
def growth_is_against_the_input(submission: Submission) -> None:
    """`growth` returns how many times larger than {{ {"x": "the input"}.get(compared, compared) }} the columns are."""
    compared = submission.parameters.compared
    for _ in range(3):
        layer = draw_shapes(submission.rng)
        image = 4 * math.prod({"x": layer.x, "w": layer.w, "y": layer.y}[compared])
        got = expect.number(submission.call("growth", layer.x, layer.w, layer.y), "what `growth` returns")
        if expect.same_number(got, _own_column_bytes(submission, layer) / image):
            continue
        want = _column_bytes(submission, layer) / image
        hint = "two numbers of bytes, and what the first is in units of the second"
        if expect.same_number(got, 1 / want):
            hint = f"the fraction is inverted: divide the bytes of the columns by those of {compared}"
        expect.close_number(got, want, "`growth` is wrong", given=str(layer), hint=hint)


def _own_column_bytes(submission: Submission, layer: ConvolutionShapes) -> float:
    """The student's own `im2col_bytes`, so that an error in it does not count twice; NaN if it counts nothing."""
    try:
        own = expect.number(submission.call("im2col_bytes", layer.x, layer.w, layer.y), "`im2col_bytes`")
    except expect.CheckFailed:
        return math.nan
    return own if 0 < own < math.inf else math.nan


def _draw_machine(submission: Submission) -> tuple[float, float]:
    """Draw a machine's peak (FLOP/s) and bandwidth (bytes/s)."""
    return float(submission.rng.integers(50, 400)) * 1e9, float(submission.rng.integers(5, 40)) * 1e9


def _attainable(submission: Submission, intensity: float, peak: float, bandwidth: float) -> float:
    in_units = _in_units(submission, bandwidth)
    got = submission.call("attainable", intensity, peak, in_units)
    return expect.number(got, "what `attainable` returns", given=_given(intensity, peak, in_units))


def _in_units(submission: Submission, bandwidth: float) -> float:
    """A bandwidth, in bytes/s, in the unit that this variant of the course passes it in."""
    return bandwidth / UNIT_BYTES[submission.parameters.bandwidth_unit]


def _given(intensity: object, peak: float, bandwidth: float) -> str:
    return f"intensity={intensity}, peak={peak:g}, bandwidth={bandwidth:g}"


def _under_the_roof(submission: Submission, intensity: float, peak: float, bandwidth: float) -> float:
    """What `attainable` is to return, for a bandwidth in bytes/s."""
    rate = min(peak, intensity * bandwidth)
    return {"rate": rate, "share": rate / peak, "seconds": 1e9 / rate}[submission.parameters.roof]


def _unit_hint(submission: Submission) -> str:
    """What else to think of if the bandwidth is not in bytes/s."""
    if submission.parameters.bandwidth_unit == "bytes":
        return ""
    return f"; the intensity counts bytes, and the bandwidth {submission.parameters.bandwidth_unit}"


@points(2)
def the_lower_roof_counts(submission: Submission) -> None:
    """`attainable` {{ {"share": "is the share of the peak that the lower of the two roofs allows", \
"seconds": "is the time under the lower of the two roofs"}.get(roof, "is the lower of the two roofs") \
}}: memory bandwidth and peak arithmetic."""
    peak, bandwidth = _draw_machine(submission)
    for share in (0.1, 0.7, 1.5, 30.0):
        intensity = round(share * peak / bandwidth, 3)
        got = _attainable(submission, intensity, peak, bandwidth)
        want = _under_the_roof(submission, intensity, peak, bandwidth)
        hint = "what could memory feed, if arithmetic were free; what could arithmetic do; and which of them limits?"
        hint += _unit_hint(submission)
        given = _given(intensity, peak, _in_units(submission, bandwidth))
        expect.close_number(got, want, "`attainable` is wrong", given=given, hint=hint)


@points(1)
def roofs_of_many_at_once(submission: Submission) -> None:
    """`attainable` also takes an array of intensities, and returns an array of its type."""
    peak, bandwidth = _draw_machine(submission)
    shapes: tuple[tuple[int, ...], ...] = ((9,), (3, 4), (2, 3, 2), (0,))
    for shape, kind in zip(shapes, (np.float64, np.float32, np.float16, np.float64), strict=True):
        if kind is np.float16 and submission.parameters.roof == "seconds":
            kind = np.float32  # half precision has no number of 10**9 FLOP
        if kind is np.float16:
            peak, bandwidth = 8.0 * int(submission.rng.integers(4, 16)), 4.0  # nor of 10**9 FLOP/s
        intensity = (submission.rng.uniform(0.1, 2.5, shape) * peak / bandwidth).astype(kind)
        # compared with the student's own scalar results, so that a wrong roof does not count twice
        own = [_attainable(submission, float(value), peak, bandwidth) for value in intensity.ravel()]
        in_units = _in_units(submission, bandwidth)
        given = _given(f"an array {intensity.dtype}{list(shape)}", peak, in_units)
        hint = "`min` and `if` need a single number; NumPy has functions that go element by element, whatever the shape"
        with expect.case(given, hint):
            got = submission.call("attainable", intensity, peak, in_units)
            rtol = 4e-3 if kind is np.float16 else 1e-5
            expect.close(got, np.reshape(own, shape), "what `attainable` returns", rtol=rtol, dtype=kind)
    one, other = (_attainable(submission, 0.5, *machine) for machine in ((4.0, 2.0), (20.0, 6.0)))
    expect.true(one != other, "`attainable` depends on no roof", expected="another result on another machine", got=one)


@points(2)
def roofs_meet_at_the_ridge(submission: Submission) -> None:
    """`ridge` is the intensity at which the two roofs meet."""
    for _ in range(2):
        peak, bandwidth = _draw_machine(submission)
        in_units = _in_units(submission, bandwidth)
        got = expect.number(submission.call("ridge", peak, in_units), "what `ridge` returns")
        hint = "at this intensity, `attainable` is on both roofs at once; check the units: FLOP per byte"
        hint += _unit_hint(submission)
        given = f"peak={peak:g}, bandwidth={in_units:g}"
        expect.close_number(got, peak / bandwidth, "`ridge` is wrong", given=given, hint=hint)


def _draw_parts(submission: Submission) -> dict[str, float]:
    """Draw seconds by part, in sixteenths, so that their sums are exact; all differ."""
    drawn = submission.rng.permutation(np.arange(4, 40))[:3]
    return {name: int(number) / 16 for name, number in zip(NAMES, drawn, strict=True)}


def _check_prediction(
    submission: Submission, total: float, parts: dict[str, float], speedups: dict[str, float], hint: str
) -> None:
    remainder = total - sum(parts.values())
    seconds = remainder + sum(seconds / speedups.get(name, 1.0) for name, seconds in parts.items())
    predicted = {"seconds": seconds, "speedup": total / seconds, "saved": 1 - seconds / total}
    want = predicted[submission.parameters.predicted]
    with expect.case(f"total={total}, parts={parts}, speedups={speedups}", hint):
        got = expect.number(submission.call("predict", total, parts, speedups), "what `predict` returns")
        expect.close_number(got, want, "`predict` is wrong")


@points(2)
def parts_are_divided_by_their_factors(submission: Submission) -> None:
    """`predict` divides the seconds of each part by its factor; the remaining time stays."""
    hint = "what is not in `parts` stays; each part has its own factor, found by its name" + _prediction(submission)
    for remainder in (1.5, 0.25):
        parts = _draw_parts(submission)
        drawn = submission.rng.permutation(np.arange(2, 9))[:3]  # in another order than the parts: names decide
        factors = {name: float(factor) for name, factor in zip(reversed(parts), drawn, strict=True)}
        _check_prediction(submission, sum(parts.values()) + remainder, parts, factors, hint)
    parts = _draw_parts(submission)
    parts["dense"] = parts["convolution"]
    hint = "a factor may be a fraction, or below 1 if a part becomes slower; two parts may take the same time"
    factors = dict(zip(parts, (2.5, 0.5, 3.0), strict=True))
    _check_prediction(submission, sum(parts.values()) + 1.5, parts, factors, hint + _prediction(submission))


def _prediction(submission: Submission) -> str:
    """What else to think of if `predict` returns no seconds."""
    return {
        "seconds": "",
        "speedup": "; the result is the time before in units of the time after",
        "saved": "; the result is the time saved, as a share of the time before",
    }[submission.parameters.predicted]


@points(1)
def parts_not_named_keep_their_time(submission: Submission) -> None:
    """`predict` keeps the time of a part that has no factor, and ignores a factor that has no part."""
    parts = _draw_parts(submission)
    hint = "which factor leaves the time of a part as it is? Names decide, and either dictionary may lack some"
    hint += _prediction(submission)
    total = sum(parts.values()) + 2.0
    for speedups in ({}, {"dense": 1.0}, {"pooling": 2.0}, {"reshape": 4.0, "dense": 2.0}):
        _check_prediction(submission, total, parts, speedups, hint)


@points(2)
def the_rest_limits_the_speedup(submission: Submission) -> None:
    """`best_possible` is {{ {"remaining": "the share of the time that remains", "percent": "the gain in percent"}.get(\
limit, "the speed-up") }} if the parts took no time at all."""
    for remainder in (0.5, 3.0, 2**-10):
        parts = _draw_parts(submission)
        total = sum(parts.values()) + remainder
        got = expect.number(submission.call("best_possible", total, parts), "what `best_possible` returns")
        hint = "compare the time before with what is left when the parts take none"
        if submission.parameters.limit == "percent":
            hint += "; twice as fast is a gain of 100 percent"
        given = f"total={total}, parts={parts}"
        expect.close_number(
            got, _limit(submission, total, remainder), "`best_possible` is wrong", given=given, hint=hint
        )


def _limit(submission: Submission, total: float, remainder: float) -> float:
    """What `best_possible` is to return if so many seconds of a total remain."""
    if submission.parameters.limit == "remaining":
        return remainder / total
    if not remainder:
        return math.inf
    times = total / remainder
    return 100 * (times - 1) if submission.parameters.limit == "percent" else times


@points(1)
def without_a_rest_there_is_no_limit(submission: Submission) -> None:
    """`best_possible` is {% if limit == "remaining" %}0{% else %}infinite{% endif %} if the parts are the whole."""
    parts = _draw_parts(submission)
    total = sum(parts.values())
    want = _limit(submission, total, 0.0)
    hint = "nothing is left, so there is no limit: Python does not divide by zero"
    if not want:
        hint = "nothing is left"
    with expect.case(f"total={total}, parts={parts}", hint):
        got = expect.number(submission.call("best_possible", total, parts), "what `best_possible` returns")
        expect.equal(got, want, f"`best_possible` is not {'infinite' if want else '0'}")
    with expect.case(f"total={2 * total}, parts={parts}", "here half of the time is left"):
        other = expect.number(submission.call("best_possible", 2 * total, parts), "what `best_possible` returns")
        expect.true(other != want, f"`best_possible` is always {'infinite' if want else '0'}")


TASKS = (
    Task(
        "P3.1",
        "What a convolution costs",
        checks=(
            windows_are_counted,
            the_last_step_must_fit,
            macs_are_counted,
            bytes_are_counted,
            intensity_is_flop_per_byte,
        ),
        solution_stands_in=True,
        varies=(COUNTED, TRAFFIC, SIZE_ARGUMENT),
        libraries=ARRAYS,
        minutes=15,
    ),
    Task(
        "P3.9",
        "Under the roof",
        checks=(the_lower_roof_counts, roofs_of_many_at_once, roofs_meet_at_the_ridge),
        varies=(BANDWIDTH_UNIT, ROOF),
        libraries=ARRAYS,
        minutes=10,
        builds_on=("P3.1", "P3.5"),
    ),
    Task(
        "P3.10",
        "What im2col costs",
        checks=(columns_are_counted, growth_is_against_the_input),
        varies=(COLUMN_TYPE, COMPARED),
        libraries=ARRAYS,
        minutes=10,
        builds_on=("P3.3",),
    ),
    Task(
        "P3.11",
        "What is a faster kernel worth?",
        checks=(
            parts_are_divided_by_their_factors,
            parts_not_named_keep_their_time,
            the_rest_limits_the_speedup,
            without_a_rest_there_is_no_limit,
        ),
        varies=(PREDICTED, LIMIT),
        libraries=ARRAYS,
        minutes=20,
        builds_on=("P3.5",),
    ),
)
