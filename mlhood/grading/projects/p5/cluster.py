"""Checks of P5.10: sharded batches and weights, the data that is communicated, and a script for two processes."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.libraries import JAX, PLANS
from mlhood.grading.projects.p5.programs import run_programs
from mlhood.grading.projects.p5.training import check_tree
from mlhood.grading.rpc.limited import IsolatedCallError, IsolatedProcess
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p5.probes_cluster:"
GRADIENT = "mlhood.grading.projects.reference_runs:step_gradient"
DEVICES = (4, 8)
LAYERS = (  # of x, w1, b1, w2 and b2; divisible by the number of devices
    ((4, 8), (8, 16), (16,), (16, 12), (12,)),
    ((6, 4), (4, 24), (24,), (24, 16), (16,)),
)
RATE = 0.1  # of the weights' decay
SPLIT_AXIS = Parameter("split_axis", (0, -1))
# what is made of the gradient of the whole batch, on every device
GRADIENT_AS = Parameter("gradient_as", ("gradient", "decay"))
ACTIVATION = Parameter("activation", ("relu", "tanh"))
GRADIENT_TYPE = Parameter("gradient_type", ("own", "float32"))  # in which it is sent
RING_COUNTS = Parameter("ring_counts", ("each", "all"))
STEP_OPTION = Parameter("step_option", ("", "serial"))  # one more argument of `step_seconds`
INPUT_GRADIENT = Parameter("input_gradient", (False, True))  # whether the step of a plan also gives the gradient of x
Sizes = tuple[int, list[int]]  # the batch, and the widths
Plan = dict[str, list[str | None]]  # the arguments of each array's specification
SHORTEST, TIMES, RUN_SECONDS = 90.0, 20.0, 500.0
"""The time limit of the script is a multiple of what the grader takes for the gradient just before it, so that no other
load makes it too short; it is at least SHORTEST, and at most RUN_SECONDS."""
CANDIDATES = 30  # for sizes for which two plans send nearly as little
MIN_LEAD = 1.02  # what a plan sends is told apart from the least from here on
MEASURE = "mlhood.jaxlab.cluster.plans:measure_all"
PLAN_MEMORY = 3 << 30
SPECS = ((), (None,), (None, None), ("devices",), ("devices", None), (None, "devices"))
SPARE_WORK = 1.05  # times its share
ELEMENTWISE = 8  # operations on each element of each h, forward and backward; measured, 4 at most
MOST_OF_A_DEVICE = 0.6  # of the operations of all devices' matrix products
SCRIPT = "cluster_step.py"
RUN = ("code", "output", "processes", "gathered", "arrays")  # what is reported of it
LAUNCHER_ERROR = re.compile(r"ClusterError: (?:cluster: )?(.*)$", re.MULTILINE)
ERROR = re.compile(r"^ *\[\d+\] ([\w.]+(?:Error|Exception)\b.*)$", re.MULTILINE)
MEAN_HINT = (
    "the mean over the whole batch. In jax.shard_map: for replicated parameters, jax.grad has summed over the devices "
    "already, and a pmean after it changes nothing: where does the mean have to be?"
)


@points(1)
def batches_are_split(submission: Submission) -> None:
    """`split_batch` shards the {{ "first" if split_axis == 0 else "last" }} axis of a batch along "data"."""
    hint = "jax.device_put takes an array and a sharding: a NamedSharding of the mesh and a PartitionSpec"
    axis = submission.parameters.split_axis
    for (length, *others), devices in (((8, 3), 4), ((12, 1, 4), 4), ((16,), 8)):
        shape = (length, *others) if axis == 0 else (*others, length)
        x = submission.normal(*shape)
        with expect.case(f"x {shape}, {devices} devices", hint):
            shards = _shards(submission.call(PROBES + "split", submission.value("split_batch"), x, devices))
            parts = dict(enumerate(np.split(x, devices, axis)))
            right = shards.keys() == parts.keys() and all(
                expect.holds(expect.close, shards[i], parts[i], "") for i in parts
            )
            part = "rows" if axis == 0 else "indices of the last axis"
            what = "the devices hold the wrong shards after `split_batch`"
            expected = f"{length // devices} {part} each, and all other axes"
            got = {number: getattr(array, "shape", "no array") for number, array in shards.items()}
            expect.true(right, what, expected=expected, got=f"the shapes on the devices are {got}")


def _shards(value: object) -> dict[int, Any]:
    """Return what each device holds, by its number."""
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2] if isinstance(value, list) else []
    shards = {number: array for number, array in pairs if isinstance(number, int)}
    expect.true(bool(shards), "no device holds anything", got=value)
    return shards


@dataclass(frozen=True)
class Case:
    """A run of a function on several devices: the report on it, its arguments, the right result, and a description."""

    report: dict[str, Any]
    arguments: list[Any]
    want: Any
    devices: int
    given: str

    def check_shards(self, value: object, want: np.ndarray, what: str, hint: str) -> int:
        """Fail unless each device that holds a result has all of it; return how many there are."""
        shards = _shards(value)
        for array in shards.values():
            divided = isinstance(array, np.ndarray) and array.ndim == want.ndim and array.size < want.size
            more = "the result has a sharding, too: out_shardings, or out_specs"
            expect.true(not divided, f"{what} is divided among the devices", given=self.given, hint=more)
            expect.close(array, want, what, rtol=1e-3, atol=1e-4, dtype=np.float32, given=self.given, hint=hint)
        return len(shards)


def _gradients(submission: Submission) -> list[Case]:
    """Return the reports on the student's `parallel_gradient`, and the right gradients."""
    return [_gradient(submission, devices, batch) for devices, batch in zip(DEVICES, (8, 24), strict=True)]


def _gradient(submission: Submission, devices: int, batch: int) -> Case:
    params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
    x, y = submission.normal(batch, 4), submission.normal(batch, 3)
    decay = RATE if submission.parameters.gradient_as == "decay" else 0
    gradient = reference.square_loss_gradient(params, x, y)
    want = {name: part + decay * params[name] for name, part in gradient.items()}
    given = f"a batch of {len(x)}, not divided yet, and {devices} devices"
    with expect.case(given, MEAN_HINT):
        answer = submission.call(PROBES + "gradient", submission.value("parallel_gradient"), params, x, y, devices)
        report = expect.mapping(answer, ("value", "program"), "what `parallel_gradient` returns")
    return Case(dict(report), [params, x, y], want, devices, given)


@points(1)
def gradients_are_of_the_whole_batch(submission: Submission) -> None:
    """`parallel_gradient` gives every device the {{ "gradient" if gradient_as == "gradient" else "result" }} of the mean loss over the whole batch."""  # noqa: E501
    for case in submission.once("gradient", lambda: _gradients(submission)):
        with expect.case(case.given, MEAN_HINT):
            value = expect.mapping(case.report["value"], tuple(case.want), "what `parallel_gradient` returns")
            for name, want in case.want.items():
                what = f'the gradient["{name}"] of `parallel_gradient`'
                count = case.check_shards(value[name], want, what, MEAN_HINT)
                expect.equal(count, case.devices, "not every device has the whole gradient of `parallel_gradient`")


@points(1)
def devices_add_up_their_gradients(submission: Submission) -> None:
    """`parallel_gradient` divides the batch among the devices, and compiles to a program with an all-reduce."""
    hint = 'shard the batch along "data", by in_shardings or in_specs, so that each device has only its part'
    for case, program in _run(submission, submission.once("gradient", lambda: _gradients(submission))):
        with expect.case(case.given, hint):
            for got, want in zip(program["results"][0], reference.leaves(case.want), strict=False):
                expect.resembles(got, want, "the gradient of the compiled program", hint=MEAN_HINT)
            collectives = program["collectives"]
            what, got = "there is no all-reduce in the program of `parallel_gradient`", _shown(collectives)
            expect.true("all-reduce" in collectives, what, expected="all-reduce", got=got)
            _check_divided(program, 4 * (8 if case.devices == DEVICES[0] else 24) * case.want["w"].size, case.devices)


def _run(submission: Submission, cases: list[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Run the programs of these cases on their arguments: yield each case with the report on its program."""
    programs = [(case.report["program"], [reference.leaves(case.arguments)]) for case in cases]
    return zip(cases, run_programs(submission, *programs), strict=True)


def _check_divided(program: dict[str, Any], flops: int, devices: int) -> None:
    """Check that the work is divided among the devices: a device that does all of it has no use for a sum.

    Args:
        program: The compiled program.
        flops: Of the matrix products, on all devices together. A device adds its share of the elementwise operations:
            measured in all, a third of them.
        devices: How many there are.
    """
    got = program["flops"]
    what, expected = "each device does all of the work", f"about {flops / devices:,.0f} operations on each device"
    expect.true(got <= MOST_OF_A_DEVICE * flops, what, expected=expected, got=f"{got:,.0f}")


def _shown(collectives: list[str]) -> str:
    return ", ".join(f"{collectives.count(name)} {name}" for name in dict.fromkeys(collectives)) or "no collective"


def _layers(submission: Submission) -> list[Case]:
    """Return the reports on the student's `two_layers`, and the right results."""
    return [_two_layers(submission, *case) for case in zip(DEVICES, LAYERS, strict=True)]


def _two_layers(submission: Submission, devices: int, shapes: tuple[tuple[int, ...], ...]) -> Case:
    x, w1, b1, w2, b2 = arrays = [submission.normal(*shape) for shape in shapes]
    hidden = x @ w1 + b1
    hidden = np.tanh(hidden) if submission.parameters.activation == "tanh" else np.maximum(hidden, 0)
    want = hidden @ w2 + b2
    given = f"x {x.shape}, w1 {w1.shape}, w2 {w2.shape}, {devices} devices"
    with expect.case(given):
        answer = submission.call(PROBES + "layers", submission.value("two_layers"), arrays, devices)
        report = expect.mapping(answer, ("value", "program"), "what `two_layers` returns")
    return Case(dict(report), arrays, want, devices, given)


@points(1)
def layers_are_right_in_parts(submission: Submission) -> None:
    """`two_layers` returns {{ activation }}(x @ w1 + b1) @ w2 + b2, the same on every device."""
    for case in submission.once("layers", lambda: _layers(submission)):
        hint = "the bias of the second layer is added once, and not by every device"
        case.check_shards(case.report["value"], case.want, "the result of `two_layers`", hint)


@points(1)
def one_sum_joins_the_parts(submission: Submission) -> None:
    """`two_layers` divides the hidden units, and compiles to a program whose only communication is one all-reduce."""
    hint = (
        "the arguments come undivided: the function shards them. Each device computes some of the hidden values, and "
        "from these a partial sum of every result: which parts of w1, b1 and w2 does it need?"
    )
    cases = _run(submission, submission.once("layers", lambda: _layers(submission)))
    for (case, program), shapes in zip(cases, LAYERS, strict=True):
        with expect.case(case.given, hint):
            ((value, *_),) = program["results"]
            expect.resembles(value, case.want, "what the compiled `two_layers` returns")
            collectives = program["collectives"]
            what, got = "the devices of `two_layers` communicate more or less than needed", _shown(collectives)
            expect.true(collectives == ["all-reduce"], what, expected="1 all-reduce", got=got)
            flops = sum(2 * shapes[0][0] * math.prod(w) for w in (shapes[1], shapes[3]))
            _check_divided(program, flops, case.devices)


@points(1)
def gradient_bytes_are_counted(submission: Submission) -> None:
    """`all_reduce_bytes` counts the bytes of a gradient, of whatever dtype and in whatever tree."""
    rng = submission.rng
    sent_as = submission.parameters.gradient_type
    hint = "the gradient has the shapes and dtypes of the parameters: how many bytes has an element?"
    if sent_as != "own":
        hint = "the gradient has the shapes of the parameters: in which type is it sent, and how many bytes has that?"
    cases = [(np.float32, np.float32), (np.float32, np.float16), (np.int8, np.float32)]
    for first, dtype in cases if sent_as == "own" else [*cases, (np.float16, np.float16)]:
        sizes = [tuple(int(size) for size in rng.integers(2, 9, axes)) for axes in (2, 1, 4)]
        types = first, dtype, dtype
        arrays = [submission.normal(*size).astype(kind) for size, kind in zip(sizes, types, strict=True)]
        kind = np.dtype(first)
        with expect.case(f"{np.dtype(dtype)} arrays {sizes[1]} and {sizes[2]}, {kind} arrays {sizes[0]} and ()"):
            arrays.append(np.asarray(submission.rng.random(), first))  # a single number is an array, too
            params = {"conv": {"weight": arrays[2]}, "fc": [arrays[0], {"bias": arrays[1]}], "scale": arrays[3]}
            want = sum(array.size * (array.itemsize if sent_as == "own" else 4) for array in arrays)
            answer = submission.call(PROBES + "counted", submission.value("all_reduce_bytes"), params)
            got = expect.integer(answer, "what `all_reduce_bytes` returns")
            expect.close_number(got, want, "`all_reduce_bytes` is wrong", hint=hint)


@compared(
    1,
    "ring_bytes",
    hint="how many steps has the ring, and how much does a device send in each? There is no step with one device",
    view=lambda size: expect.number(size, "what `ring_bytes` returns"),
)
def rings_carry_their_bytes(submission: Submission) -> Iterator[Arguments]:
    """`ring_bytes` is the number of bytes that {{ "all devices of a ring send" if ring_counts == "all" else "each device of a ring sends" }}."""  # noqa: E501
    for devices in (2, int(submission.rng.integers(3, 9)), 64, 1):
        yield devices * int(submission.rng.integers(100, 1000)), devices


@compared(
    1,
    "step_seconds",
    hint="a share of the computation, then the steps of the ring: each has its latency, and its bytes to send",
    view=lambda seconds: expect.number(seconds, "what `step_seconds` returns"),
)
def steps_take_compute_and_ring(submission: Submission) -> Iterator[Arguments]:
    """`step_seconds` adds a device's share of the computation to the latencies and transfers of the ring."""
    for devices, by_default in ((1, False), (2, True), (int(submission.rng.integers(3, 9)), False), (128, False)):
        compute, size = (int(part) for part in submission.rng.integers(1, 30, 2))
        bandwidth, latency = (float(2.0**-part) for part in submission.rng.integers(1, 8, 2))
        serial = [compute / 4] if submission.parameters.step_option and not by_default else []
        yield compute, size, devices, bandwidth, latency, *serial


def _final_error(output: str) -> str:
    """Return the exception that ended the script, after which JAX prints more lines; else what the launcher says."""
    return (ERROR.findall(output) or LAUNCHER_ERROR.findall(output) or [output.strip()[-250:]])[-1]


@points(2)
def two_processes_give_the_gradient_of_one(submission: Submission) -> None:
    """`cluster_step.py` computes on two processes, each on its part of the batch, the gradient that one computes."""
    submission.file(SCRIPT)
    seed = int(submission.rng.integers(1, 10_000))
    hint = (
        "a global array is made of the parts of all processes (jax.make_array_from_callback), and each process gives "
        "its own; the check puts NaN into the rows that belong to the others"
    )
    with expect.case(f"mlhood cluster -n 2 -- python {SCRIPT} {seed} OUT", hint):
        out = str(submission.scratch / f"step-{seed}.npz")
        start = time.monotonic()
        try:
            want = _oracle(submission).call(GRADIENT, seed)
        except IsolatedCallError as failure:
            raise expect.CheckSkipped(f"this machine cannot compute the gradient: {failure}") from None
        limit = min(max(SHORTEST, TIMES * (time.monotonic() - start)), RUN_SECONDS)
        answer = submission.call(PROBES + "run_on_cluster", SCRIPT, seed, out, limit)
        report = expect.mapping(answer, RUN, "the run of the script")
        error = _final_error(f"{report['output']}")
        expect.true(report["code"] == 0, "the script fails on two processes", got=error)
        what, expected = "the two processes are not one cluster", "a process count of 2 in each of them"
        expect.true(report["processes"] == [2, 2], what, expected=expected, got=str(report["processes"]))
        expect.true(isinstance(report["arrays"], dict), "the script has not written OUT")
        check_tree(report["arrays"], want, "OUT")
        what, expected = "a process computes the loss of the whole batch", "that of its own part of the batch"
        placed = "place the global array along the mesh, and give it to the gradient as it is"
        expect.true(report["gathered"] is False, what, expected=expected, hint=placed)


def _oracle(submission: Submission) -> IsolatedProcess:
    """Return a process with JAX that runs no program of the submission."""
    return submission.session.kept.setdefault(GRADIENT, IsolatedProcess(RUN_SECONDS, PLAN_MEMORY))


def _draw_sizes(submission: Submission) -> list[Sizes]:
    """Draw batches and widths, of which each ratio is as likely as its inverse: any of them may be the largest.

    Half of them are drawn until another plan sends nearly as little: there, every term has to be counted right.
    """
    input_gradient = submission.parameters.input_gradient

    def size(low: int, high: int) -> int:
        return 8 * round(2 ** submission.rng.uniform(math.log2(low / 8), math.log2(high / 8)))

    def draw(layers: int) -> Sizes:
        return size(16, 1024), [size(32, 1024) for _ in range(layers + 1)]

    layers = submission.rng.permutation([2, 2, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4]).tolist()
    close = [
        min((draw(count) for _ in range(CANDIDATES)), key=lambda sizes: _lead(*sizes, input_gradient=input_gradient))
        for count in layers[6:]
    ]
    return [*map(draw, layers[:6]), *close]


def _lead(batch: int, widths: list[int], *, input_gradient: bool) -> float:
    """Return how many times the least the next plan sends, of those that send at least `MIN_LEAD` times as much."""
    choices = itertools.product(reference.LAYOUTS, repeat=len(widths) - 1)
    least, *others = sorted(
        reference.elements_sent(kinds, batch, widths, input_gradient=input_gradient) for kinds in choices
    )
    return next(sent for sent in others if sent >= MIN_LEAD * least) / least


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
        best = _oracle(submission).call(MEASURE, cases, input_gradient)
        measured = _oracle(submission).call(MEASURE, [(student[i], *sizes[i]) for i in others], input_gradient)
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
        answer = submission.call(PROBES + "plain_plan", submission.value("best_plan"), batch, widths)
        names = tuple(f"{kind}{i}" for kind in "wh" for i in range(1, len(widths)))
        plan = expect.mapping(answer, names, "what `best_plan` returns")
        for name in names:
            spec = plan[name]
            known = isinstance(spec, list) and tuple(spec) in SPECS
            what, expected = (
                f"`best_plan` has no usable specification of {name}",
                'P(), P("devices") or P(None, "devices")',
            )
            expect.true(known, what, expected=expected, got=spec)
    return {name: list(plan[name]) for name in names}  # type: ignore[call-overload]


@points(1)
def plans_divide_the_work(submission: Submission) -> None:
    """`best_plan` says for every array how it is sharded, and each device does its share of the work."""
    for plan in submission.once("plans", lambda: _plans(submission)):
        what, expected = "the plan of `best_plan` does not divide the work", f"about {plan.share:,.0f} operations"
        hint = "what is computed from whole arrays only is computed by every device: w or h has to be divided"
        got = f"{plan.flops:,.0f} on each device"
        expect.true(plan.divided, what, expected=expected, got=got, given=plan.given, hint=hint)


def _check_plans(submission: Submission, factor: float, hint: str) -> None:
    plans_divide_the_work.function(submission)
    for plan in submission.once("plans", lambda: _plans(submission)):
        most = factor * plan.course
        what, got = "the plan of `best_plan` moves more bytes", f"{plan.sent:,.0f} bytes sent by each device"
        expected = f"at most {most:,.0f}; data parallel it is {plan.parallel:,.0f}"
        expect.true(plan.sent <= most, what, expected=expected, got=got, given=plan.given, hint=hint)


@points(1)
def plans_are_no_worse_than_data_parallelism(submission: Submission) -> None:
    """`best_plan` never moves more bytes than data parallelism, and fewer where weights are large."""
    plans_divide_the_work.function(submission)
    plans = submission.once("plans", lambda: _plans(submission))
    for plan in plans:
        what, got = "the plan of `best_plan` moves more bytes than data parallelism", f"{plan.sent:,.0f}"
        expected, hint = f"at most {plan.parallel:,.0f}", "it is one of the plans to choose from"
        expect.true(plan.sent <= plan.parallel, what, expected=expected, got=got, given=plan.given, hint=hint)
    what, hint = (
        "`best_plan` is data parallelism whatever the sizes",
        "what is larger, the weights or what lies between?",
    )
    fewer = any(plan.sent < plan.parallel for plan in plans)
    expect.true(fewer, what, expected="fewer bytes in one of the cases", hint=hint)


@points(2)
def plans_come_near_the_course(submission: Submission) -> None:
    """`best_plan` moves at most half more bytes than the course's own plan."""
    _check_plans(submission, 1.5, "a plan may treat each layer differently: think of what each one communicates")


@points(2)
def plans_reach_the_course(submission: Submission) -> None:
    """`best_plan` moves no more bytes than the course's own plan."""
    plans = submission.once("plans", lambda: _plans(submission))
    if all(plan.divided for plan in plans):
        sent, course = (sum(getattr(plan, name) for plan in plans) for name in ("sent", "course"))
        submission.reach(sent, course=course, smaller_is_better=True)
    _check_plans(submission, 1.001, "add up what every kind of layer sends, forward and backward, for all plans")


TASKS = (
    Task(
        "P5.10",
        "A cluster",
        checks=(
            batches_are_split,
            gradients_are_of_the_whole_batch,
            devices_add_up_their_gradients,
            layers_are_right_in_parts,
            one_sum_joins_the_parts,
            gradient_bytes_are_counted,
            rings_carry_their_bytes,
            two_processes_give_the_gradient_of_one,
            steps_take_compute_and_ring,
        ),
        seconds=RUN_SECONDS + 30,
        libraries=JAX,
        varies=(SPLIT_AXIS, GRADIENT_AS, ACTIVATION, GRADIENT_TYPE, RING_COUNTS, STEP_OPTION),
        minutes=60,
        builds_on=("P5.8",),
    ),
    Task(
        "P5.11",
        "The fewest bytes",
        checks=(
            plans_divide_the_work,
            plans_are_no_worse_than_data_parallelism,
            plans_come_near_the_course,
            plans_reach_the_course,
        ),
        libraries=PLANS,
        varies=(INPUT_GRADIENT,),
        minutes=120,
        builds_on=("P5.10",),
        leaderboard="bytes sent by each device",
    ),
)
