"""Typical wrong gradients, steps, primitives and clusters of P5."""

from __future__ import annotations

from tests.grading.projects.gallery import Mistake, mistakes
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
BY_LEAF = {
    "P5-7-solution-2": """
def clipped_mean(gradients, limit):
    def one(leaf):
        norm = jnp.sqrt((leaf ** 2).reshape(len(leaf), -1).sum(axis=1))
        return jnp.tensordot(jnp.minimum(1, limit / norm), leaf, 1) / len(leaf)
    return jax.tree.map(one, gradients)
"""
}
THE_MEAN = {
    "P5-7-solution-2": """
def clipped_mean(gradients, limit):
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), gradients)
    norm = jnp.sqrt(sum((leaf ** 2).sum() for leaf in jax.tree.leaves(mean)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1, limit / norm), mean)
"""
}

LEARNING: tuple[Mistake, ...] = (
    *mistakes(
        "P5.7",
        ("the gradient of the batch", examples("jax.grad(loss)(params, x, y)"), (LEAD, OWN), "jax.vmap"),
        ("a loop", examples(LOOPED), UNROLLED, "grows with"),
        ("the batch's for each", examples(REPEATED), OWN, "in_axes"),
        ("leaf by leaf", BY_LEAF, LONG, "all leaves together"),
        ("the mean is cut", THE_MEAN, LONG, "the norm is that"),
        ("all of the limit's length", clipping(factor="limit / norm"), SHORT, "nothing is made longer"),
        (
            "the sum",
            clipping(result="jax.tree.map(lambda leaf: jnp.tensordot(factor, leaf, 1), gradients)"),
            (LONG, SHORT),
            "the mean",
        ),
    ),
    *mistakes(
        "P5.8",
        (
            "summed",
            entropy("-jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).sum()"),
            ENTROPY,
            "mean over the rows",
        ),
        (
            "a state that stays",
            stepping(update="updates, _ = optimizer.update(gradients, state, params)"),
            REMEMBERS,
            "momentum is in it",
        ),
        (
            "without the optimiser",
            stepping(apply="jax.tree.map(lambda p, g: p - 0.125 * g, params, gradients)"),
            REMEMBERS,
            "the state that",
        ),
        (
            "up the gradient",
            stepping(apply="jax.tree.map(lambda p, u: p - u, params, updates)"),
            (DOWN, REMEMBERS),
            "apply_updates",
        ),
        ("nothing is donated", stepping(jit="@jax.jit"), DONATED, "donate_argnums"),
        ("parameters are donated", stepping(jit="@partial(jax.jit, donate_argnums=0)"), DONATED, "`state`"),
        ("as it was drawn", training(epochs="range(0)"), READS, "too few digits"),
        ("one answer", training("range(0)", "jax.tree.map(jnp.zeros_like, params)"), READS, "10|9"),
    ),
)

SPELLED = (
    "jnp.clip(x, -128 * scale, 127 * scale) + jax.lax.stop_gradient(_quantize(x, scale=scale) - jnp.clip(x, "
    "-128 * scale, 127 * scale))"
)

RENAMED = {
    name: cell.replace('Primitive("fake_quantize")', 'Primitive("fake_quantize_p")')
    for name, cell in quantizing().items()
}

PRIMITIVE = mistakes(
    "P5.9",
    ("nothing is cut", quantizing(implementation="scale * jnp.round(x / scale)"), ROUNDED, "clip"),
    ("rounded down", quantizing(implementation="scale * jnp.clip(jnp.floor(x / scale), -128, 127)"), ROUNDED, "round"),
    ("no lowering", quantizing(lowering=""), COMPILED, "lowering|translation"),
    ("the derivative of rounding", quantizing(derivative="jnp.zeros_like(g)"), (STRAIGHT, ENDS), "0 nearly everywhere"),
    ("straight through without end", quantizing(derivative="g"), ENDS, "cut off"),
    ("the axis is lost", quantizing(axis="0"), AXIS, "batching rule"),
    ("under another name", RENAMED, JAXPR, "fake_quantize_p"),
    ("spelled out", quantizing(call=SPELLED), JAXPR, "Primitive"),
)

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
BIAS_EVERYWHERE = {
    "P5-10-solution-2": f"""
from jax.sharding import PartitionSpec as P
def two_layers(mesh):
    def part(x, w1, b1, w2, b2):
        return jax.lax.psum(jax.nn.relu(x @ w1 + b1) @ w2 + b2, "model")
    return {SHARD_MAP.format("part", 'P(), P(None, "model"), P("model"), P("model", None), P()')}
"""
}

CLUSTER = mistakes(
    "P5.10",
    ("a copy everywhere", splitting("NamedSharding(mesh, P())"), SPLIT, "the devices hold other"),
    ("summed over devices", SUMMED_UP, WHOLE, "pmean"),
    ("a mean of what is summed", MEAN_OF_SUMS, WHOLE, "added up over the devices already"),
    ("the batch is gathered", GATHERED, REDUCED, "all-gather"),
    ("all weights everywhere", layering(specs="P(), P(), P(), P(), P()"), ONE_SUM, "no collective"),
    (
        "both by columns",
        layering(specs='P(), P(None, "model"), P("model"), P(None, "model"), P()'),
        ONE_SUM,
        "P\\(.model., None\\)|all-gather",
    ),
    ("a bias from each", BIAS_EVERYWHERE, LAYERS, "added once"),
    ("numbers for bytes", counting("sum(leaf.size for leaf in jax.tree.leaves(params))"), BYTES, "itemsize"),
    ("as often as there are devices", counting(ring="2 * (devices - 1) * bytes"), RING, "bytes / n"),
    ("only handed round", counting(ring="(devices - 1) * bytes / devices"), RING, "to hand round"),
    ("all bytes twice", counting(ring="2 * bytes"), RING, "n - 1 steps"),
    (
        "one latency",
        predicting("compute / devices + latency + 2 * (devices - 1) * bytes / devices / bandwidth"),
        STEP,
        "\\* latency",
    ),
    (
        "all bytes in each step",
        predicting("compute / devices + 2 * (devices - 1) * (latency + bytes / bandwidth)"),
        STEP,
        "ring_bytes",
    ),
    (
        "work that is not shared",
        predicting("compute + 2 * (devices - 1) * (latency + bytes / devices / bandwidth)"),
        STEP,
        "compute / dev",
    ),
    ("half of the batch twice", script(rows="slice(0, half)"), PROCESSES, "wrong values in OUT"),
    (
        "each its own half",
        script(gradient="jax.grad(program.loss)(params, *(one[mine] for one in batch))"),
        PROCESSES,
        "global array",
    ),
    ("alone", script(start="pass"), PROCESSES, "one cluster|initialize"),
)

WRONG = (*LEARNING, *PRIMITIVE, *CLUSTER)
