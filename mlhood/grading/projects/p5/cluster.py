"""Checks of P5.10: a batch and weights laid over devices, what goes over the wire, and a script for two processes."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5.gradients import same_tree
from mlhood.grading.rpc.subprocess_call import IsolatedFailure, run_isolated

PROBES = "mlhood.grading.projects.p5.probes_cluster:"
ORACLE = "mlhood.grading.checks.reference_runs:step_gradient"
DEVICES = 4
SCRIPT = "cluster_step.py"
ERROR = re.compile(r"^ *\[\d+\] ([\w.]+(?:Error|Exception)\b.*)$", re.MULTILINE)
AVERAGED = (
    'the mean over the whole batch. In jax.shard_map: the gradient of jax.lax.pmean(loss(...), "data"). By parameters '
    "that lie everywhere jax.grad has added up over the devices already, and a pmean after it changes nothing"
)


@points(1)
def batches_are_split(submission: Submission) -> None:
    """`split_batch` lays the first axis of a batch along "data"."""
    hint = 'jax.device_put(x, NamedSharding(mesh, PartitionSpec("data")))'
    for shape in ((8, 3), (12, 1, 4)):
        x, given = submission.normal(*shape), f"x {shape}, {DEVICES} devices"
        with expect.case(given, hint):
            told = submission.call(PROBES + "split", submission.value("split_batch"), x, DEVICES)
            report = expect.mapping(told, ("value", "parts"), "what `split_batch` returns")
        expect.close(report["value"], x, "the batch", given=given, hint=hint)
        parts = sorted([*part] for part in report["parts"]) if isinstance(report["parts"], list) else report["parts"]
        size = shape[0] // DEVICES
        want = [[size * i, size * (i + 1), *shape[1:]] for i in range(DEVICES)]
        expect.true(parts == want, "the devices hold other parts", expected=f"{size} rows each, whole otherwise",
                    got=f"first and last row, and the rest: {parts}", given=given, hint=hint)  # fmt: skip


def _gradient(submission: Submission) -> tuple[dict[str, Any], dict[str, np.ndarray], str]:
    """What `parallel_gradient` makes, what it should, and of what."""
    params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
    x, y = submission.normal(8, 4), submission.normal(8, 3)
    wrong = (x @ params["w"] + params["b"] - y).astype(np.float64)
    want = {"w": x.T @ wrong * 2 / wrong.size, "b": wrong.sum(axis=0) * 2 / wrong.size}
    given = f"a batch of {len(x)} over {DEVICES} devices"
    with expect.case(given, AVERAGED):
        told = submission.call(PROBES + "gradient", submission.value("parallel_gradient"), params, x, y, DEVICES)
    keys = ("value", "replicated", "collectives")
    return dict(expect.mapping(told, keys, "what `parallel_gradient` makes", given=given)), want, given


@points(1)
def gradients_are_of_the_whole_batch(submission: Submission) -> None:
    """`parallel_gradient` gives every device the gradient of the mean loss over the whole batch."""
    report, want, given = submission.once("gradient", lambda: _gradient(submission))
    same_tree(report["value"], want, "the gradient", given=given, hint=AVERAGED)
    hint = "out_shardings=NamedSharding(mesh, PartitionSpec()), or out_specs=PartitionSpec()"
    expect.true(report["replicated"] is True, "not every device has the whole gradient", given=given, hint=hint)


@points(1)
def devices_add_up_their_gradients(submission: Submission) -> None:
    """`parallel_gradient` compiles to a program with an all-reduce."""
    report, _, given = submission.once("gradient", lambda: _gradient(submission))
    found = _collectives(report["collectives"])
    hint = 'the batch along "data": in_shardings, or in_specs, and each device has only its part of it'
    expect.true("all-reduce" in found, "there is no all-reduce", expected="all-reduce", got=_shown(found), given=given,
                hint=hint)  # fmt: skip


def _collectives(told: object) -> list[str]:
    return [str(one) for one in told] if isinstance(told, list | tuple) else []


def _shown(found: list[str]) -> str:
    return ", ".join(f"{found.count(one)} {one}" for one in dict.fromkeys(found)) or "no collective"


def _layers(submission: Submission) -> tuple[dict[str, Any], np.ndarray, str]:
    shapes = ((4, 8), (8, 16), (16,), (16, 12), (12,))  # which fall into as many parts as there are devices
    x, w1, b1, w2, b2 = arrays = [submission.normal(*shape) for shape in shapes]
    want = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    given = f"x {x.shape}, w1 {w1.shape}, w2 {w2.shape}, {DEVICES} devices"
    with expect.case(given):
        told = submission.call(PROBES + "layers", submission.value("two_layers"), arrays, DEVICES)
    return dict(expect.mapping(told, ("value", "collectives"), "what `two_layers` makes", given=given)), want, given


@points(1)
def layers_are_right_in_parts(submission: Submission) -> None:
    """`two_layers` gives relu(x @ w1 + b1) @ w2 + b2."""
    report, want, given = submission.once("layers", lambda: _layers(submission))
    hint = "the bias of the second layer is added once, after the sum over devices"
    expect.close(report["value"], want, "what `two_layers` returns", rtol=1e-3, atol=1e-4, given=given, hint=hint)


@points(1)
def one_sum_joins_the_parts(submission: Submission) -> None:
    """`two_layers` compiles to a program with one all-reduce, and nothing else goes over the wire."""
    report, _, given = submission.once("layers", lambda: _layers(submission))
    found = _collectives(report["collectives"])
    hint = (
        'w1 by columns: P(None, "model"), b1: P("model"), w2 by rows: P("model", None). A device makes some of the '
        "hidden values and with them a part of each result: one sum gives the results"
    )
    expect.true(found == ["all-reduce"], "other data go over the wire", expected="1 all-reduce", got=_shown(found),
                given=given, hint=hint)  # fmt: skip


@points(1)
def gradient_bytes_are_counted(submission: Submission) -> None:
    """`all_reduce_bytes` counts the bytes of a gradient."""
    rng = submission.rng
    for _ in range(2):
        sizes = [tuple(int(size) for size in rng.integers(2, 9, axes)) for axes in (2, 1, 4)]
        params = {"conv": {"weight": submission.normal(*sizes[2])},
                  "fc": {"weight": submission.normal(*sizes[0]), "bias": submission.normal(*sizes[1])}}  # fmt: skip
        given = f"float32 arrays {', '.join(map(str, sizes))}"
        with expect.case(given):
            told = submission.call(PROBES + "counted", submission.value("all_reduce_bytes"), params)
        want = sum(4 * math.prod(size) for size in sizes)
        got = expect.number(told, "what `all_reduce_bytes` returns", given=given)
        hint = "the gradient looks like the parameters: the sum of size * itemsize over the leaves"
        expect.true(got == want, "`all_reduce_bytes` is wrong", expected=f"{want:,}", got=f"{got:,g}", given=given,
                    hint=hint)  # fmt: skip


def _number(submission: Submission, name: str, arguments: dict[str, float], want: float, hint: str) -> None:
    given = ", ".join(f"{key} {value:g}" for key, value in arguments.items())
    with expect.case(given, hint):
        got = expect.number(submission.call(name, *arguments.values()), f"what `{name}` returns")
    right = math.isclose(got, want, rel_tol=1e-6, abs_tol=1e-12)
    expect.true(right, f"`{name}` is wrong", expected=f"{want:.6g}", got=f"{got:.6g}", given=given, hint=hint)


@points(1)
def rings_carry_their_bytes(submission: Submission) -> None:
    """`ring_bytes` is what each device of a ring sends."""
    for devices in (2, int(submission.rng.integers(3, 9)), 64, 1):
        size = devices * int(submission.rng.integers(100, 1000))
        hint = "n - 1 steps to add up and n - 1 to hand round, each of them bytes / n: none where there is one device"
        _number(submission, "ring_bytes", {"bytes": size, "devices": devices}, 2 * (devices - 1) * size / devices, hint)


@points(1)
def steps_take_compute_and_ring(submission: Submission) -> None:
    """`step_seconds` adds up a device's share of the work, and the ring's latencies and bytes."""
    for devices in (1, 2, int(submission.rng.integers(3, 9)), 128):
        compute, size = (int(part) for part in submission.rng.integers(1, 30, 2))
        bandwidth, latency = (float(2.0**-part) for part in submission.rng.integers(1, 8, 2))
        arguments = {"compute": compute, "bytes": size, "devices": devices, "bandwidth": bandwidth, "latency": latency}
        ring = 2 * (devices - 1) * (latency + size / devices / bandwidth)
        hint = "compute / devices + 2 * (devices - 1) * latency + ring_bytes(bytes, devices) / bandwidth"
        _number(submission, "step_seconds", arguments, compute / devices + ring, hint)


def _ending(said: str) -> str:
    """The error that a script ended with: JAX has lines to say after it. Else the end of what it said."""
    return (ERROR.findall(said) or [said.strip()[-250:]])[-1]


@points(2)
def two_processes_give_the_gradient_of_one(submission: Submission) -> None:
    """`cluster_step.py` gives, on two processes, the gradient that one process has."""
    submission.file(SCRIPT)
    seed = int(submission.rng.integers(1, 10_000))
    given = f"mlhood cluster -n 2 -- python {SCRIPT} {seed} OUT"
    hint = (
        "initialize(); this process's half of the batch into one global array "
        "(jax.make_array_from_process_local_data); the gradient; np.savez(OUT, **gradient) where process_index() is 0"
    )
    with expect.case(given, hint):
        told = submission.call(PROBES + "clustered", SCRIPT, seed, str(submission.scratch / f"step-{seed}.npz"))
        report = expect.mapping(told, ("code", "said", "processes", "arrays"), "what became of the script")
    expect.true(report["code"] == 0, "the script fails on two processes", got=_ending(f"{report['said']}"), given=given,
                hint=hint)  # fmt: skip
    alone = report["processes"] != [2, 2]
    expect.true(not alone, "the two processes are not one cluster", expected="each knows of 2 processes",
                got=str(report["processes"]), given=given, hint=hint)  # fmt: skip
    expect.true(isinstance(report["arrays"], dict), "the script has not written OUT", given=given, hint=hint)
    try:
        want = run_isolated(ORACLE, seed)
    except IsolatedFailure as failure:
        raise expect.CheckSkipped(f"this machine cannot work out the gradient: {failure}") from None
    same_tree(report["arrays"], want, "OUT", given=given, hint=hint)


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
