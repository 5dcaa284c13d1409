"""Typical wrong gradients, steps, primitives and clusters of P5."""

from __future__ import annotations

from tests.grading.projects.gallery import Wrong
from tests.grading.projects.p5_checks import (
    AXIS,
    BYTES,
    COMPILED,
    DONATED,
    DOWN,
    ENDS,
    ENTROPY,
    JAXPR,
    LAYERS,
    LEAD,
    LONG,
    ONE_SUM,
    OWN,
    PROCESSES,
    READS,
    REDUCED,
    REMEMBERS,
    RING,
    ROUNDED,
    SHORT,
    SPLIT,
    STEP,
    STRAIGHT,
    UNROLLED,
    WHOLE,
)
from tests.grading.projects.p5_snippets_learning import (
    clipping,
    counting,
    entropy,
    examples,
    layering,
    predicting,
    quantizing,
    script,
    splitting,
    stepping,
    training,
)

LOOPED = """jax.tree.map(
        lambda *all: jnp.stack(all), *[jax.grad(loss)(params, x[i:i + 1], y[i:i + 1]) for i in range(len(x))])"""
REPEATED = "jax.tree.map(lambda g: jnp.broadcast_to(g, (len(x), *g.shape)), jax.grad(loss)(params, x, y))"
BY_LEAF = {"P5-7-solution-2": """
def clipped_mean(gradients, limit):
    def one(leaf):
        norm = jnp.sqrt((leaf ** 2).reshape(len(leaf), -1).sum(axis=1))
        return jnp.tensordot(jnp.minimum(1, limit / norm), leaf, 1) / len(leaf)
    return jax.tree.map(one, gradients)
"""}  # fmt: skip
THE_MEAN = {"P5-7-solution-2": """
def clipped_mean(gradients, limit):
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), gradients)
    norm = jnp.sqrt(sum((leaf ** 2).sum() for leaf in jax.tree.leaves(mean)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1, limit / norm), mean)
"""}  # fmt: skip

LEARNING: tuple[Wrong, ...] = (
    Wrong("the gradient of the batch", "P5.7", examples("jax.grad(loss)(params, x, y)"), (LEAD, OWN), "jax.vmap"),
    Wrong("a loop", "P5.7", examples(LOOPED), (UNROLLED,), "grows with"),
    Wrong("the batch's for each", "P5.7", examples(REPEATED), (OWN,), "in_axes"),
    Wrong("leaf by leaf", "P5.7", BY_LEAF, (LONG,), "all leaves together"),
    Wrong("the mean is cut", "P5.7", THE_MEAN, (LONG,), "the norm is that"),
    Wrong("all of the limit's length", "P5.7", clipping(factor="limit / norm"), (SHORT,), "nothing is made longer"),
    Wrong("the sum", "P5.7", clipping(result="jax.tree.map(lambda leaf: jnp.tensordot(factor, leaf, 1), gradients)"),
          (LONG, SHORT), "the mean"),
    Wrong("summed", "P5.8", entropy("-jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).sum()"),
          (ENTROPY,), "mean over the rows"),
    Wrong("a state that stays", "P5.8", stepping(update="updates, _ = optimizer.update(gradients, state, params)"),
          (REMEMBERS,), "momentum is in it"),
    Wrong("without the optimiser", "P5.8",
          stepping(apply="jax.tree.map(lambda p, g: p - 0.125 * g, params, gradients)"), (REMEMBERS,),
          "the state that"),
    Wrong("up the gradient", "P5.8", stepping(apply="jax.tree.map(lambda p, u: p - u, params, updates)"),
          (DOWN, REMEMBERS), "apply_updates"),
    Wrong("nothing is donated", "P5.8", stepping(jit="@jax.jit"), (DONATED,), "donate_argnums"),
    Wrong("parameters are donated", "P5.8", stepping(jit="@partial(jax.jit, donate_argnums=0)"), (DONATED,), "`state`"),
    Wrong("as it was drawn", "P5.8", training(epochs="range(0)"), (READS,), "too few digits"),
    Wrong("one answer", "P5.8", training("range(0)", "jax.tree.map(jnp.zeros_like, params)"), (READS,), "10|9"),
)  # fmt: skip

SPELLED = "jnp.clip(x, -128 * scale, 127 * scale) + jax.lax.stop_gradient(_quantize(x, scale=scale) - jnp.clip(x, " \
    "-128 * scale, 127 * scale))"  # fmt: skip

RENAMED = {
    name: cell.replace('Primitive("fake_quantize")', 'Primitive("fake_quantize_p")')
    for name, cell in quantizing().items()
}

PRIMITIVE: tuple[Wrong, ...] = (
    Wrong("nothing is cut", "P5.9", quantizing(implementation="scale * jnp.round(x / scale)"), (ROUNDED,), "clip"),
    Wrong("rounded down", "P5.9", quantizing(implementation="scale * jnp.clip(jnp.floor(x / scale), -128, 127)"),
          (ROUNDED,), "round"),
    Wrong("no lowering", "P5.9", quantizing(lowering=""), (COMPILED,), "lowering|translation"),
    Wrong("the derivative of rounding", "P5.9", quantizing(derivative="jnp.zeros_like(g)"), (STRAIGHT, ENDS),
          "0 nearly everywhere"),
    Wrong("straight through without end", "P5.9", quantizing(derivative="g"), (ENDS,), "cut off"),
    Wrong("the axis is lost", "P5.9", quantizing(axis="0"), (AXIS,), "batching rule"),
    Wrong("under another name", "P5.9", RENAMED, (JAXPR,), "fake_quantize_p"),
    Wrong("spelled out", "P5.9", quantizing(call=SPELLED), (JAXPR,), "Primitive"),
)  # fmt: skip

SHARD_MAP = "jax.shard_map({}, mesh=mesh, in_specs=({}), out_specs=P())"
SUMMED_UP = splitting(gradient=SHARD_MAP.format("lambda p, x, y: jax.grad(loss)(p, x, y)", "P(), P('data'), P('data')"))
MEAN_OF_SUMS = splitting(
    gradient=SHARD_MAP.format(
        "lambda p, x, y: jax.lax.pmean(jax.grad(loss)(p, x, y), 'data')", "P(), P('data'), P('data')"
    )
)
GATHERED = splitting(
    gradient="jax.jit(lambda p, x, y: jax.grad(loss)(p, *(jax.lax.with_sharding_constraint(one, all_of_it) "
    "for one in (x, y))), out_shardings=all_of_it)"
)
BIAS_EVERYWHERE = {"P5-10-solution-2": f"""
from jax.sharding import PartitionSpec as P
def two_layers(mesh):
    def part(x, w1, b1, w2, b2):
        return jax.lax.psum(jax.nn.relu(x @ w1 + b1) @ w2 + b2, "model")
    return {SHARD_MAP.format("part", 'P(), P(None, "model"), P("model"), P("model", None), P()')}
"""}  # fmt: skip

CLUSTER: tuple[Wrong, ...] = (
    Wrong("a copy everywhere", "P5.10", splitting("NamedSharding(mesh, P())"), (SPLIT,), "the devices hold other"),
    Wrong("summed over devices", "P5.10", SUMMED_UP, (WHOLE,), "pmean"),
    Wrong("a mean of what is summed", "P5.10", MEAN_OF_SUMS, (WHOLE,), "added up over the devices already"),
    Wrong("the batch is gathered", "P5.10", GATHERED, (REDUCED,), "all-gather"),
    Wrong("all weights everywhere", "P5.10", layering(specs="P(), P(), P(), P(), P()"), (ONE_SUM,), "no collective"),
    Wrong("both by columns", "P5.10", layering(specs='P(), P(None, "model"), P("model"), P(None, "model"), P()'),
          (ONE_SUM,), "P\\(.model., None\\)|all-gather"),
    Wrong("a bias from each", "P5.10", BIAS_EVERYWHERE, (LAYERS,), "added once"),
    Wrong("numbers for bytes", "P5.10", counting("sum(leaf.size for leaf in jax.tree.leaves(params))"), (BYTES,),
          "itemsize"),
    Wrong("as often as there are devices", "P5.10", counting(ring="2 * (devices - 1) * bytes"), (RING,), "bytes / n"),
    Wrong("only handed round", "P5.10", counting(ring="(devices - 1) * bytes / devices"), (RING,), "to hand round"),
    Wrong("all bytes twice", "P5.10", counting(ring="2 * bytes"), (RING,), "n - 1 steps"),
    Wrong("one latency", "P5.10",
          predicting("compute / devices + latency + 2 * (devices - 1) * bytes / devices / bandwidth"), (STEP,),
          "\\* latency"),
    Wrong("all bytes in each step", "P5.10",
          predicting("compute / devices + 2 * (devices - 1) * (latency + bytes / bandwidth)"), (STEP,), "ring_bytes"),
    Wrong("work that is not shared", "P5.10",
          predicting("compute + 2 * (devices - 1) * (latency + bytes / devices / bandwidth)"), (STEP,),
          "compute / dev"),
    Wrong("half of the batch twice", "P5.10", script(rows="slice(0, half)"), (PROCESSES,), "wrong values in OUT"),
    Wrong("each its own half", "P5.10",
          script(gradient="jax.grad(program.loss)(params, *(one[mine] for one in batch))"), (PROCESSES,),
          "global array"),
    Wrong("alone", "P5.10", script(start="pass"), (PROCESSES,), "one cluster|initialize"),
)  # fmt: skip

WRONG = (*LEARNING, *PRIMITIVE, *CLUSTER)
