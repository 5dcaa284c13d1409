"""Checks of P2.8: the signal-to-noise ratio, the table of schemas, and the answers read from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import RECIPES
from mlhood.grading.projects.p2.loops import PROBES, function
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.rpc.limited import IsolatedCallError, run_isolated
from mlhood.grading.variants.parameter import Parameter
from mlhood.models import digits

# the last argument of `sqnr`
SQNR_ARGUMENT = Parameter("sqnr_argument", ("none", "axis", "peak", "in_bits"))
# the column of the table that compares with the float graph, and what `answers` finds besides the rows and the layer
AGREEMENT = Parameter("agreement", ("agreement", "disagreement", "matches", "differences"))
GAIN = Parameter("gain", ("gain", "spread", "median", "price"))

COSTS = "mlhood.grading.projects.reference_runs:recipe_costs"
CALIBRATION = 300
# The rows of the notebook's table, as arguments of `Recipe`.
ROWS: dict[str, dict[str, Any]] = {
    "asymmetric": {"schema": "asymmetric"},
    "symmetric": {"schema": "symmetric"},
    "symmetric_unsigned": {"schema": "symmetric_unsigned"},
    "power_of_two": {"schema": "power_of_two"},
    "asymmetric, per channel": {"schema": "asymmetric", "per_channel": True},
    "power_of_two, int16": {"schema": "power_of_two", "element": "int16"},
}
# So coarse that digits are misclassified: only then do accuracy and agreement differ from those of the float graph.
UNSEEN = {"another": {"schema": "symmetric_unsigned", "per_channel": True, "headroom": 40.0}}
ONE_IMAGE = 0.004  # share of the test images: the last bit of a profile may decide between two nearly equal logits


@points(2)
def sqnr_is_measured(submission: Submission) -> None:
    """`sqnr` is ten times the base-10 logarithm of signal energy over noise energy."""
    rng = submission.rng
    for scale, shape in ((1.0, (40, 10)), (1e3, (7,)), (1e-3, (3, 4, 5))):
        reference = (scale * (rng.standard_normal(shape) + 0.5)).astype(np.float32)
        noise = scale * float(rng.uniform(0.01, 0.2)) * (rng.standard_normal(shape) + 0.3)
        approximation = (reference + noise).astype(np.float32)
        given = f"arrays {shape} around {scale:g}"
        want = float(_sqnr(reference, approximation))
        with expect.case(given):
            got = expect.number(submission.call("sqnr", reference, approximation), "what `sqnr` returns")
        hint = _sqnr_hint(got, want, reference, approximation)
        what = "`sqnr` is wrong"
        expect.true(abs(got - want) < 0.01, what, expected=f"{want:.2f} dB", got=f"{got:.2f}", given=given, hint=hint)
        if submission.parameters.sqnr_argument != "none":
            _check_argument(submission, reference, approximation, given)


def _sqnr(
    reference: np.ndarray,
    approximation: np.ndarray,
    axis: int | None = None,
    peak: bool = False,
    in_bits: bool = False,
) -> np.ndarray:
    """Return the ratio in dB, or in bits: along an axis, or of the largest value instead of the mean energy."""
    signal = reference.astype(np.float64)
    energy = signal.size * np.max(signal**2) if peak else np.sum(signal**2, axis)
    ratio = 10 * np.log10(energy / np.sum((signal - approximation) ** 2, axis))
    return ratio / (20 * np.log10(2)) if in_bits else ratio


def _check_argument(submission: Submission, reference: np.ndarray, approximation: np.ndarray, given: str) -> None:
    """Check `sqnr` with the last argument that it has in a variant."""
    name = submission.parameters.sqnr_argument
    extra: dict[str, Any] = {name: int(submission.rng.integers(reference.ndim)) if name == "axis" else True}
    want, given, hint = _sqnr(reference, approximation, **extra), f"{given}, {name}={extra[name]}", SQNR_HINTS[name]
    with expect.case(given, hint):
        got = submission.call("sqnr", reference, approximation, **extra)
    if np.ndim(want):
        expect.close(got, want, "what `sqnr` returns", atol=0.01, given=given, hint=hint)
        return
    got, ratio = expect.number(got, "what `sqnr` returns", given=given), float(want)
    right = abs(got - ratio) < 0.01
    expect.true(right, "`sqnr` is wrong", expected=f"{ratio:.2f}", got=f"{got:.2f}", given=given, hint=hint)


SQNR_HINTS = {
    "axis": "both sums run along this axis only, and there is one ratio for each position of the others",
    "peak": "every element counts as if it were the largest, whatever its sign: in the numerator only",
    "in_bits": "how many decibels is one bit, exactly? It doubles the ratio of amplitudes",
}


def _sqnr_hint(got: float, want: float, reference: np.ndarray, approximation: np.ndarray) -> str:
    if any(abs(got - factor * want) < 0.01 for factor in (0.1, np.log(10), np.log(10) / 10)):
        return "decibels: ten times the logarithm to base 10"
    if abs(got + want) < 0.01:
        return "the signal belongs in the numerator, the noise in the denominator"
    if abs(got - 2 * want) < 0.01 or abs(got - want / 2) < 0.01:
        return "energies are sums of squares; is it ten or twenty times the logarithm of their ratio?"
    noise = reference - approximation
    if abs(got - 10 * np.log10(np.var(reference) / np.var(noise))) < 0.01:
        return "use sums of squares, not variances: a constant error is noise, too"
    return "the sums run over all elements, whatever the shape; compute in float64"


def _measured(submission: Submission) -> dict[str, dict[str, Any]]:
    """The package's results for the notebook's own `optimized`, by recipe."""
    return submission.once("measured", lambda: _measure(submission))


def _measure(submission: Submission) -> dict[str, dict[str, Any]]:
    graph = submission.value("optimized")
    if not isinstance(graph, Hir):
        expect.fail("`optimized` is not a graph", got=graph, hint="run the given cells of section 4 first")
    train_images, _, images, labels, _ = digits()
    data = {"seen": train_images[:CALIBRATION], "images": images, "labels": labels}
    try:
        return run_isolated(COSTS, graph, ROWS | UNSEEN, list(COLUMNS), data, seconds=90.0)
    except IsolatedCallError as failure:
        raise expect.CheckFailed("`optimized` is not a graph that can be quantised", got=str(failure)) from None


@points(2)
def rows_are_measured(submission: Submission) -> None:
    """`measured` returns accuracy, {{ agreement }}, SQNR, bytes and nodes for any recipe."""
    wanted, images = _measured(submission), len(digits().test_labels)
    for name in ("symmetric", "power_of_two, int16", *UNSEEN):
        arguments, right = (ROWS | UNSEEN)[name], _row(submission, wanted[name]["row"], images)
        recipe = submission.call("mlhood.compiler.quantize:Recipe", **arguments)
        row = expect.mapping(submission.call("measured", recipe), tuple(right), "what `measured` returns")
        for key, want in right.items():
            given = f"Recipe({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
            number = expect.integer if key in COUNTED else expect.number
            got = number(row[key], f"`{key}` of `measured`", given=given)
            slack = {"sqnr": 0.1, "bytes": 0, "nodes": 0}.get(key, ONE_IMAGE * (images if key in COUNTED else 1))
            what = f"`{key}` of `measured` is wrong"
            hint = COLUMNS.get(key, COLUMNS["agreement"])
            expect.true(abs(got - want) <= slack, what, expected=want, got=got, given=given, hint=hint)


def _row(submission: Submission, row: Mapping[str, Any], images: int) -> dict[str, Any]:
    """Return a row with the column of a variant in the place of `agreement`."""
    share = row["agreement"]
    columns = {"agreement": share, "disagreement": 1 - share}
    columns |= {"matches": round(images * share), "differences": round(images * (1 - share))}
    key = submission.parameters.agreement
    return {key if name == "agreement" else name: value for name, value in row.items()} | {key: columns[key]}


# The columns of the table, and what to think of; some are counts.
COUNTED = ("bytes", "nodes", "matches", "differences")
COLUMNS = {
    "accuracy": "of which graph are the logits, and with what are they compared? It is a fraction, from 0 to 1",
    "agreement": "with what are the logits of the quantised graph compared, whatever the label?",
    "sqnr": "which logits are the reference, and which the approximation?",
    "bytes": "of which graph are the constants?",
    "nodes": "of which graph are the nodes?",
}


# recipes of 8 bits besides those that `answers` names
OTHERS = (
    "symmetric",
    "symmetric_unsigned",
    "asymmetric, per channel",
    "symmetric, per channel",
    "power_of_two, per channel",
)
# SQNRs of recipes of 8 bits and of 16, and of layers, from the least to the largest
RANGES = (
    ((20, 40), (70, 90), (30, 50)),  # such as the notebook's
    ((20, 40), (5, 15), (30, 50)),  # sixteen bits are worse
    ((-40, -10), (10, 30), (-60, -20)),
    ((110, 140), (150, 180), (120, 150)),
)


def _draw_tables(rng: np.random.Generator, number: int) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Draw a table of recipes and one of layers, as columns, with SQNRs of one of `RANGES`."""
    few, many, single = RANGES[number]
    eight = ["asymmetric", "power_of_two", *(str(name) for name in rng.permutation(OTHERS)[:3])]
    names = [*eight, "power_of_two, int16", "symmetric, int16"]
    ratios = [*rng.uniform(*few, len(eight)), *rng.uniform(*many, 2)]
    rows = [(names[i], round(float(ratios[i]), 3)) for i in rng.permutation(len(names))]
    columns = {"recipe": [name for name, _ in rows], "accuracy": rng.uniform(0.9, 1, len(rows)).tolist()}
    columns |= {"sqnr": [ratio for _, ratio in rows], "bytes": rng.integers(1000, 9999, len(rows)).tolist()}
    count = int(rng.integers(5, 9))
    layers = {"layer": [f"v{i}" for i in rng.permutation(20)[:count]]}
    alone = rng.uniform(*single, count)
    together = alone - rng.uniform(0, 3, count)
    together[int(np.argmax(alone))] = alone.min() - 20  # the lowest SQNR of all together is not that of the layer alone
    return columns, layers | {"sqnr": together.tolist(), "alone": alone.tolist()}


@points(2)
def answers_fit_the_table(submission: Submission) -> None:
    """`answers` finds the best and the worst row, {{ "the gain of sixteen bits" if gain == "gain" else "the " ~ gain }}, and the most costly layer in any tables."""  # noqa: E501 a template
    find, key = function(submission, "answers"), submission.parameters.gain
    for number in range(len(RANGES)):
        results, layers = _draw_tables(submission.rng, number)
        ratios = dict(zip(results["recipe"], results["sqnr"], strict=True))
        given = "a table with the SQNR " + ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())
        alone = dict(zip(layers["layer"], layers["alone"], strict=True))
        with expect.case(given):
            answer = submission.call(PROBES + "answered", find, results, layers)
            found = expect.mapping(answer, ("best", "worst", key, "layer"), "what `answers` returns")
            eight = {name: ratio for name, ratio in ratios.items() if not name.endswith("int16")}
            _check_name(found, "best", max(eight, key=eight.__getitem__))
            _check_name(found, "worst", min(eight, key=eight.__getitem__))
            got = expect.number(found[key], f"`{key}` of `answers`")
            want, hint = _gain(key, ratios, list(eight.values())), GAIN_HINTS[key]
            expect.true(abs(got - want) < 0.06, f"`{key}` of `answers` is wrong", expected=want, got=got, hint=hint)
        with expect.case("layers with the SQNR alone " + ", ".join(f"{n} {v:.1f}" for n, v in alone.items())):
            _check_name(found, "layer", min(alone, key=alone.__getitem__))


def _gain(key: str, ratios: Mapping[str, float], eight: list[float]) -> float:
    """Return what a variant asks for in the place of `gain`, in dB."""
    if key == "spread":
        return max(eight) - min(eight)
    if key == "median":
        return float(np.median(eight))
    return ratios["power_of_two, int16" if key == "gain" else "asymmetric"] - ratios["power_of_two"]


GAIN_HINTS = {
    "gain": "two rows of the table, and which of them minus which?",
    "spread": "which rows have eight bits? Of these, the best and the worst",
    "median": "which rows have eight bits? Of these, the one in the middle",
    "price": "two rows of the table, and which of them minus which?",
}


def _check_name(found: Mapping[str, object], key: str, right: str) -> None:
    hints = {
        "best": "which rows have eight bits? Those of sixteen do not count, good or bad",
        "worst": "which rows have eight bits?",
        "layer": "the waterfall's diamonds are the column `alone`: one layer quantised, all others not",
    }
    what = f"`{key}` of `answers` is wrong"
    expect.true(str(found[key]) == right, what, expected=right, got=found[key], hint=hints[key])


TASKS = (
    Task(
        "P2.8",
        "What does it cost?",
        checks=(sqnr_is_measured, answers_fit_the_table, rows_are_measured),
        libraries=RECIPES,
        minutes=20,
        builds_on=("P2.6",),
        varies=(SQNR_ARGUMENT, AGREEMENT, GAIN),
    ),
)
