"""Building blocks of P5's examples for P5.7 to P5.14: each function returns new source by cell id, right by default."""

from __future__ import annotations

from tests.grading.projects.examples import Snippet
from tests.grading.projects.p5_snippets_programs import filling

# -- P5.7


examples = Snippet("""# %% P5-7-solution
def per_example(loss, params, x, y):
    return <<result: jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x[:, None], y[:, None])>>
""")


clipping = Snippet("""# %% P5-7-solution-2
def clipped_mean(gradients, limit):
    def flat(leaf):
        return (leaf ** 2).reshape(len(leaf), -1).sum(axis=1)
    norm = jnp.sqrt(<<squares: sum(flat(leaf) for leaf in jax.tree.leaves(gradients))>>)
    factor = <<factor: jnp.minimum(1, limit / norm)>>
    return <<result: jax.tree.map(lambda leaf: jnp.tensordot(factor, leaf, 1) / len(factor), gradients)>>
""")


# -- P5.8


entropy = Snippet("""# %% P5-8-solution
def cross_entropy(logits, labels):
    return <<result: -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()>>
""")


stepping = Snippet("""# %% P5-8-solution-2
import optax
from functools import partial
def make_step(optimizer, loss):
    <<jit: @partial(jax.jit, donate_argnums=(0, 1))>>
    def step(params, state, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        <<update: updates, state = optimizer.update(gradients, state, params)>>
        params = <<apply: optax.apply_updates(params, updates)>>
        return <<result: params, state, value>>
    return step
""")


training = Snippet("""# %% P5-8-solution-3
import optax
from mlhood.jaxlab.training import cnn
def training_loss(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(cnn.logits(params, x), y).mean()

def train(x, y):
    optimizer = optax.adam(3e-3)
    params, step, losses = cnn.init(0), make_step(optimizer, training_loss), []
    state = optimizer.init(params)
    for epoch in <<epochs: range(4)>>:
        order = np.random.default_rng(epoch).permutation(len(x))
        for rows in order[: len(order) // 64 * 64].reshape(-1, 64):
            params, state, loss = step(params, state, <<batch: x[rows], y[rows]>>)
            losses.append(float(loss))
    return <<result: params, losses>>
""")


# -- P5.9


quantizing = Snippet("""# %% P5-9-solution
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
fake_quantize_p = Primitive("fake_quantize")

def fake_quantize(x, *, scale):
    return <<call: fake_quantize_p.bind(x, scale=scale)>>

@fake_quantize_p.def_impl
def _quantize(x, *, scale):
    return <<implementation: scale * jnp.clip(jnp.round(x / scale), -128, 127)>>

@fake_quantize_p.def_abstract_eval
def _shape(x, *, scale):
    return <<abstract: ShapedArray(x.shape, x.dtype)>>

<<lowering: mlir.register_lowering(fake_quantize_p, mlir.lower_fun(_quantize, multiple_results=False))>>
ad.defjvp(
    fake_quantize_p, lambda g, x, *, scale: <<derivative: jnp.where((x / scale >= -128) & (x / scale <= 127), g, 0)>>)

def _batched(arrays, axes, *, scale):
    return fake_quantize(arrays[0], scale=scale), <<axis: axes[0]>>
batching.primitive_batchers[fake_quantize_p] = _batched
""")


# -- P5.10 to P5.13


splitting = Snippet("""# %% P5-10-solution
from jax.sharding import NamedSharding, PartitionSpec as P
def split_batch(mesh, x):
    return jax.device_put(x, <<sharding: NamedSharding(mesh, P('data'))>>)

def parallel_gradient(mesh, loss):
    replicated, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    return <<gradient: jax.jit(jax.grad(loss), in_shardings=(replicated, rows, rows), out_shardings=replicated)>>
""")


layering = Snippet("""# %% P5-11-solution
from jax.sharding import NamedSharding, PartitionSpec as P
def two_layers(mesh):
    def forward(x, w1, b1, w2, b2):
        return <<result: jax.nn.relu(x @ w1 + b1) @ w2 + b2>>
    specs = <<specs: P(), P(None, "model"), P("model"), P("model", None), P()>>
    shardings = tuple(NamedSharding(mesh, spec) for spec in specs)
    return jax.jit(forward, in_shardings=shardings, out_shardings=NamedSharding(mesh, P()))
""")


counting = Snippet("""# %% P5-12-solution
def all_reduce_bytes(params):
    return <<total: sum(leaf.nbytes for leaf in jax.tree.leaves(params))>>

def ring_bytes(bytes, devices):
    return <<ring: 2 * (devices - 1) * bytes / devices>>
""")


script = Snippet("""# %% P5-13-solution
%%writefile cluster_step.py
import sys
import numpy as np
from mlhood.jaxlab.cluster import initialize
<<start: initialize()>>
import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from mlhood.jaxlab.cluster import program

seed, out = int(sys.argv[1]), sys.argv[2]
params, *batch = program.data(seed)
index, half = jax.process_index(), len(batch[0]) // jax.process_count()
mesh = Mesh(np.array(jax.devices()), ("data",))
rows = <<rows: slice(half * index, half * (index + 1))>>
x, y = (jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), array[rows]) for array in batch)
gradient = <<gradient: jax.jit(jax.grad(program.loss), out_shardings=NamedSharding(mesh, P()))(params, x, y)>>
<<first: if index == 0:>>
    np.savez(out, **{name: np.asarray(value) for name, value in gradient.items()})
""")


predicting = Snippet("""# %% P5-12-solution-2
def step_seconds(compute, bytes, devices, bandwidth, latency):
    return <<result: compute / devices + 2 * (devices - 1) * (latency + bytes / devices / bandwidth)>>
""")


# -- P5.14


# Plans of layers of kind 0, data parallel, 1, by columns, and 2, by rows.
planning = Snippet("""# %% P5-14-solution
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
# %% P5-14-solution-2
from jax.sharding import PartitionSpec as P
def best_plan(batch, widths):
    best = least(0, 0, batch, widths)[1]
    w, h = (P(), P(None, "devices"), P("devices", None)), <<h: (P('devices'), P(None, 'devices'), P(None, None))>>
    plan = {}
    for i, kind in enumerate(<<kinds: best>>, start=1):
        plan[f"w{i}"], plan[f"h{i}"] = w[kind], h[kind]
    return plan
""")


# Right, but not measured on a real network, which would take half a minute, and trained independently of P5.8's step.
QUICK = filling() | training()
