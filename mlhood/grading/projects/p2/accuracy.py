"""Checks of P2.8: the signal-to-noise ratio, the table of schemas, and the answers read from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, Keywords, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import RECIPES
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.rpc.limited import IsolatedCallError
from mlhood.grading.variants.parameter import Parameter
from mlhood.models import digits

# the last argument of `sqnr`
SQNR_ARGUMENT = Parameter("sqnr_argument", ("none", "axis", "peak", "in_bits"))
# the column of the table that compares with the float graph, and what `answers` finds besides the rows and the layer
AGREEMENT = Parameter("agreement", ("agreement", "disagreement", "matches", "differences"))
GAIN = Parameter("gain", ("gain", "spread", "median", "price"))

COSTS = "mlhood.grading.projects.reference_runs:recipe_costs"
CALIBRATION = 300
# Arguments of `Recipe`. The last is so coarse that digits are misclassified: only then do accuracy and agreement differ
# from those of the float graph.
RECIPES_ASKED: dict[str, dict[str, Any]] = {
    "power_of_two, int16": {"schema": "power_of_two", "element": "int16"},
    "another": {"schema": "symmetric_unsigned", "per_channel": True, "headroom": 40.0},
}
ONE_IMAGE = 0.004  # share of the test images: the last bit of a profile may decide between two nearly equal logits


@compared(
    2,
    "sqnr",
    view=np.atleast_1d,
    rtol=0.0,
    atol=0.01,
    hint="""the sums run over all elements, whatever the shape; compute in float64\
{{ {"axis": "; with an axis, both sums run along it only, and there is one ratio for each position of the others",
"peak": "; with `peak`, every element counts as if it were the largest, whatever its sign: in the numerator only",
"in_bits": "; how many decibels is one bit, exactly? It doubles the ratio of amplitudes"}.get(sqnr_argument, "") }}""",
    mistakes={
        "decibels: ten times the logarithm": lambda want, *arrays: want / 10,
        "decibels: ten times the logarithm to base 10": lambda want, *arrays: want * np.log(10),
        "energies are sums of squares: is it ten or twenty times the logarithm of their ratio?": lambda want, *_: (
            2 * want
        ),
        "energies are sums of squares; of what is the logarithm?": lambda want, *arrays: want / 2,
        "the signal belongs in the numerator, the noise in the denominator": lambda want, *arrays: -want,
        "use sums of squares, not variances: a constant error is noise, too": lambda want, signal, other: np.atleast_1d(
            10 * np.log10(np.var(signal) / np.var(signal - other))
        ),
    },
)
def sqnr_is_measured(submission: Submission) -> Iterator[Arguments]:
    """`sqnr` is ten times the base-10 logarithm of signal energy over noise energy."""
    rng, name = submission.rng, submission.parameters.sqnr_argument
    # the largest absolute value is above 0, or below
    for scale, mean, shape in ((1.0, 0.5, (40, 10)), (1e3, -3.0, (7,)), (1e-3, -0.5, (3, 4, 5))):
        reference = (scale * (rng.standard_normal(shape) + mean)).astype(np.float32)
        noise = scale * float(rng.uniform(0.01, 0.2)) * (rng.standard_normal(shape) + 0.3)
        arrays = reference, (reference + noise).astype(np.float32)
        yield arrays
        if name != "none":
            yield *arrays, Keywords({name: int(rng.integers(reference.ndim)) if name == "axis" else True})


def _measure(submission: Submission) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the package's results for the notebook's own `optimized`, by recipe, and the number of test images."""
    graph = submission.value("optimized")
    if not isinstance(graph, Hir):
        expect.fail("`optimized` is not a graph", got=graph, hint="run the given cells of section 4 first")
    train_images, _, images, labels, _ = digits()
    data = {"seen": train_images[:CALIBRATION], "images": images, "labels": labels}
    try:
        return submission.parser.call(COSTS, graph, RECIPES_ASKED, list(COLUMNS), data), len(images)
    except IsolatedCallError as failure:
        raise expect.CheckFailed("`optimized` is not a graph that can be quantised", got=str(failure)) from None


@points(2)
def rows_are_measured(submission: Submission) -> None:
    """`measured` returns accuracy, {{ agreement }}, SQNR, bytes and nodes for any recipe."""
    (wanted, images), column = _measure(submission), submission.parameters.agreement
    for name, arguments in RECIPES_ASKED.items():
        right = dict(wanted[name])
        share = right.pop("agreement")
        shares = {"agreement": share, "disagreement": 1 - share, "matches": images * share}
        right[column] = {**shares, "differences": images * (1 - share)}[column]
        given = f"Recipe({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
        with expect.case(given):
            recipe = submission.call("mlhood.compiler.quantize:Recipe", **arguments)
            row = expect.mapping(submission.call("measured", recipe), tuple(right), "what `measured` returns")
            for key, want in right.items():
                got = (expect.integer if key in COUNTED else expect.number)(row[key], f"`{key}` of `measured`")
                slack = {"sqnr": 0.1, "bytes": 0, "nodes": 0}.get(key, ONE_IMAGE * (images if key in COUNTED else 1))
                what, hint = f"`{key}` of `measured` is wrong", COLUMNS.get(key, COLUMNS["agreement"])
                expect.true(abs(got - want) <= slack, what, expected=want, got=got, hint=hint)


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


def _draw_ratios(rng: np.random.Generator, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """Draw the SQNRs of recipes, and of layers alone, from one of `RANGES`."""
    few, many, single = RANGES[number]
    eight = ["asymmetric", "power_of_two", *(str(name) for name in rng.permutation(OTHERS)[: 3 - number % 2])]
    names = [*eight, "power_of_two, int16", "symmetric, int16"]
    ratios = np.round([*rng.uniform(*few, len(eight)), *rng.uniform(*many, 2)], 3).tolist()
    results = {names[i]: ratios[i] for i in rng.permutation(len(names))}
    layers = [f"v{i}" for i in rng.permutation(20)[: int(rng.integers(5, 9))]]
    return results, dict(zip(layers, rng.uniform(*single, len(layers)).tolist(), strict=True))


@points(2, solved=True)
def answers_are_found(submission: Submission) -> None:
    """`answers` finds the best and the worst recipe, {{ "the gain of sixteen bits" if gain == "gain" else "the " ~ gain }}, and the most costly layer."""  # noqa: E501 a template
    for number in range(len(RANGES)):
        ratios, alone = _draw_ratios(submission.rng, number)
        want = submission.solution("answers", ratios, alone)
        with expect.case(_listed("recipes with", ratios)):
            found = expect.mapping(submission.call("answers", ratios, alone), tuple(want), "what `answers` returns")
        for key, right in want.items():
            what, got = f"`{key}` of `answers`", found[key]
            given = _listed("layers with", alone) if key == "layer" else _listed("recipes with", ratios)
            with expect.case(given, ANSWER_HINTS[key]):
                if isinstance(right, str):
                    expect.equal(str(got), right, f"{what} is wrong")
                else:
                    expect.close_number(expect.number(got, what), right, f"{what} is wrong")


def _listed(what: str, ratios: dict[str, float]) -> str:
    return f"{what} the SQNR " + ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())


ANSWER_HINTS = {
    "best": "which recipes have eight bits? Those of sixteen do not count, good or bad",
    "worst": "which recipes have eight bits?",
    "layer": "the waterfall's diamonds: the lowest",
    "gain": "two recipes, and which of them minus which? Not rounded",
    "spread": "which recipes have eight bits? Of these, the best and the worst, not rounded",
    "median": "which recipes have eight bits? Of these, the one in the middle, not rounded",
    "price": "two recipes, and which of them minus which? Not rounded",
}


P2_8 = Task(
    "P2.8",
    "What does it cost?",
    checks=(sqnr_is_measured, answers_are_found, rows_are_measured),
    libraries=RECIPES,
    minutes=20,
    builds_on=("P2.6",),
    varies=(SQNR_ARGUMENT, AGREEMENT, GAIN),
)
