"""Building blocks of P5's examples for P5.7 to P5.14: each function returns new source by cell id, right by default."""

from __future__ import annotations

from tests.grading.projects.p5_snippets_programs import filling, function

# -- P5.7


def examples(
    result: str = "jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x[:, None], y[:, None])",
) -> dict[str, str]:
    return {"P5-7-solution": f"def per_example(loss, params, x, y):\n    return {result}\n"}


def clipping(
    squares: str = "sum(flat(leaf) for leaf in jax.tree.leaves(gradients))",
    factor: str = "jnp.minimum(1, limit / norm)",
    result: str = "jax.tree.map(lambda leaf: jnp.tensordot(factor, leaf, 1) / len(factor), gradients)",
) -> dict[str, str]:
    body = f"""
def flat(leaf):
    return (leaf ** 2).reshape(len(leaf), -1).sum(axis=1)
norm = jnp.sqrt({squares})
factor = {factor}
return {result}
"""
    return {"P5-7-solution-2": function("def clipped_mean(gradients, limit):", body)}


# -- P5.8


def entropy(
    result: str = "-jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()",
) -> dict[str, str]:
    return {"P5-8-solution": f"def cross_entropy(logits, labels):\n    return {result}\n"}


def stepping(
    jit: str = "@partial(jax.jit, donate_argnums=(0, 1))",
    update: str = "updates, state = optimizer.update(gradients, state, params)",
    apply: str = "optax.apply_updates(params, updates)",
    result: str = "params, state, value",
) -> dict[str, str]:
    body = f"""
{jit}
def step(params, state, x, y):
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    {update}
    params = {apply}
    return {result}
return step
"""
    head = "import optax\nfrom functools import partial\ndef make_step(optimizer, loss):"
    return {"P5-8-solution-2": function(head, body)}


def training(
    epochs: str = "range(4)", result: str = "params, losses", batch: str = "x[rows], y[rows]"
) -> dict[str, str]:
    return {
        "P5-8-solution-3": f"""
import optax
from mlhood.jaxlab.training import cnn
def training_loss(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(cnn.logits(params, x), y).mean()

def train(x, y):
    optimizer = optax.adam(3e-3)
    params, step, losses = cnn.init(0), make_step(optimizer, training_loss), []
    state = optimizer.init(params)
    for epoch in {epochs}:
        order = np.random.default_rng(epoch).permutation(len(x))
        for rows in order[: len(order) // 64 * 64].reshape(-1, 64):
            params, state, loss = step(params, state, {batch})
            losses.append(float(loss))
    return {result}
"""
    }


# -- P5.9


def quantizing(
    implementation: str = "scale * jnp.clip(jnp.round(x / scale), -128, 127)",
    abstract: str = "ShapedArray(x.shape, x.dtype)",
    derivative: str = "jnp.where((x / scale >= -128) & (x / scale <= 127), g, 0)",
    axis: str = "axes[0]",
    call: str = "fake_quantize_p.bind(x, scale=scale)",
    lowering: str = "mlir.register_lowering(fake_quantize_p, mlir.lower_fun(_quantize, multiple_results=False))",
) -> dict[str, str]:
    return {
        "P5-9-solution": f"""
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
fake_quantize_p = Primitive("fake_quantize")

def fake_quantize(x, *, scale):
    return {call}

@fake_quantize_p.def_impl
def _quantize(x, *, scale):
    return {implementation}

@fake_quantize_p.def_abstract_eval
def _shape(x, *, scale):
    return {abstract}

{lowering}
ad.defjvp(fake_quantize_p, lambda g, x, *, scale: {derivative})

def _batched(arrays, axes, *, scale):
    return fake_quantize(arrays[0], scale=scale), {axis}
batching.primitive_batchers[fake_quantize_p] = _batched
""",
    }


# -- P5.10 to P5.13


def splitting(
    sharding: str = "NamedSharding(mesh, P('data'))",
    gradient: str = "jax.jit(jax.grad(loss), in_shardings=(replicated, rows, rows), out_shardings=replicated)",
) -> dict[str, str]:
    return {
        "P5-10-solution": f"""
from jax.sharding import NamedSharding, PartitionSpec as P
def split_batch(mesh, x):
    return jax.device_put(x, {sharding})

def parallel_gradient(mesh, loss):
    replicated, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    return {gradient}
"""
    }


def layering(
    specs: str = 'P(), P(None, "model"), P("model"), P("model", None), P()',
    result: str = "jax.nn.relu(x @ w1 + b1) @ w2 + b2",
) -> dict[str, str]:
    body = f"""
def forward(x, w1, b1, w2, b2):
    return {result}
shardings = tuple(NamedSharding(mesh, spec) for spec in ({specs}))
return jax.jit(forward, in_shardings=shardings, out_shardings=NamedSharding(mesh, P()))
"""
    head = "from jax.sharding import NamedSharding, PartitionSpec as P\ndef two_layers(mesh):"
    return {"P5-11-solution": function(head, body)}


def counting(
    total: str = "sum(leaf.nbytes for leaf in jax.tree.leaves(params))",
    ring: str = "2 * (devices - 1) * bytes / devices",
) -> dict[str, str]:
    return {
        "P5-12-solution": f"""
def all_reduce_bytes(params):
    return {total}

def ring_bytes(bytes, devices):
    return {ring}
"""
    }


def script(
    rows: str = "slice(half * index, half * (index + 1))",
    gradient: str = "jax.jit(jax.grad(program.loss), out_shardings=NamedSharding(mesh, P()))(params, x, y)",
    first: str = "if index == 0:",
    start: str = "initialize()",
) -> dict[str, str]:
    return {
        "P5-13-solution": f"""%%writefile cluster_step.py
import sys
import numpy as np
from mlhood.jaxlab.cluster import initialize
{start}
import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from mlhood.jaxlab.cluster import program

seed, out = int(sys.argv[1]), sys.argv[2]
params, *batch = program.data(seed)
index, half = jax.process_index(), len(batch[0]) // jax.process_count()
mesh = Mesh(np.array(jax.devices()), ("data",))
rows = {rows}
x, y = (jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), array[rows]) for array in batch)
gradient = {gradient}
{first}
    np.savez(out, **{{name: np.asarray(value) for name, value in gradient.items()}})
"""
    }


def predicting(
    result: str = "compute / devices + 2 * (devices - 1) * (latency + bytes / devices / bandwidth)",
) -> dict[str, str]:
    head = "def step_seconds(compute, bytes, devices, bandwidth, latency):"
    return {"P5-12-solution-2": f"{head}\n    return {result}\n"}


# -- P5.14


def planning(kinds: str = "best", h: str = "(P('devices'), P(None, 'devices'), P(None, None))") -> dict[str, str]:
    """Plans of layers of kind 0, data parallel, 1, by columns, and 2, by rows."""
    return {
        "P5-14-solution": """
import functools
def least(i, before, batch, widths):
    if i == len(widths) - 1:
        return 0, ()
    a, b = batch * widths[i], batch * widths[i + 1]
    costs = (
        2 * widths[i] * widths[i + 1] + (0, 2, 1)[before] * a,
        (1, 1, 0)[before] * a + (2 * a if i else 0),
        2 * b + (2, 0, 1)[before] * a,
    )
    rest = [least(i + 1, kind, batch, widths) for kind in range(3)]
    return min((costs[kind] + rest[kind][0], (kind, *rest[kind][1])) for kind in range(3))
""",
        "P5-14-solution-2": f"""
from jax.sharding import PartitionSpec as P
def best_plan(batch, widths):
    best = least(0, 0, batch, widths)[1]
    w, h = (P(), P(None, "devices"), P("devices", None)), {h}
    plan = {{}}
    for i, kind in enumerate({kinds}, start=1):
        plan[f"w{{i}}"], plan[f"h{{i}}"] = w[kind], h[kind]
    return plan
""",
    }


# Right, but not measured on a real network, which would take half a minute, and trained independently of P5.8's step.
QUICK = filling() | training()
