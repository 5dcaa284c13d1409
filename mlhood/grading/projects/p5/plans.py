"""Checks of P5.14: a plan for a network of dense layers, which is open, and graded by the bytes that devices send."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5.libraries import PLANS
from mlhood.grading.projects.p5.programs import oracle
from mlhood.grading.rpc.limited import IsolatedCallError
from mlhood.grading.variants.parameter import Parameter

PLAIN_PLAN = "mlhood.grading.projects.p5.probes_cluster:plain_plan"
MEASURE = "mlhood.jaxlab.cluster.plans:measure_all"
INPUT_GRADIENT = Parameter("input_gradient", (False, True))  # whether the step of a plan also gives the gradient of x
LAYERS = (2, 3, 3, 3, 3, 3, 4, 4)  # of the networks for which plans are always measured
MORE, MEASURED = 60, 6  # networks for which plans are asked for, and measured if they differ from the course's
SPECS = ((), (None,), (None, None), ("devices",), ("devices", None), (None, "devices"))
SPARE_WORK = 1.05  # times its share
ELEMENTWISE = 8  # operations on each element of each h, forward and backward; measured, 4 at most


@dataclass(frozen=True)
class Planned:
    """What a device sends by the student's plan and by the course's, and the student's flops on each device.

    Args:
        batch: Rows of x.
        widths: Columns of x and of each layer's result.
        sent: Bytes, by the student's plan.
        course: Bytes, by the course's.
        flops: Of each device, by the student's.
        share: A device's part of the operations of the matrix products.
    """

    batch: int
    widths: list[int]
    sent: float
    course: float
    flops: float
    share: float

    @property
    def parallel(self) -> float:
        """What a device sends in data parallelism: a ring all-reduce of the float32 gradients of all weights."""
        return 2 * 7 / 8 * 4 * sum(a * b for a, b in itertools.pairwise(self.widths))

    @property
    def given(self) -> str:
        """The case, for the student."""
        return f"batch {self.batch}, widths {tuple(self.widths)}"

    @property
    def divided(self) -> bool:
        """Whether each device does no more than its share; elementwise operations may be done by all devices."""
        return self.flops <= SPARE_WORK * self.share + ELEMENTWISE * self.batch * sum(self.widths[1:])


def _plans(submission: Submission) -> list[Planned]:
    """Return what the student's plans and the course's send, as the grader compiles them.

    A batch is drawn from 64 to 1024: with less, adding up gradients is a part of the work that counts.
    """
    input_gradient, rng = submission.parameters.input_gradient, submission.rng
    layers = [*LAYERS, *rng.integers(2, 5, MORE).tolist()]
    sizes = [[8 * round(2**power) for power in (rng.uniform(3, 7), *rng.uniform(2, 7, count + 1))] for count in layers]
    course = [submission.solution("best_plan", batch, widths, probe=PLAIN_PLAN) for batch, *widths in sizes]
    student = [_plan(submission, batch, widths) for batch, *widths in sizes]
    differ = [i for i, plan in enumerate(student) if plan != course[i]]
    measured = [*range(len(LAYERS)), *[i for i in differ if i >= len(LAYERS)][:MEASURED]]
    cases = [(course[i], sizes[i][0], sizes[i][1:]) for i in measured]
    cases += [(student[i], sizes[i][0], sizes[i][1:]) for i in measured if i in differ]
    try:
        costs = iter(oracle(submission).call(MEASURE, cases, input_gradient))
    except IsolatedCallError as failure:
        raise expect.CheckSkipped(f"this machine cannot compile the plans: {failure}") from None
    best = {i: next(costs) for i in measured}
    plans = []
    for i, (sent, flops) in best.items():
        batch, *widths = sizes[i]
        course_sent, (sent, flops) = sent, next(costs) if i in differ else (sent, flops)
        products = [2 * batch * a * b for a, b in itertools.pairwise(widths)]
        share = (3 * sum(products) - (0 if input_gradient else products[0])) / 8
        plans.append(Planned(batch, widths, sent, course_sent, flops, share))
    return plans


def _plan(submission: Submission, batch: int, widths: list[int]) -> dict[str, list[str | None]]:
    """Return the student's plan in plain data; fail unless it has a specification for each array."""
    with expect.case(f"batch {batch}, widths {tuple(widths)}"):
        names = tuple(f"{kind}{i}" for i in range(1, len(widths)) for kind in "wh")
        plan = submission.probe(PLAIN_PLAN, "best_plan", batch, widths, keys=names)
        for name in names:
            known = isinstance(plan[name], list) and tuple(plan[name]) in SPECS
            what = f"`best_plan` has no usable specification of {name}"
            expect.true(known, what, expected='P(), P("devices") or P(None, "devices")', got=plan[name])
    return {name: list(plan[name]) for name in names}


@points(3, solved=True)
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


@points(4, solved=True)
def plans_are_no_worse_than_data_parallelism(submission: Submission) -> None:
    """`best_plan` never moves more bytes than data parallelism, and fewer where weights are large."""
    _check_sent(submission, lambda plan: plan.parallel, "data parallelism is one of the plans to choose from")
    what = "`best_plan` is data parallelism whatever the sizes"
    hint = "what is larger, the weights or what lies between?"
    fewer = any(plan.sent < plan.parallel for plan in submission.once("plans", lambda: _plans(submission)))
    expect.true(fewer, what, expected="fewer bytes in one of the cases", hint=hint)


@points(5, solved=True)
def plans_come_near_the_course(submission: Submission) -> None:
    """`best_plan` moves at most half more bytes than the course's own plan."""
    hint = "a plan may treat each layer differently: think of what each one communicates"
    _check_sent(submission, lambda plan: 1.5 * plan.course, hint)


@points(6, solved=True)
def plans_reach_the_course(submission: Submission) -> None:
    """`best_plan` moves no more bytes than the course's own plan."""
    plans = submission.once("plans", lambda: _plans(submission))
    if all(plan.divided for plan in plans):
        sent, course = (sum(getattr(plan, name) for plan in plans[: len(LAYERS)]) for name in ("sent", "course"))
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
