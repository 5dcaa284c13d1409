"""Checks of P5.10: sharded batches and weights, the data that is communicated, and a script for two processes."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5.training import check_tree
from mlhood.grading.rpc.limited import IsolatedCallError, run_isolated

PROBES = "mlhood.grading.projects.p5.probes_cluster:"
ORACLE = "mlhood.grading.checks.reference_runs:step_gradient"
DEVICES = 4
BATCH = 8
LAYERS = ((4, 8), (8, 16), (16,), (16, 12), (12,))  # of x, w1, b1, w2 and b2; divisible by the number of devices
MOST_OF_A_DEVICE = 0.6  # of the operations of all devices' matrix products
SCRIPT = "cluster_step.py"
ERROR = re.compile(r"^ *\[\d+\] ([\w.]+(?:Error|Exception)\b.*)$", re.MULTILINE)
MEAN_HINT = (
    'the mean over the whole batch. In jax.shard_map: the gradient of jax.lax.pmean(loss(...), "data"). For replicated '
    "parameters, jax.grad has summed over the devices already, and a pmean after it changes nothing"
)


@points(1)
def batches_are_split(submission: Submission) -> None:
    """`split_batch` shards the first axis of a batch along "data"."""
    hint = 'jax.device_put(x, NamedSharding(mesh, PartitionSpec("data")))'
    for shape in ((8, 3), (12, 1, 4)):
        x, size = submission.normal(*shape), shape[0] // DEVICES
        with expect.case(f"x {shape}, {DEVICES} devices", hint):
            answer = submission.call(PROBES + "shards", submission.value("split_batch"), x, DEVICES)
            report = expect.mapping(answer, ("value", "shards"), "what `split_batch` returns")
            expect.close(report["value"], x, "the batch")
            shards = report["shards"]
            shards = sorted([*shard] for shard in shards) if isinstance(shards, list) else shards
            want = [[size * i, size * (i + 1), *shape[1:]] for i in range(DEVICES)]
            what, expected = "the devices hold the wrong shards", f"{size} rows each, and all of the other axes"
            expect.true(shards == want, what, expected=expected, got=f"[first row, end, other axes]: {shards}")


def _gradient(submission: Submission) -> tuple[dict[str, Any], dict[str, np.ndarray], str]:
    """Return the report on the student's `parallel_gradient`, the right gradient, and a description of the case."""
    params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
    x, y = submission.normal(BATCH, 4), submission.normal(BATCH, 3)
    error = (x @ params["w"] + params["b"] - y).astype(np.float64)
    want = {"w": x.T @ error * 2 / error.size, "b": error.sum(axis=0) * 2 / error.size}
    given = f"a batch of {len(x)} over {DEVICES} devices"
    with expect.case(given, MEAN_HINT):
        answer = submission.call(PROBES + "gradient", submission.value("parallel_gradient"), params, x, y, DEVICES)
        report = expect.mapping(answer, ("value", "replicated", "program"), "what `parallel_gradient` returns")
    return dict(report), want, given


@points(1)
def gradients_are_of_the_whole_batch(submission: Submission) -> None:
    """`parallel_gradient` gives every device the gradient of the mean loss over the whole batch."""
    report, want, given = submission.once("gradient", lambda: _gradient(submission))
    check_tree(report["value"], want, "the gradient", given=given, hint=MEAN_HINT)
    hint = "out_shardings=NamedSharding(mesh, PartitionSpec()), or out_specs=PartitionSpec()"
    expect.true(report["replicated"] is True, "not every device has the whole gradient", given=given, hint=hint)


@points(1)
def devices_add_up_their_gradients(submission: Submission) -> None:
    """`parallel_gradient` compiles to a program with an all-reduce."""
    report, want, given = submission.once("gradient", lambda: _gradient(submission))
    hint = 'shard the batch along "data", by in_shardings or in_specs, so that each device has only its part'
    with expect.case(given, hint):
        program = _program(report["program"])
        weights = expect.mapping(program["value"], ("w",), "the gradient", hint=MEAN_HINT)["w"]
        expect.resembles(weights, want["w"], "the gradient of the compiled program", hint=MEAN_HINT)
        collectives = _collectives(program)
        what, got = "there is no all-reduce", _shown(collectives)
        expect.true("all-reduce" in collectives, what, expected="all-reduce", got=got)
        _check_divided(program, 4 * BATCH * want["w"].size)


def _program(value: object) -> dict[str, Any]:
    return dict(expect.mapping(value, ("collectives", "value", "flops"), "the compiled program"))


def _check_divided(program: dict[str, Any], flops: int) -> None:
    """Check that the work is divided among the devices: a device that does all of it has no use for a sum.

    Args:
        program: The compiled program.
        flops: Of the matrix products, on all devices together. A device adds its share of the elementwise operations:
            measured in all, a third of them.
    """
    got = expect.number(program["flops"], "the number of operations")
    what, expected = "each device does all of the work", f"about {flops / DEVICES:,.0f} operations on each device"
    expect.true(got <= MOST_OF_A_DEVICE * flops, what, expected=expected, got=f"{got:,.0f}")


def _collectives(program: dict[str, Any]) -> list[str]:
    names = program["collectives"]
    return [str(name) for name in names] if isinstance(names, list | tuple) else []


def _shown(collectives: list[str]) -> str:
    return ", ".join(f"{collectives.count(name)} {name}" for name in dict.fromkeys(collectives)) or "no collective"


def _layers(submission: Submission) -> tuple[dict[str, Any], np.ndarray, str]:
    x, w1, b1, w2, b2 = arrays = [submission.normal(*shape) for shape in LAYERS]
    want = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    given = f"x {x.shape}, w1 {w1.shape}, w2 {w2.shape}, {DEVICES} devices"
    with expect.case(given):
        answer = submission.call(PROBES + "layers", submission.value("two_layers"), arrays, DEVICES)
        report = expect.mapping(answer, ("value", "program"), "what `two_layers` returns")
    return dict(report), want, given


@points(1)
def layers_are_right_in_parts(submission: Submission) -> None:
    """`two_layers` returns relu(x @ w1 + b1) @ w2 + b2."""
    report, want, given = submission.once("layers", lambda: _layers(submission))
    hint = "the bias of the second layer is added once, after the sum over the devices"
    expect.close(report["value"], want, "what `two_layers` returns", rtol=1e-3, atol=1e-4, given=given, hint=hint)


@points(1)
def one_sum_joins_the_parts(submission: Submission) -> None:
    """`two_layers` compiles to a program whose only communication is one all-reduce."""
    report, want, given = submission.once("layers", lambda: _layers(submission))
    program = _program(report["program"])
    expect.resembles(program["value"], want, "what the compiled `two_layers` returns", given=given)
    collectives = _collectives(program)
    what, got = "the devices communicate more or less than needed", _shown(collectives)
    hint = (
        'w1 by columns: P(None, "model"), b1: P("model"), w2 by rows: P("model", None). Each device computes some of '
        "the hidden values and a partial sum of every result: one all-reduce completes the results"
    )
    with expect.case(given, hint):
        expect.true(collectives == ["all-reduce"], what, expected="1 all-reduce", got=got)
        _check_divided(program, sum(2 * LAYERS[0][0] * math.prod(w) for w in (LAYERS[1], LAYERS[3])))


@points(1)
def gradient_bytes_are_counted(submission: Submission) -> None:
    """`all_reduce_bytes` counts the bytes of a gradient."""
    rng = submission.rng
    hint = "the gradient has the shapes of the parameters: the sum of size * itemsize over the leaves"
    for _ in range(2):
        sizes = [tuple(int(size) for size in rng.integers(2, 9, axes)) for axes in (2, 1, 4)]
        conv = {"weight": submission.normal(*sizes[2])}
        fc = {"weight": submission.normal(*sizes[0]), "bias": submission.normal(*sizes[1])}
        want = sum(4 * math.prod(size) for size in sizes)
        with expect.case(f"float32 arrays {', '.join(map(str, sizes))}"):
            params = {"conv": conv, "fc": fc}
            answer = submission.call(PROBES + "counted", submission.value("all_reduce_bytes"), params)
            got = expect.number(answer, "what `all_reduce_bytes` returns")
            expect.close_number(got, want, "`all_reduce_bytes` is wrong", hint=hint)


def _check_number(submission: Submission, name: str, arguments: dict[str, float], want: float, hint: str) -> None:
    with expect.case(", ".join(f"{key} {value:g}" for key, value in arguments.items()), hint):
        got = expect.number(submission.call(name, *arguments.values()), f"what `{name}` returns")
        expect.close_number(got, want, f"`{name}` is wrong")


@points(1)
def rings_carry_their_bytes(submission: Submission) -> None:
    """`ring_bytes` is the number of bytes that each device of a ring sends."""
    hint = "n - 1 steps to reduce and n - 1 steps to distribute, each of bytes / n; no step if there is one device"
    for devices in (2, int(submission.rng.integers(3, 9)), 64, 1):
        size = devices * int(submission.rng.integers(100, 1000))
        want = 2 * (devices - 1) * size / devices
        _check_number(submission, "ring_bytes", {"bytes": size, "devices": devices}, want, hint)


@points(1)
def steps_take_compute_and_ring(submission: Submission) -> None:
    """`step_seconds` adds a device's share of the computation to the latencies and transfers of the ring."""
    hint = "compute / devices + 2 * (devices - 1) * latency + ring_bytes(bytes, devices) / bandwidth"
    for devices in (1, 2, int(submission.rng.integers(3, 9)), 128):
        compute, size = (int(part) for part in submission.rng.integers(1, 30, 2))
        bandwidth, latency = (float(2.0**-part) for part in submission.rng.integers(1, 8, 2))
        arguments = {"compute": compute, "bytes": size, "devices": devices, "bandwidth": bandwidth, "latency": latency}
        ring = 2 * (devices - 1) * (latency + size / devices / bandwidth)
        _check_number(submission, "step_seconds", arguments, compute / devices + ring, hint)


def _final_error(output: str) -> str:
    """Return the exception that ended the script, after which JAX prints more lines."""
    return (ERROR.findall(output) or [output.strip()[-250:]])[-1]


@points(2)
def two_processes_give_the_gradient_of_one(submission: Submission) -> None:
    """`cluster_step.py` computes on two processes the gradient that one process computes."""
    submission.file(SCRIPT)
    seed = int(submission.rng.integers(1, 10_000))
    hint = (
        "initialize(); this process's half of the batch into one global array "
        "(jax.make_array_from_process_local_data); the gradient; np.savez(OUT, **gradient) if process_index() is 0"
    )
    with expect.case(f"mlhood cluster -n 2 -- python {SCRIPT} {seed} OUT", hint):
        out = str(submission.scratch / f"step-{seed}.npz")
        answer = submission.call(PROBES + "run_on_cluster", SCRIPT, seed, out)
        report = expect.mapping(answer, ("code", "output", "processes", "arrays"), "the run of the script")
        error = _final_error(f"{report['output']}")
        expect.true(report["code"] == 0, "the script fails on two processes", got=error)
        what, expected = "the two processes are not one cluster", "a process count of 2 in each of them"
        expect.true(report["processes"] == [2, 2], what, expected=expected, got=str(report["processes"]))
        expect.true(isinstance(report["arrays"], dict), "the script has not written OUT")
        try:
            want = run_isolated(ORACLE, seed)
        except IsolatedCallError as failure:
            raise expect.CheckSkipped(f"this machine cannot compute the gradient: {failure}") from None
        check_tree(report["arrays"], want, "OUT")


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
        forbidden=(
            "mlhood.jaxlab.cluster.parallel",
            "mlhood.jaxlab.cluster.collectives",
            "mlhood.jaxlab.cluster.scaling",
        ),
    ),
)
