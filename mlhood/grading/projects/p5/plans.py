"""Checks of P5.14: a plan for a network of dense layers, which is open, and graded by the bytes that devices send."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.libraries import PLANS
from mlhood.grading.projects.p5.programs import oracle
from mlhood.grading.rpc.limited import IsolatedCallError
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p5.probes_cluster:"
INPUT_GRADIENT = Parameter("input_gradient", (False, True))  # whether the step of a plan also gives the gradient of x
Sizes = tuple[int, list[int]]  # the batch, and the widths
Plan = dict[str, list[str | None]]  # the arguments of each array's specification
CANDIDATES = 30  # for sizes for which two plans send nearly as little
RARE = {  # without these, a plan is often the best, too
    (reference.ROWS, reference.WHOLE, reference.COLUMNS),
    (reference.COLUMNS, reference.WHOLE, reference.ROWS),
    (reference.COLUMNS, reference.ROWS, reference.ROWS),
    (reference.COLUMNS, reference.ROWS, reference.COLUMNS),
}
MIN_LEAD = 1.02  # from here on a plan's bytes differ from the least
MEASURE = "mlhood.jaxlab.cluster.plans:measure_all"
SPECS = ((), (None,), (None, None), ("devices",), ("devices", None), (None, "devices"))
SPARE_WORK = 1.05  # times its share
ELEMENTWISE = 8  # operations on each element of each h, forward and backward; measured, 4 at most


def _draw_sizes(submission: Submission) -> list[Sizes]:
    """Draw batches and widths, of which each ratio is as likely as its inverse: any of them may be the largest.

    Half of them are drawn until another plan sends nearly as little: there, every term has to be counted right. For two
    of these, the best plan has one of the kinds in `RARE`.
    """
    input_gradient = submission.parameters.input_gradient

    def size(low: int, high: int) -> int:
        return 8 * round(2 ** submission.rng.uniform(math.log2(low / 8), math.log2(high / 8)))

    def draw(layers: int) -> Sizes:
        return size(16, 1024), [size(32, 1024) for _ in range(layers + 1)]

    def draw_close(layers: int) -> Sizes:
        drawn = [draw(layers) for _ in range(CANDIDATES)]
        rare = [sizes for sizes in drawn if layers == 4 and RARE & set(_best(*sizes, input_gradient)[0])]
        return min(rare or drawn, key=lambda sizes: _best(*sizes, input_gradient)[1])

    return [*map(draw, (2, 3, 3, 3, 3, 4)), *map(draw_close, (2, 3, 3, 3, 4, 4))]


def _best(batch: int, widths: list[int], input_gradient: bool) -> tuple[tuple[reference.Kind, ...], float]:
    """Return the best plan's layers, and how much the next plan sends, from `MIN_LEAD` times as much on."""
    (least, best), *others = reference.priced(batch, widths, input_gradient=input_gradient)
    return best, next(sent for sent, _ in others if sent >= MIN_LEAD * least) / least


def _plans(submission: Submission) -> list[Planned]:
    """Return what the student's plans, data parallelism and the course's plans send, as the grader compiles them."""
    sizes, input_gradient = _draw_sizes(submission), submission.parameters.input_gradient
    student = [_plan(submission, *size) for size in sizes]
    course = [
        {name: list(spec) for name, spec in reference.best_plan(*size, input_gradient=input_gradient).items()}
        for size in sizes
    ]
    others = [i for i, plan in enumerate(student) if plan != course[i]]  # most of the student's are the course's
    cases = [(plan, *size) for plan, size in zip(course, sizes, strict=True)]
    try:
        best = oracle(submission).call(MEASURE, cases, input_gradient)
        measured = oracle(submission).call(MEASURE, [(student[i], *sizes[i]) for i in others], input_gradient)
    except IsolatedCallError as failure:
        raise expect.CheckSkipped(f"this machine cannot compile the plans: {failure}") from None
    costs = dict(enumerate(best)) | dict(zip(others, measured, strict=True))
    return [
        Planned(batch, tuple(widths), costs[i][0], best[i][0], costs[i][1], input_gradient)
        for i, (batch, widths) in enumerate(sizes)
    ]


@dataclass(frozen=True)
class Planned:
    """What a device sends by the student's plan and by the course's, and the student's flops on each device.

    Args:
        batch: Rows of x.
        widths: Columns of x and of each layer's result.
        sent: Bytes, by the student's plan.
        course: Bytes, by the course's.
        flops: Of each device, by the student's.
        input_gradient: Whether the step also gives the gradient of x.
    """

    batch: int
    widths: tuple[int, ...]
    sent: float
    course: float
    flops: float
    input_gradient: bool

    @property
    def parallel(self) -> float:
        """What a device sends in data parallelism: a ring all-reduce of the float32 gradients of all weights."""
        return 2 * 7 / 8 * 4 * sum(a * b for a, b in itertools.pairwise(self.widths))

    @property
    def given(self) -> str:
        """The case, for the student."""
        return f"batch {self.batch}, widths {self.widths}"

    @property
    def share(self) -> float:
        """A device's part of the operations of the matrix products."""
        products = [2 * self.batch * a * b for a, b in itertools.pairwise(self.widths)]
        return (3 * sum(products) - (0 if self.input_gradient else products[0])) / 8

    @property
    def divided(self) -> bool:
        """Whether each device does no more than its share; elementwise operations may be done by all devices."""
        return self.flops <= SPARE_WORK * self.share + ELEMENTWISE * self.batch * sum(self.widths[1:])


def _plan(submission: Submission, batch: int, widths: list[int]) -> Plan:
    """Return the student's plan in plain data; fail unless it has a specification for each array."""
    with expect.case(f"batch {batch}, widths {tuple(widths)}"):
        names = tuple(f"{kind}{i}" for kind in "wh" for i in range(1, len(widths)))
        plan = submission.probe(PROBES + "plain_plan", "best_plan", batch, widths, keys=names)
        for name in names:
            spec = plan[name]
            known = isinstance(spec, list) and tuple(spec) in SPECS
            what, expected = (
                f"`best_plan` has no usable specification of {name}",
                'P(), P("devices") or P(None, "devices")',
            )
            expect.true(known, what, expected=expected, got=spec)
    return {name: list(plan[name]) for name in names}  # type: ignore[call-overload]


@points(3)
def plans_divide_the_work(submission: Submission) -> None:
    """`best_plan` says for every array how it is sharded, and each device does its share of the work."""
    for plan in submission.once("plans", lambda: _plans(submission)):
        what, expected = "the plan of `best_plan` does not divide the work", f"about {plan.share:,.0f} operations"
        hint = "what is computed from whole arrays only is computed by every device: w or h has to be divided"
        got = f"{plan.flops:,.0f} on each device"
        expect.true(plan.divided, what, expected=expected, got=got, given=plan.given, hint=hint)


def _check_sent(submission: Submission, most: Callable[[Planned], float], hint: str) -> None:
    """Check that each device sends no more than a limit, by plans that divide the work."""
    plans_divide_the_work.function(submission)
    for plan in submission.once("plans", lambda: _plans(submission)):
        what, got = "the plan of `best_plan` moves more bytes", f"{plan.sent:,.0f} bytes sent by each device"
        expected = f"at most {most(plan):,.0f}; data parallel it is {plan.parallel:,.0f}"
        expect.true(plan.sent <= most(plan), what, expected=expected, got=got, given=plan.given, hint=hint)


@points(4)
def plans_are_no_worse_than_data_parallelism(submission: Submission) -> None:
    """`best_plan` never moves more bytes than data parallelism, and fewer where weights are large."""
    _check_sent(submission, lambda plan: plan.parallel, "data parallelism is one of the plans to choose from")
    what = "`best_plan` is data parallelism whatever the sizes"
    hint = "what is larger, the weights or what lies between?"
    fewer = any(plan.sent < plan.parallel for plan in submission.once("plans", lambda: _plans(submission)))
    expect.true(fewer, what, expected="fewer bytes in one of the cases", hint=hint)


@points(5)
def plans_come_near_the_course(submission: Submission) -> None:
    """`best_plan` moves at most half more bytes than the course's own plan."""
    hint = "a plan may treat each layer differently: think of what each one communicates"
    _check_sent(submission, lambda plan: 1.5 * plan.course, hint)


@points(6)
def plans_reach_the_course(submission: Submission) -> None:
    """`best_plan` moves no more bytes than the course's own plan."""
    plans = submission.once("plans", lambda: _plans(submission))
    if all(plan.divided for plan in plans):
        sent, course = (sum(getattr(plan, name) for plan in plans) for name in ("sent", "course"))
        submission.reach(sent, course=course, smaller_is_better=True)
    hint = "add up what every kind of layer sends, forward and backward, for inputs by rows, by columns and whole"
    _check_sent(submission, lambda plan: 1.001 * plan.course, hint)


P5_14 = Task(
    "P5.14",
    "The fewest bytes",
    libraries=PLANS,
    varies=(INPUT_GRADIENT,),
    minutes=100,
    builds_on=("P5.10", "P5.11", "P5.12"),
    leaderboard="bytes sent by each device",
)
