"""Checks of P5.10 to P5.13: sharded batches and weights, the bytes of a ring, and a script for two processes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.libraries import JAX
from mlhood.grading.projects.p5.programs import oracle, run_programs
from mlhood.grading.rpc.limited import IsolatedCallError
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p5.probes_cluster:"
GRADIENT = "mlhood.grading.projects.reference_runs:step_gradient"
DEVICES = (4, 8)
LAYERS = (  # of x, w1, b1, w2 and b2; divisible by the number of devices
    ((4, 8), (8, 16), (16,), (16, 12), (12,)),
    ((6, 4), (4, 24), (24,), (24, 16), (16,)),
)
RATE = 0.1  # of the weights' decay
# what is made of the gradient of the whole batch, on every device
GRADIENT_AS = Parameter("gradient_as", ("gradient", "decay"))
ACTIVATION = Parameter("activation", ("relu", "tanh"))
RING_COUNTS = Parameter("ring_counts", ("each", "all"))
SHORTEST, TIMES, RUN_SECONDS = 90.0, 20.0, 500.0
"""The time limit of the script is a multiple of what the grader takes for the gradient just before it, so that no other
load makes it too short; it is at least SHORTEST, and at most RUN_SECONDS."""
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
    """`split_batch` shards the first axis of a batch along "data"."""
    hint = "jax.device_put takes an array and a sharding: a NamedSharding of the mesh and a PartitionSpec"
    for shape, devices in (((8, 3), 4), ((12, 1, 4), 4), ((16,), 8)):
        x = submission.normal(*shape)
        with expect.case(f"x {shape}, {devices} devices", hint):
            shards = _shards(submission.probe(PROBES + "split", "split_batch", x, devices))
            parts = dict(enumerate(np.split(x, devices)))
            right = shards.keys() == parts.keys() and all(
                expect.holds(expect.close, shards[i], parts[i], "") for i in parts
            )
            what = "the devices hold the wrong shards after `split_batch`"
            expected = f"{shape[0] // devices} rows each, and all other axes"
            got = {number: getattr(array, "shape", "no array") for number, array in shards.items()}
            expect.true(right, what, expected=expected, got=f"the shapes on the devices are {got}")


def _shards(value: object) -> dict[int, Any]:
    """Return what each device holds, by its number."""
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2] if isinstance(value, list) else []
    shards = {number: array for number, array in pairs if isinstance(number, int)}
    expect.true(bool(shards), "no device holds anything", got=value)
    return shards


@dataclass(frozen=True)
class MeshCase:
    """A run of what a function of the notebook returns for a mesh of devices.

    Args:
        report: Of `probes_cluster.on_mesh`.
        arguments: Of the function.
        want: The right result, a tree.
        devices: Of the mesh.
        flops: Of the matrix products, on all devices together.
        given: The case in words.
    """

    report: dict[str, Any]
    arguments: list[Any]
    want: Any
    devices: int
    flops: int
    given: str

    def check_result(self, name: str, hint: str) -> None:
        """Fail unless each device that holds a result has all of it, and the arguments are kept."""
        kept, more = self.report["donated"] is False, "what is donated is gone, and is the caller's to use again"
        expect.true(kept, f"`{name}` donates its arguments", expected="they are kept", given=self.given, hint=more)
        with expect.case(self.given, hint):
            values, what = self.report["values"], f"the result of `{name}`"
            wanted = reference.leaves(self.want)
            expect.equal(len(values), len(wanted), f"the wrong number of arrays in {what}")
            for value, want in zip(values, wanted, strict=True):
                for array in _shards(value).values():
                    divided = isinstance(array, np.ndarray) and array.ndim == want.ndim and array.size < want.size
                    more = "the result has a sharding, too: out_shardings, or out_specs"
                    expect.true(not divided, f"{what} is divided among the devices", hint=more)
                    expect.close(array, want, what, rtol=1e-3, atol=1e-4, dtype=np.float32)

    def check_program(self, submission: Submission, name: str, right: Callable[[list[str]], bool], hint: str) -> None:
        """Run the program: it communicates as it should, and its work is divided among the devices.

        A device adds its share of the elementwise operations: measured in all, a third of those of the products.
        """
        with expect.case(self.given, hint):
            (report,) = run_programs(submission, (self.report["program"], [reference.leaves(self.arguments)]))
            (results,), kinds = report["results"], report["collectives"]
            for got, want in zip(results, reference.leaves(self.want), strict=False):
                expect.resembles(got, want, f"what the compiled `{name}` returns")
            got = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "no collective"
            what = f"the devices of `{name}` communicate more or less than needed"
            expect.true(right(kinds), what, expected="an all-reduce", got=got)
            what, expected = "each device does all of the work", f"about {self.flops / self.devices:,.0f} operations"
            share = report["flops"] <= MOST_OF_A_DEVICE * self.flops
            expect.true(share, what, expected=f"{expected} on each device", got=f"{report['flops']:,.0f}")


def _on_mesh(
    submission: Submission, name: str, arguments: list[Any], want: Any, devices: int, flops: int, given: str
) -> MeshCase:
    """Call a function of the notebook for a mesh of devices, and what it returns with these arguments."""
    with expect.case(given, MEAN_HINT if name == "parallel_gradient" else None):
        keys = ("values", "program", "donated")
        report = submission.probe(PROBES + "on_mesh", name, arguments, devices, keys=keys)
    return MeshCase(dict(report), arguments, want, devices, flops, given)


def _gradients(submission: Submission) -> list[MeshCase]:
    """Return runs of the student's `parallel_gradient`, with the right gradients."""

    def case(devices: int, batch: int) -> MeshCase:
        params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
        x, y = submission.normal(batch, 4), submission.normal(batch, 3)
        decay = RATE if submission.parameters.gradient_as == "decay" else 0
        gradient = reference.square_loss_gradient(params, x, y)
        want = {name: part + decay * params[name] for name, part in gradient.items()}
        given = f"a batch of {len(x)}, not divided yet, and {devices} devices"
        flops = 4 * batch * params["w"].size
        return _on_mesh(submission, "parallel_gradient", [params, x, y], want, devices, flops, given)

    return submission.once("gradient", lambda: [case(*pair) for pair in zip(DEVICES, (8, 24), strict=True)])


@points(1)
def gradients_are_of_the_whole_batch(submission: Submission) -> None:
    """`parallel_gradient` gives every device the {{ "gradient" if gradient_as == "gradient" else "result" }} of the mean loss over the whole batch."""  # noqa: E501
    for case in _gradients(submission):
        case.check_result("parallel_gradient", MEAN_HINT)
        counts = [len(value) for value in case.report["values"]]
        what = "not every device has the whole gradient of `parallel_gradient`"
        expect.equal(counts, [case.devices] * len(case.want), what, given=case.given, hint=MEAN_HINT)


@points(1)
def devices_add_up_their_gradients(submission: Submission) -> None:
    """`parallel_gradient` divides the batch among the devices, and compiles to a program with an all-reduce."""
    hint = 'shard the batch along "data", by in_shardings or in_specs, so that each device has only its part'
    for case in _gradients(submission):
        case.check_program(submission, "parallel_gradient", lambda kinds: "all-reduce" in kinds, hint)


P5_10 = Task(
    "P5.10",
    "Data parallelism",
    libraries=JAX,
    varies=(GRADIENT_AS,),
    minutes=15,
    builds_on=("P5.8",),
)


def _layers(submission: Submission) -> list[MeshCase]:
    """Return runs of the student's `two_layers`, with the right results."""

    def case(devices: int, shapes: tuple[tuple[int, ...], ...]) -> MeshCase:
        x, w1, b1, w2, b2 = arrays = [submission.normal(*shape) for shape in shapes]
        hidden = x @ w1 + b1
        hidden = np.tanh(hidden) if submission.parameters.activation == "tanh" else np.maximum(hidden, 0)
        given = f"x {x.shape}, w1 {w1.shape}, w2 {w2.shape}, {devices} devices"
        flops = 2 * len(x) * (w1.size + w2.size)
        return _on_mesh(submission, "two_layers", arrays, hidden @ w2 + b2, devices, flops, given)

    return submission.once("layers", lambda: [case(*pair) for pair in zip(DEVICES, LAYERS, strict=True)])


@points(1)
def layers_are_right_in_parts(submission: Submission) -> None:
    """`two_layers` returns {{ activation }}(x @ w1 + b1) @ w2 + b2, the same on every device."""
    for case in _layers(submission):
        case.check_result("two_layers", "the bias of the second layer is added once, and not by every device")


@points(1)
def one_sum_joins_the_parts(submission: Submission) -> None:
    """`two_layers` divides the hidden units, and compiles to a program whose only communication is one all-reduce."""
    hint = (
        "the arguments come undivided: the function shards them. Each device computes some of the hidden values, and "
        "from these a partial sum of every result: which parts of w1, b1 and w2 does it need?"
    )
    for case in _layers(submission):
        case.check_program(submission, "two_layers", lambda kinds: kinds == ["all-reduce"], hint)


P5_11 = Task(
    "P5.11",
    "Tensor parallelism",
    libraries=JAX,
    varies=(ACTIVATION,),
    minutes=15,
    builds_on=("P5.10",),
)


@compared(
    1,
    "all_reduce_bytes",
    hint="the gradient has the shapes and dtypes of the parameters: how many bytes has an element?",
    call=lambda submission, params: submission.probe(PROBES + "counted", "all_reduce_bytes", params),
)
def gradient_bytes_are_counted(submission: Submission) -> Iterator[Arguments]:
    """`all_reduce_bytes` counts the bytes of a gradient, of whatever dtype and in whatever tree."""
    kinds = ("float32", "float32"), ("float32", "float16"), ("int8", "float32"), ("float16", "float16")
    for first, other in kinds:
        fc, bias, conv = (submission.rng.integers(2, 9, axes).tolist() for axes in (2, 1, 4))
        number = np.asarray(submission.rng.random(), first)  # a single number is an array, too
        head = [submission.normal(*fc).astype(first), {"bias": submission.normal(*bias).astype(other)}]
        yield ({"conv": {"weight": submission.normal(*conv).astype(other)}, "fc": head, "scale": number},)


@compared(
    1,
    "ring_bytes",
    hint="how many steps has the ring, and how much does a device send in each? There is no step with one device",
    view=lambda size: expect.number(size, "what `ring_bytes` returns"),
)
def rings_carry_their_bytes(submission: Submission) -> Iterator[Arguments]:
    """`ring_bytes` is the number of bytes that {{ "all devices of a ring send" if ring_counts == "all" else "each device of a ring sends" }}."""  # noqa: E501
    for devices, more in ((2, 0), (int(submission.rng.integers(3, 9)), 1), (64, 0), (1, 0)):
        yield devices * int(submission.rng.integers(100, 1000)) + more, devices


@compared(
    1,
    "step_seconds",
    hint="a share of the computation, then the steps of the ring: each has its latency, and its bytes to send",
    view=lambda seconds: expect.number(seconds, "what `step_seconds` returns"),
)
def steps_take_compute_and_ring(submission: Submission) -> Iterator[Arguments]:
    """`step_seconds` adds a device's share of the computation to the latencies and transfers of the ring."""
    for devices in (1, 2, int(submission.rng.integers(3, 9)), 128):
        compute, size = (int(part) for part in submission.rng.integers(1, 30, 2))
        bandwidth, latency = (float(2.0**-part) for part in submission.rng.integers(1, 8, 2))
        yield compute, size, devices, bandwidth, latency


P5_12 = Task(
    "P5.12",
    "The price of a ring",
    libraries=JAX,
    varies=(RING_COUNTS,),
    minutes=15,
    builds_on=("P5.10",),
)


def _final_error(output: str) -> str:
    """Return the exception that ended the script, after which JAX prints more lines; else what the launcher says."""
    return (ERROR.findall(output) or LAUNCHER_ERROR.findall(output) or [output.strip()[-250:]])[-1]


@points(2)
def two_processes_give_the_gradient_of_one(submission: Submission) -> None:
    """`cluster_step.py` computes on two processes, each on its part of the batch, the gradient that one computes."""
    submission.file(SCRIPT)
    seed = int(submission.rng.integers(1, 10_000))
    hint = (
        "the mean over the whole batch, of which each process gives its own part (jax.make_array_from_callback); the "
        "check puts NaN into the rows that belong to the others"
    )
    with expect.case(f"mlhood cluster -n 2 -- python {SCRIPT} {seed} OUT", hint):
        out = str(submission.scratch / f"step-{seed}.npz")
        start = time.monotonic()
        try:
            want = oracle(submission).call(GRADIENT, seed)
        except IsolatedCallError as failure:
            raise expect.CheckSkipped(f"this machine cannot compute the gradient: {failure}") from None
        limit = min(max(SHORTEST, TIMES * (time.monotonic() - start)), RUN_SECONDS)
        answer = submission.call(PROBES + "run_on_cluster", SCRIPT, seed, out, limit)
        report = expect.mapping(answer, RUN, "the run of the script")
        error = _final_error(f"{report['output']}")
        first = "initialize() comes first, before anything that asks JAX for devices"
        by_hand = f"run the script in a terminal, with a file for OUT, to see what each process prints; {first}"
        expect.true(report["code"] == 0, "the script fails on two processes", got=error, hint=by_hand)
        what, expected = "the two processes are not one cluster", "a process count of 2 in each of them"
        expect.true(report["processes"] == [2, 2], what, expected=expected, got=str(report["processes"]), hint=first)
        expect.true(isinstance(report["arrays"], dict), "the script has not written OUT", hint=by_hand)
        arrays = expect.mapping(report["arrays"], tuple(want), "OUT")
        for name, right in want.items():
            expect.close(arrays[name], right, f'OUT["{name}"]', rtol=1e-3, atol=1e-4, dtype=np.float32)
        what, expected = "a process computes the loss of the whole batch", "that of its own part of the batch"
        placed = "place the global array along the mesh, and give it to the gradient as it is"
        expect.true(report["gathered"] is False, what, expected=expected, hint=placed)


P5_13 = Task(
    "P5.13",
    "Two processes",
    seconds=RUN_SECONDS + 30,
    libraries=JAX,
    minutes=15,
    builds_on=("P5.10",),
)
