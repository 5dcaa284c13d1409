"""Checks of P2.7: the signal-to-noise ratio, the table of schemas, and the answers read from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.rpc.limited import IsolatedCallError, run_isolated
from mlhood.models import digits

COSTS = "mlhood.grading.checks.reference_runs:recipe_costs"
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
SIMILAR = 0.8  # correlation of a wrong table with the right one, with either sign
TIE = 0.15  # dB: rows this close to each other count as equal


@points(2)
def sqnr_is_measured(submission: Submission) -> None:
    """`sqnr` is ten times the base-10 logarithm of signal energy over noise energy."""
    rng = submission.rng
    for scale, shape in ((1.0, (40, 10)), (1e3, (7,)), (1e-3, (3, 4, 5))):
        reference = (scale * (rng.standard_normal(shape) + 0.5)).astype(np.float32)
        noise = scale * float(rng.uniform(0.01, 0.2)) * (rng.standard_normal(shape) + 0.3)
        approximation = (reference + noise).astype(np.float32)
        error = reference.astype(np.float64) - approximation
        want = 10 * np.log10(np.sum(reference.astype(np.float64) ** 2) / np.sum(error**2))
        got = expect.number(submission.call("sqnr", reference, approximation), "what `sqnr` returns")
        hint = _sqnr_hint(got, want, reference, approximation)
        given = f"arrays {shape} around {scale:g}"
        what = "`sqnr` is wrong"
        expect.true(abs(got - want) < 0.01, what, expected=f"{want:.2f} dB", got=f"{got:.2f}", given=given, hint=hint)


def _sqnr_hint(got: float, want: float, reference: np.ndarray, approximation: np.ndarray) -> str:
    if any(abs(got - factor * want) < 0.01 for factor in (0.1, np.log(10), np.log(10) / 10)):
        return "decibels: ten times the logarithm to base 10"
    if abs(got + want) < 0.01:
        return "the signal belongs in the numerator, the noise in the denominator"
    if abs(got - 2 * want) < 0.01 or abs(got - want / 2) < 0.01:
        return (
            "energies are sums of squares: 10 * log10 of their ratio, or 20 * log10 of the ratio of their square roots"
        )
    noise = reference - approximation
    if abs(got - 10 * np.log10(np.var(reference) / np.var(noise))) < 0.01:
        return "use sums of squares, not variances: a constant error is noise, too"
    return "10 * log10(sum(reference ** 2) / sum((reference - approximation) ** 2)), over all elements"


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


@points(3)
def rows_are_measured(submission: Submission) -> None:
    """`measured` returns accuracy, agreement, SQNR, bytes and nodes for any recipe."""
    wanted = _measured(submission)
    for name in ("symmetric", "power_of_two, int16", *UNSEEN):
        arguments = (ROWS | UNSEEN)[name]
        recipe = submission.call("mlhood.compiler.quantize:Recipe", **arguments)
        row = expect.mapping(submission.call("measured", recipe), tuple(wanted[name]["row"]), "what `measured` returns")
        for key, want in wanted[name]["row"].items():
            got = expect.number(row[key], f"`{key}`")
            slack = {"sqnr": 0.1, "bytes": 0, "nodes": 0}.get(key, ONE_IMAGE)
            given = f"Recipe({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
            expect.true(
                abs(got - want) <= slack, f"`{key}` is wrong", expected=want, got=got, given=given, hint=COLUMNS[key]
            )


# The columns of the table and how each is computed.
COLUMNS = {
    "accuracy": "the share of data.test_images whose argmax is the label, from 0 to 1",
    "agreement": "the share of data.test_images whose argmax is that of `optimized`, whatever the label",
    "sqnr": "sqnr(logits of `optimized`, logits of the quantised graph), over data.test_images",
    "bytes": "sum of value.data.nbytes over graph.constants.values() of the quantised graph",
    "nodes": "len(graph.nodes) of the quantised graph",
}


@points(3)
def answers_fit_the_table(submission: Submission) -> None:
    """`answers` names the best and the worst row, the gain of sixteen bits, and the most costly layer."""
    keys = ("best", "worst", "gain", "layer")
    answers = expect.mapping(submission.value("answers"), keys, "`answers`")
    measured = _measured(submission)
    ratios = {name: measured[name]["row"]["sqnr"] for name in ROWS}
    try:
        _check_answers(answers, ratios)
    except expect.CheckFailed:
        own = _own_ratios(submission)
        if own.keys() != ratios.keys() or not _measured_somehow(own, ratios):
            raise
        _check_answers(answers, own)  # a wrong table read correctly costs only the table's points
    alone = measured["power_of_two"]["alone"]
    _check_name(answers["layer"], "layer", {name for name in alone if alone[name] <= min(alone.values()) + TIE})


def _own_ratios(submission: Submission) -> dict[str, float]:
    """SQNR by row of the student's own table; empty if it is not such a table."""
    try:
        table = submission.value("results")
        pairs = zip(table["recipe"].tolist(), table["sqnr"].tolist(), strict=True)
        return {str(name): expect.number(value, "`results`") for name, value in pairs}
    except (expect.CheckFailed, AttributeError, KeyError, TypeError):
        return {}


def _measured_somehow(own: dict[str, float], ratios: dict[str, float]) -> bool:
    """Whether a student's wrong ratios rise or fall with the right ones, as measured ones do: others are invented."""
    values = np.array([[own[name], ratios[name]] for name in ratios]).T
    return bool(np.isfinite(values).all() and values[0].std() > 0 and abs(np.corrcoef(values)[0][1]) > SIMILAR)


def _check_answers(answers: Mapping[str, object], ratios: dict[str, float]) -> None:
    eight = {name: ratio for name, ratio in ratios.items() if "int16" not in name}
    _check_name(answers["best"], "best", {name for name in eight if eight[name] >= max(eight.values()) - TIE})
    _check_name(answers["worst"], "worst", {name for name in eight if eight[name] <= min(eight.values()) + TIE})
    gain = expect.number(answers["gain"], "`answers['gain']`")
    want = ratios["power_of_two, int16"] - ratios["power_of_two"]
    hint = "sqnr = results.set_index('recipe')['sqnr']; gain = sqnr['power_of_two, int16'] - sqnr['power_of_two']"
    expect.true(
        abs(gain - want) < 0.6, "`answers['gain']` is wrong", expected=f"{want:.1f} dB", got=f"{gain:.1f}", hint=hint
    )


def _check_name(answer: object, key: str, right: set[str]) -> None:
    hints = {
        "best": "the highest SQNR among the rows of eight bits",
        "worst": "the lowest SQNR among the rows of eight bits",
        "layer": "the lowest diamond in the waterfall chart: the value whose own quantisation costs most",
    }
    what = f"`answers['{key}']` does not agree with the table"
    expect.true(str(answer) in right, what, expected=" or ".join(sorted(right)), got=answer, hint=hints[key])


TASKS = (
    Task(
        "P2.7",
        "What does it cost?",
        checks=(sqnr_is_measured, rows_are_measured, answers_fit_the_table),
        forbidden=("mlhood.compiler.quantize.sqnr", "mlhood.compiler.quantize.report"),
    ),
)
