"""Typical wrong solutions of P5.6 to P5.14: gradients, training steps, primitives and clusters."""

from __future__ import annotations

from tests.grading.projects import p5_checks as check
from tests.grading.projects.examples import Mistake, mistakes
from tests.grading.projects.p5_snippets_learning import (
    clipping,
    counting,
    entropy,
    examples,
    layering,
    planning,
    predicting,
    quantizing,
    script,
    splitting,
    stepping,
    training,
)
from tests.grading.projects.p5_snippets_programs import backward, conv_rule, entropy_rule, rules

REPEATED = "jax.tree.map(lambda g: jnp.broadcast_to(g, (len(x), *g.shape)), jax.grad(loss)(params, x, y))"
BY_LEAF = {
    "P5-7-solution-2": """
def clipped_mean(gradients, limit):
    def clipped(leaf):
        norm = jnp.sqrt((leaf ** 2).reshape(len(leaf), -1).sum(axis=1))
        return jnp.tensordot(jnp.minimum(1, limit / norm), leaf, 1) / len(leaf)
    return jax.tree.map(clipped, gradients)
"""
}
SHUFFLED_IN_PLACE = {
    name: source.replace(
        "    for epoch",
        "    for data in (x, y):\n        np.random.default_rng(0).shuffle(data)\n    for epoch",
    )
    for name, source in training().items()
}

TAPE = mistakes(
    "P5.6",
    (
        "g itself",
        rules(add="(g, g) if a.shape == b.shape else (reduced(g, a), reduced(g, b))"),
        check.BY_SUM,
        "not a new array",
    ),
    ("exp overflows", entropy_rule(shift="0"), check.PULLED, "e\\^900|infinite"),
    (
        "labels have a gradient",
        entropy_rule(result="g * (p - hot) / len(labels), 0 * labels"),
        (check.PULLED, check.SHARED),
        "not None",
    ),
    ("entries without a gradient", backward(skip="pass"), check.BACK, "is passed over"),
    ("the derivative at 0", rules(relu="g * (y >= 0)"), check.BY_RELU, "At 0 the gradient is 0"),
    ("broadcast axes not summed", rules(add="g.copy(), g.copy()"), check.STRETCHED, "its operand's shape"),
    ("b is subtracted", rules(add="reduced(g, a), reduced(-g, b)"), (check.BY_SUM, check.STRETCHED), "gradient of b"),
    (
        "w is not transposed",
        rules(dense="g @ w, x.T @ g, g.sum(axis=0)"),
        check.BY_DENSE,
        "wrong shape of the gradient of w",
    ),
    ("the mean for the bias", rules(dense="g @ w, g.T @ x, g.mean(axis=0)"), check.BY_BIAS, "same bias"),
    (
        "a flipped kernel",
        conv_rule(
            by_x="scatter(np.einsum('fk,nfp->nkp', w[..., ::-1, ::-1].reshape(len(w), -1), flat), x.shape, "
            "kernel, stride, padding)"
        ),
        check.IMAGES,
        "scatter",
    ),
    (
        "only the first image",
        conv_rule(by_w="(flat[0] @ columns(x, kernel, stride, padding)[0].T).reshape(w.shape)"),
        check.FILTERS,
        "sum of",
    ),
    ("always with a bias", conv_rule(by_bias="(g.sum(axis=(0, 2, 3)),)"), check.FILTERS, "2 in a tuple"),
    (
        "stride and padding ignored",
        conv_rule(by_w="np.einsum('nfp,nkp->fk', flat, columns(x, kernel, 1, 0)).reshape(w.shape)"),
        check.MOVED,
        "stride",
    ),
    ("not divided by the batch size", entropy_rule(result="g * (p - hot), None"), check.SHARED, "a mean over N"),
    ("the last gradient overwrites", backward(add="gradients[number] = part"), check.TWICE, "exists already"),
    (
        "added in place",
        backward(add="gradients[number] = gradients[number].__iadd__(part) if number in gradients else part"),
        check.TWICE,
        "\\+=",
    ),
    ("attributes not passed", backward(call="rules[entry.op](g, y, *inputs)"), check.BACK, "factor"),
)

LEARNING: tuple[Mistake, ...] = (
    *mistakes(
        "P5.7",
        (
            "the gradient of the batch",
            examples("jax.grad(loss)(params, x, y)"),
            (check.LEAD, check.OWN),
            "the gradient of one example",
        ),
        (
            "a loop in the program",
            examples("jax.lax.map(lambda pair: jax.grad(loss)(params, pair[0][None], pair[1][None]), (x, y))"),
            check.UNROLLED,
            "loops over the examples",
        ),
        (
            "norm 0",
            clipping(
                result="jax.tree.map(lambda leaf: (leaf * (factor * norm / norm).reshape(-1, *[1] * "
                "(leaf.ndim - 1))).mean(0), gradients)"
            ),
            check.SHORT,
            "NaN",
        ),
        ("the batch's gradient for each example", examples(REPEATED), check.OWN, "not over params"),
        ("clipped leaf by leaf", BY_LEAF, check.LONG, "over all leaves"),
        ("all scaled to the limit", clipping(factor="limit / norm"), check.SHORT, "no gradient becomes longer"),
    ),
    *mistakes(
        "P5.8",
        (
            "the sum over the rows",
            entropy("-jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).sum()"),
            check.ENTROPY,
            "and their mean",
        ),
        (
            "the old state returned",
            stepping(update="updates, _ = optimizer.update(gradients, state, params)"),
            check.REMEMBERS,
            "contains the momentum",
        ),
        (
            "up the gradient",
            stepping(apply="jax.tree.map(lambda p, u: p - u, params, updates)"),
            (check.DOWN, check.REMEMBERS),
            "are added to the weights",
        ),
        ("only parameters are donated", stepping(jit="@partial(jax.jit, donate_argnums=0)"), check.DONATED, "`state`"),
        (
            "the logarithm of a softmax",
            entropy("-jnp.log(jax.nn.softmax(logits))[jnp.arange(len(labels)), labels].mean()"),
            check.ENTROPY,
            "infinite",
        ),
        ("not trained", training(epochs="range(0)"), (check.LOSSES, check.READS), "takes no step"),
        ("invented losses", training(result="params, [3.0, 2.0, 1.0]"), check.LOSSES, "not those of its steps"),
        (
            "trained on the test set",
            training(epochs="range(9)", batch="x_test[rows % 296], y_test[rows % 296]"),
            (check.LOSSES, check.READS),
            "other data than its arguments",
        ),
        ("the digits shuffled in place", SHUFFLED_IN_PLACE, check.LOSSES, "changes its arguments"),
    ),
)


PRIMITIVE = mistakes(
    "P5.9",
    ("nothing is clipped", quantizing(implementation="scale * jnp.round(x / scale)"), check.ROUNDED, "staircase"),
    ("no lowering", quantizing(lowering=""), check.COMPILED, "lowering|translation"),
    (
        "the derivative of rounding",
        quantizing(derivative="jnp.zeros_like(g)"),
        (check.STRAIGHT, check.ENDS),
        "0 nearly everywhere",
    ),
    ("the axis is lost", quantizing(axis="0"), check.AXIS, "batching rule"),
)

SHARD_MAP = "jax.shard_map({}, mesh=mesh, in_specs=({}), out_specs=P())"
SUMMED = splitting(gradient=SHARD_MAP.format("lambda p, x, y: jax.grad(loss)(p, x, y)", "P(), P('data'), P('data')"))
GATHERED = splitting(
    gradient="jax.jit(lambda p, x, y: jax.grad(loss)(p, *(jax.lax.with_sharding_constraint(array, replicated) "
    "for array in (x, y))), out_shardings=replicated)"
)
BIAS_EVERYWHERE = {
    "P5-11-solution": f"""
from jax.sharding import PartitionSpec as P
def two_layers(mesh):
    def part(x, w1, b1, w2, b2):
        return jax.lax.psum(jax.nn.relu(x @ w1 + b1) @ w2 + b2, "model")
    return {SHARD_MAP.format("part", 'P(), P(None, "model"), P("model"), P("model", None), P()')}
"""
}


CLUSTER = (
    *mistakes(
        "P5.10",
        (
            "everything on every device",
            splitting(gradient="jax.jit(jax.grad(loss), out_shardings=replicated)"),
            check.REDUCED,
            "all-red",
        ),
        (
            "the batch replicated",
            splitting("NamedSharding(mesh, P())"),
            check.SPLIT,
            "the devices hold the wrong shards",
        ),
        ("summed over devices", SUMMED, check.WHOLE, "pmean"),
        ("the batch is gathered", GATHERED, check.REDUCED, "no all-reduce"),
    ),
    *mistakes(
        "P5.11",
        ("all weights replicated", layering(specs="P(), P(), P(), P(), P()"), check.ONE_SUM, "no collective"),
        (
            "both by columns",
            layering(specs='P(), P(None, "model"), P("model"), P(None, "model"), P()'),
            check.ONE_SUM,
            "all-gather",
        ),
        ("a bias from each device", BIAS_EVERYWHERE, check.LAYERS, "added once"),
    ),
    *mistakes(
        "P5.12",
        ("float32 assumed", counting("sum(4 * leaf.size for leaf in jax.tree.leaves(params))"), check.BYTES, "float16"),
        (
            "not divided by the number of devices",
            counting(ring="2 * (devices - 1) * bytes"),
            check.RING,
            "how much does a device send",
        ),
        (
            "a single latency",
            predicting("compute / devices + latency + 2 * (devices - 1) * bytes / devices / bandwidth"),
            check.STEP,
            "each has its latency",
        ),
        (
            "computation not divided",
            predicting("compute + 2 * (devices - 1) * (latency + bytes / devices / bandwidth)"),
            check.STEP,
            "a share of the computation",
        ),
    ),
    *mistakes(
        "P5.13",
        (
            "everything in every process",
            script(gradient="jax.grad(program.loss)(params, *batch)"),
            check.PROCESSES,
            "NaN",
        ),
        (
            "each process on its own half",
            script(gradient="jax.grad(program.loss)(params, *(array[rows] for array in batch))"),
            check.PROCESSES,
            "global array",
        ),
        (
            "all parts in every process",
            script(
                gradient="jax.jit(jax.grad(program.loss))(params, *("
                "multihost_utils.process_allgather(array, tiled=True) for array in (x, y)))"
            ),
            check.PROCESSES,
            "the loss of the whole batch",
        ),
    ),
)

PLANS = mistakes(
    "P5.14",
    (
        "data parallel",
        planning(kinds="[0] * (len(widths) - 1)"),
        (check.BEATS, check.NEAR, check.REACHED),
        "whatever the sizes",
    ),
    (
        "columns and rows in turn",
        planning(kinds="[1 + i % 2 for i in range(len(widths) - 1)]"),
        (check.BEATS, check.NEAR, check.REACHED),
        "data parallelism is one of the plans",
    ),
    (
        "all in all",
        planning(h="(P(), P(), P())"),
        (check.DIVIDED, check.BEATS, check.NEAR, check.REACHED),
        "does not divide the work",
    ),
)

WRONG = (*TAPE, *LEARNING, *PRIMITIVE, *CLUSTER, *PLANS)
