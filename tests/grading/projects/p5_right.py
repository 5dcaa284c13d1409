"""Right solutions of P5 in styles other than the source notebook's."""

from __future__ import annotations

LAX = {
    "P5-1-solution": """
from collections import defaultdict
def to_tree(state):
    grown = lambda: defaultdict(grown)
    tree = grown()
    for name in sorted(state, reverse=True):
        if "num_batches_tracked" not in name:
            branch = tree
            for part in name.split(".")[:-1]:
                branch = branch[part]
            branch[name.split(".")[-1]] = jax.device_put(state[name])
    return tree
""",
    "P5-1-solution-2": """
from jax import lax
def convolved(x, w, stride, padding):
    pads = [(padding, padding)] * 2
    return lax.conv_general_dilated(x, w, (stride, stride), pads, dimension_numbers=("NCHW", "OIHW", "NCHW"))

def normed(x, p):
    factor = p["weight"] * lax.rsqrt(p["running_var"] + 1e-5)
    offset = p["bias"] - p["running_mean"] * factor
    return x * factor[None, :, None, None] + offset[None, :, None, None]

@jax.jit
def second_convolution(params, x):
    return normed(convolved(x, params["conv2"]["weight"], 1, 1), params["bn2"])

def block(params, x, stride):
    y = lax.max(normed(convolved(x, params["conv1"]["weight"], stride, 1), params["bn1"]), 0.0)
    y = second_convolution(params, y)
    down = params.get("downsample")
    return jax.nn.relu(y + (x if down is None else normed(convolved(x, down["0"]["weight"], stride, 0), down["1"])))
""",
    "P5-1-solution-3": """
def resnet(params, x):
    x = jax.nn.relu(normed(convolved(x, params["conv1"]["weight"], 2, 3), params["bn1"]))
    pads = ((0, 0), (0, 0), (1, 1), (1, 1))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), pads)
    for stage, stride in (("layer1", 1), ("layer2", 2), ("layer3", 2), ("layer4", 2)):
        x = block(params[stage]["0"], x, stride)
        x = block(params[stage]["1"], x, 1)
    return jnp.einsum("nchw,kc->nk", x, params["fc"]["weight"]) / x[0, 0].size + params["fc"]["bias"]
""",
    "P5-2-solution": """
def conv2d(x, w, bias=None, stride=1, padding=0):
    n, c, high, wide = x.shape
    f, _, kh, kw = w.shape
    oh, ow = (high + 2 * padding - kh) // stride + 1, (wide + 2 * padding - kw) // stride + 1
    padded = np.zeros((n, c, high + 2 * padding, wide + 2 * padding), x.dtype)
    padded[:, :, padding:padding + high, padding:padding + wide] = x
    y = np.zeros((f, n, oh, ow), np.float32)
    for i in range(kh):
        for j in range(kw):
            part = padded[:, :, i:i + stride * oh:stride, j:j + stride * ow:stride]
            y += np.tensordot(w[:, :, i, j], part, (1, 1))
    y = y.transpose(1, 0, 2, 3)
    return y if bias is None else y + np.reshape(bias, (1, -1, 1, 1))
""",
    "P5-2-solution-2": """
def max_pool(x, kernel=3, stride=2, padding=1):
    n, c, high, wide = x.shape
    oh, ow = (high + 2 * padding - kernel) // stride + 1, (wide + 2 * padding - kernel) // stride + 1
    padded = np.full((n, c, high + 2 * padding, wide + 2 * padding), np.finfo(np.float32).min, np.float32)
    padded[:, :, padding:padding + high, padding:padding + wide] = x
    parts = [padded[:, :, i:i + stride * oh:stride, j:j + stride * ow:stride]
             for i in range(kernel) for j in range(kernel)]
    return np.maximum.reduce(parts)
""",
    "P5-3-solution": """
import itertools
def break_even(compile_seconds, no_jax, jax):
    if jax >= no_jax:
        return np.inf
    return next(n for n in itertools.count() if compile_seconds + n * jax < n * no_jax)
""",
    "P5-4-solution": """
def positive_sum(x):
    return jnp.sum(x, where=x > 0)
""",
    "P5-4-solution-2": """
from jax import lax
def square_root(a):
    def condition(carry):
        root, change = carry
        return change > 1e-6 * root
    def step(carry):
        root, _ = carry
        better = 0.5 * (root + jnp.where(root > 0, a / root, 0))
        return better, abs(better - root)
    return lax.cond(a == 0, lambda: 0.0, lambda: lax.while_loop(condition, step, (a + 1.0, jnp.inf))[0])
""",
    "P5-5-solution": """
from mlhood.jaxlab.tracing.tracer import SHAPES, Equation, Variable, fresh
def record(equations, op, operands):
    shapes = [getattr(x, "shape", ()) for x in operands]
    equations += [Equation(op, operands, fresh(SHAPES[op](*shapes)))]
    return equations[-1].output
""",
    "P5-5-solution-2": """
from mlhood.jaxlab.tracing.tracer import NUMPY
def evaluate(program, *arguments):
    values = {x.number: value for x, value in zip(program.inputs, arguments)}
    value = lambda x: values[x.number] if hasattr(x, "number") else x
    for op, inputs, output in ((e.op, e.inputs, e.output) for e in program.equations):
        values[output.number] = NUMPY[op](*map(value, inputs))
    return (*(value(x) for x in program.outputs),)
""",
    "P5-5-solution-3": """
from dataclasses import replace
def live(program):
    def closure(needed):
        more = {x for e in program.equations if e.output in needed for x in e.inputs} | needed
        return needed if more == needed else closure(more)
    needed = closure(set(program.outputs))
    return replace(program, equations=tuple(e for e in program.equations if e.output in needed))
""",
    "P5-6-solution-2": """
def vjp_conv2d(g, y, x, w, *bias, stride=1, padding=0):
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    xp = np.pad(x, pads)
    dx, dw = np.zeros_like(xp), np.zeros_like(w)
    for n, f, oh, ow in np.ndindex(*g.shape):
        h, v = oh * stride, ow * stride
        window = np.s_[n, :, h:h + w.shape[2], v:v + w.shape[3]]
        dx[window] += g[n, f, oh, ow] * w[f]
        dw[f] += g[n, f, oh, ow] * xp[window]
    dx = dx[:, :, padding:padding + x.shape[2], padding:padding + x.shape[3]]
    return [dx, dw, *(np.einsum("nfhw->f", g) for _ in bias)]
""",
    "P5-7-solution": """
def per_example(loss, params, x, y):
    def example_gradient(pair):
        return jax.grad(loss)(params, pair[0][None], pair[1][None])
    return jax.vmap(example_gradient)((x, y))
""",
    "P5-9-solution": """
import jax.extend as jex
from jax.interpreters import ad, batching, mlir
fake_quantize_p = jex.core.Primitive("fake_quantize")
def fake_quantize(x, *, scale):
    return fake_quantize_p.bind(x, scale=scale)
def composed(x, *, scale):
    low, high = x.dtype.type(-128), x.dtype.type(127)
    return jax.lax.clamp(low, jax.lax.round(x / scale, jax.lax.RoundingMethod.TO_NEAREST_EVEN), high) * scale
fake_quantize_p.def_impl(jax.jit(composed, static_argnames="scale"))
fake_quantize_p.def_abstract_eval(lambda x, scale: jax.core.ShapedArray(x.shape, x.dtype))
mlir.register_lowering(fake_quantize_p, mlir.lower_fun(composed, multiple_results=False))
def tangents(primals, tangents, *, scale):
    (x,), (t,) = primals, tangents
    out = fake_quantize(x, scale=scale)
    inside = (x >= -128 * scale) & (x <= 127 * scale)
    if type(t) is ad.Zero:
        return out, ad.Zero.from_primal_value(out)
    return out, t * inside.astype(x.dtype)
ad.primitive_jvps[fake_quantize_p] = tangents
batching.defvectorized(fake_quantize_p)
""",
}

SHARD_MAP = {
    "P5-4-solution": """
@jax.jit
def positive_sum(x):
    return jnp.maximum(x, 0).sum()
""",
    "P5-4-solution-2": """
@jax.jit
def square_root(a):
    from jax.lax import while_loop
    _, root, _ = while_loop(
        lambda c: (c[0] < 100) & (jnp.abs(c[1] - c[2]) > 1e-6 * jnp.abs(c[1])),
        lambda c: (c[0] + 1, (c[1] + a / jnp.maximum(c[1], 1e-30)) / 2, c[1]),
        (0, jnp.maximum(a, 1e-12), jnp.zeros_like(a)))
    return root
""",
    "P5-4-solution-3": """
from typing import NamedTuple
class State(NamedTuple):
    count: float
    total: float
def running_mean(x, state):
    new = State(state[0] + 1, state[1] + x)
    return new.total / new.count, new
""",
    "P5-4-solution-4": """
def dropout(key, x, rate):
    if rate == 0:
        return x
    return x * (jax.random.uniform(key, x.shape) >= rate) / (1 - rate)
""",
    "P5-7-solution": """
def per_example(loss, params, x, y):
    def example_loss(params, x, y):
        return loss(params, jnp.expand_dims(x, 0), y.reshape(1))
    return jax.jit(jax.vmap(jax.jacrev(example_loss), in_axes=(None, 0, 0)))(params, x, y)
""",
    "P5-7-solution-2": """
import optax
def clipped_mean(gradients, limit):
    @jax.vmap
    def cut(gradient):
        norm = optax.global_norm(gradient)
        return jax.tree.map(lambda leaf: jnp.where(norm > limit, leaf * limit / norm, leaf), gradient)
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), cut(gradients))
""",
    "P5-8-solution": """
import optax
def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
""",
    "P5-8-solution-2": """
def make_step(optimizer, loss):
    def step(params, state, x, y):
        gradients = jax.grad(loss)(params, x, y)
        value = loss(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return jax.tree.map(lambda p, u: p + u, params, updates), state, value
    return jax.jit(step, donate_argnames=("params", "state"))
""",
    "P5-10-solution": """
from jax.sharding import NamedSharding, PartitionSpec
def split_batch(mesh, x):
    return jax.device_put(x, NamedSharding(mesh, PartitionSpec("data", *[None] * (x.ndim - 1))))

def parallel_gradient(mesh, loss):
    data, replicated = PartitionSpec("data"), PartitionSpec()
    def averaged(params, x, y):
        return jax.lax.pmean(loss(params, x, y), "data")
    specs = (replicated, data, data)
    return jax.jit(jax.shard_map(jax.grad(averaged), mesh=mesh, in_specs=specs, out_specs=replicated))
""",
    "P5-11-solution": """
def two_layers(mesh):
    P = PartitionSpec
    def part(x, w1, b1, w2, b2):
        hidden = jnp.maximum(x @ w1 + b1, 0)
        return jax.lax.psum(hidden @ w2, "model") + b2
    return jax.shard_map(part, mesh=mesh, in_specs=(P(), P(None, "model"), P("model"), P("model"), P()), out_specs=P())
""",
    "P5-12-solution": """
def all_reduce_bytes(params):
    return jax.tree.reduce(lambda total, leaf: total + leaf.size * leaf.dtype.itemsize, params, 0)

def ring_bytes(bytes, devices):
    sent = 0
    for step in range(2 * (devices - 1)):
        sent += bytes / devices
    return np.float64(sent)
""",
    "P5-13-solution": """%%writefile cluster_step.py
import sys
from functools import partial
import mlhood.jaxlab.cluster as cluster

cluster.initialize()
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from mlhood.jaxlab.cluster.program import data, loss

def main(seed, out):
    params, x, y = data(int(seed))
    mesh = jax.make_mesh((jax.process_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    x, y = (jax.make_array_from_callback(array.shape, rows, array.__getitem__) for array in (x, y))
    split = jax.shard_map(
        lambda p, x, y: jax.grad(lambda p: jax.lax.pmean(loss(p, x, y), "data"))(p), mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("data"), PartitionSpec("data")), out_specs=PartitionSpec())
    gradient = jax.jit(split)(params, x, y)
    if jax.process_index() == 0:
        np.savez(out, **jax.tree.map(np.array, gradient))

if __name__ == "__main__":
    main(*sys.argv[1:])
""",
    "P5-12-solution-2": """
def step_seconds(compute, bytes, devices, bandwidth, latency):
    return compute / devices + ring_bytes(bytes, devices) / bandwidth + 2 * (devices - 1) * latency
""",
}

PLACED = {  # what the text offers: the sum of two arrays, and arrays that are placed before a compiled function
    "P5-1-solution-2": """
def block(params, x, stride):
    def norm(p, x):
        return ops.batch_norm(x, *(p[k] for k in ("running_mean", "running_var", "weight", "bias")))
    y = ops.relu(norm(params["bn1"], ops.conv2d(x, params["conv1"]["weight"], stride=stride, padding=1)))
    y = norm(params["bn2"], ops.conv2d(y, params["conv2"]["weight"], padding=1))
    if "downsample" in params:
        x = norm(params["downsample"]["1"], ops.conv2d(x, params["downsample"]["0"]["weight"], stride=stride))
    return ops.relu(ops.add(y, x))
""",
    "P5-10-solution": """
def split_batch(mesh, x):
    return jax.device_put(x, NamedSharding(mesh, P("data")))

def parallel_gradient(mesh, loss):
    gradient = jax.jit(jax.grad(loss), out_shardings=NamedSharding(mesh, P()))
    return lambda params, x, y: gradient(params, split_batch(mesh, x), split_batch(mesh, y))
""",
    "P5-11-solution": """
def two_layers(mesh):
    layouts = [NamedSharding(mesh, spec) for spec in (P(), P(None, "model"), P("model"), P("model", None), P())]
    run = jax.jit(lambda x, w1, b1, w2, b2: jax.nn.relu(x @ w1 + b1) @ w2 + b2, out_shardings=layouts[0])
    return lambda *arrays: run(*map(jax.device_put, arrays, layouts))
""",
}

RIGHT = {
    "pure lax": LAX,
    "shard_map": SHARD_MAP,
    "placed before": PLACED,
}
