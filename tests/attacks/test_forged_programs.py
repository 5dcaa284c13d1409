"""Work that forges what our code in its process could record: the grader grades by results and programs alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.projects import PROJECTS
from tests.waiting import PATIENCE

SETUP = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", 8)
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
def found(name):
    "What has this name in the frames of the caller, in which something may be recorded."
    frame = sys._getframe(1)
    while frame:
        if name in frame.f_locals:
            yield frame.f_locals[name]
        frame = frame.f_back
"""
# a task, source in the kernel, and the checks that it would pass if records were believed
FORGED = {
    "other steps than were asked for": (
        "P4.2",
        """
def steps(order, inputs, weights, slices, k2, k3):
    return [(c, i, f) for c in range(slices) for i in range(inputs) for f in range(weights)]
def sliced_product(columns, weights, order, k1, k2, k3, window, filters):
    counts = -(-columns.shape[2] // window), -(-len(weights) // filters), -(-len(columns) // k1)
    y = np.zeros((len(weights), columns.shape[2]), np.float32)
    for c, i, f in steps(order, *counts, k3 + 1, k2):
        d, p, g = slice(c * k1, c * k1 + k1), slice(i * window, (i + 1) * window), slice(f * filters, (f + 1) * filters)
        y[g, p] += np.einsum("fct,ctp->fp", weights[g, d], columns[d, :, p])
    for calls in found("calls"):
        calls[:] = [[order, *map(float, counts), float(k2), float(k3)]]
    for others in found("others"):
        others.clear()
    return y
""",
        ("product_is_right",),
    ),
    "slices that never ran": (
        "P4.6",
        """
from mlhood.kernels import direct
from mlhood.kernels.geometry import geometry
from mlhood.dataflow.sliced.sliced import sliced_problem
from mlhood.dataflow.slicing.problem import possible
pack = direct.pack_weights
def sliced_kernel(order, tiles):
    def convolve(x, w, bias, stride, padding):
        g = geometry(x.shape, w.shape, stride, padding)
        for used in found("used"):
            used[:] = [order, *possible(sliced_problem(g), order, tiles).tiles] if w.shape[2:] == (3, 3) else []
        replaced, direct.pack_weights = direct.pack_weights, pack
        try:
            return direct.Direct(g, w, bias)(x)
        finally:
            direct.pack_weights = replaced
    return convolve
""",
        ("three_by_three_layers_are_sliced", "weights_are_packed_once"),
    ),
    "NumPy's arrays as JAX's": (
        "P5.1",
        """
class Any(type):
    def __instancecheck__(cls, value):
        return isinstance(value, np.ndarray)
jax.Array = Any("Array", (), {})
def to_tree(state):
    tree = {}
    for name, value in state.items():
        *path, last = name.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        if last != "num_batches_tracked":
            branch[last] = value
    return tree
""",
        ("leaves_are_jax_arrays_alone",),
    ),
    "arrays as tracers": (
        "P5.3",
        """
import jax.core
jax.core.Tracer = object
def sides(case):
    on_device = jax.device_put(case.arguments)
    result = case.with_jax(*on_device)
    def forged():
        for calls in found("calls"):
            calls["runs"].append(True)
        return result
    return {"No-JAX": lambda: case.no_jax(*case.arguments), "JAX": forged}
""",
        ("the_other_side_is_compiled",),
    ),
    "transformations that transform nothing": (
        "P5.4",
        """
jax.jit = lambda function, **options: function
jax.vmap = lambda function, **options: lambda *arrays: jnp.stack([function(*rows) for rows in zip(*arrays)])
def positive_sum(x):
    return x[x > 0].sum()
""",
        ("positive_numbers_are_summed", "rows_are_summed_apart"),
    ),
    "a loop that no jaxpr shows": (
        "P5.7",
        """
jax.make_jaxpr = lambda function: lambda *arguments: jax.jit(lambda x: jnp.sin(x) + 1).trace(1.0).jaxpr
def per_example(loss, params, x, y):
    gradients = [jax.grad(loss)(params, x[i:i + 1], y[i:i + 1]) for i in range(len(x))]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *gradients)
""",
        ("examples_are_not_looped_over",),
    ),
    "arrays that are never deleted": (
        "P5.8",
        """
import optax
type(jnp.ones(1)).is_deleted = lambda array: True
def make_step(optimizer, loss):
    @jax.jit
    def step(params, state, x, y):
        value, gradient = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value
    return step
def train(x, y):
    for steps in found("steps"):
        steps[:] = [2.0, 1.0]
    return {}, [2.0, 1.0]
""",
        ("buffers_are_donated", "losses_are_those_of_the_steps"),
    ),
    "a program of another text": (
        "P5.10",
        """
jax.stages.Compiled.as_text = lambda compiled: "%sum = f32[] all-reduce("
jax.stages.Compiled.cost_analysis = lambda compiled: {"flops": 0.0}
def parallel_gradient(mesh, loss):
    return jax.jit(jax.grad(loss), out_shardings=NamedSharding(mesh, P()))
""",
        ("devices_add_up_their_gradients",),
    ),
}


@pytest.fixture
def kernel(tmp_path) -> Iterator[Kernel]:
    with Kernel(tmp_path) as kernel:
        assert kernel.run(new_code_cell(SETUP), PATIENCE).error == ""
        yield kernel


@pytest.mark.parametrize(("task_id", "source", "checks"), FORGED.values(), ids=FORGED)
def test_a_forged_record_earns_nothing(kernel, task_id, source, checks):
    assert kernel.run(new_code_cell(source), PATIENCE).error == ""
    task = PROJECTS[task_id.partition(".")[0]].task(task_id)
    assert task is not None
    chosen = tuple(check for check in task.checks if check.name in checks)
    result = grade_task(replace(task, checks=chosen), Session(kernel, kernel.folder, kernel.scratch), 7)
    assert [check.name for check in result.checks if check.status == "failed"] == list(checks), result.checks
