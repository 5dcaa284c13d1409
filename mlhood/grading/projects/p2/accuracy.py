"""Checks of P2.8: the signal-to-noise ratio, the table of schemas, and what the noise of each layer predicts."""

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
# the column of the table that compares with the float graph, and what `budget` predicts for each layer
AGREEMENT = Parameter("agreement", ("agreement", "disagreement", "matches", "differences"))
EACH_LAYER = Parameter("each_layer", ("share", "without", "finer", "coarser"))

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


RANGES = ((30, 50), (-60, -20), (120, 150))  # SQNRs of layers in dB: such as the notebook's, and others


@points(2, solved=True)
def noise_adds_up(submission: Submission) -> None:
    """`budget` predicts the SQNR of all layers together, and {{ {"share": "each layer's share of the noise", "without": "the SQNR without each layer", "finer": "the SQNR if one layer gets one bit more", "coarser": "the SQNR if one layer gets one bit less"}[each_layer] }}."""  # noqa: E501 a template
    key = submission.parameters.each_layer
    for low, high in RANGES:
        names = [f"v{i}" for i in submission.rng.permutation(20)[: int(submission.rng.integers(5, 9))]]
        ratios = np.round(submission.rng.uniform(low, high, len(names)), 2).tolist()
        alone = dict(zip(names, ratios, strict=True))
        want = submission.solution("budget", alone)
        given = ", ".join(f"{name}: {ratio:.2f}" for name, ratio in alone.items())
        with expect.case(f"alone {{{given}}}"):
            found = expect.mapping(submission.call("budget", alone), ("sqnr", key), "what `budget` returns")
            with expect.case(None, "decibels do not add up, energies do: how large is the noise beside a signal of 1?"):
                what = "`sqnr` of `budget`"
                expect.close_number(expect.number(found["sqnr"], what), want["sqnr"], f"{what} is wrong")
            layers = expect.mapping(found[key], tuple(names), f"`{key}` of `budget`")
            for name, right in want[key].items():
                what = f"`{key}` of `budget` for {name}"
                with expect.case(None, HINTS[key]):
                    expect.close_number(expect.number(layers[name], what), right, f"{what} is wrong")


HINTS = {
    "share": "of the noise energy of all layers, which fraction is this?",
    "without": "what is left of the energy of all layers if this one has none?",
    "finer": "errors half as large have which part of their energy?",
    "coarser": "errors twice as large have how many times their energy?",
}


P2_8 = Task(
    "P2.8",
    "What does it cost?",
    checks=(sqnr_is_measured, noise_adds_up, rows_are_measured),
    libraries=RECIPES,
    minutes=20,
    builds_on=("P2.6",),
    varies=(SQNR_ARGUMENT, AGREEMENT, EACH_LAYER),
)
