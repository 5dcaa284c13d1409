"""Typical wrong solutions of P5.6 to P5.10: gradients, training steps, primitives and clusters."""

from __future__ import annotations

from tests.grading.projects.gallery import Mistake, mistakes
from tests.grading.projects.p5_checks import (
    AXIS,
    BACK,
    BEATS,
    BY_BIAS,
    BY_DENSE,
    BY_RELU,
    BY_SUM,
    BYTES,
    COMPILED,
    DIVIDED,
    DONATED,
    DOWN,
    ENDS,
    ENTROPY,
    FILTERS,
    IMAGES,
    JAXPR,
    LAYERS,
    LEAD,
    LONG,
    LOSSES,
    MOVED,
    NEAR,
    ONE_SUM,
    OWN,
    PROCESSES,
    PULLED,
    REACHED,
    READS,
    REDUCED,
    REMEMBERS,
    RING,
    ROUNDED,
    SHARED,
    SHORT,
    SPLIT,
    STEP,
    STRAIGHT,
    STRETCHED,
    TWICE,
    UNROLLED,
    WHOLE,
)
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

LOOPED = """jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *[jax.grad(loss)(params, x[i:i + 1], y[i:i + 1]) for i in range(len(x))])"""
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
CLIPPED_MEAN = {
    "P5-7-solution-2": """
def clipped_mean(gradients, limit):
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), gradients)
    norm = jnp.sqrt(sum((leaf ** 2).sum() for leaf in jax.tree.leaves(mean)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1, limit / norm), mean)
"""
}

TAPE = mistakes(
    "P5.6",
    ("written into g", rules(relu="np.multiply(g, x > 0, out=g)"), BY_RELU, "`vjp_relu` changes its arguments"),
    (
        "g itself",
        rules(add="(g, g) if a.shape == b.shape else (reduced(g, a), reduced(g, b))"),
        BY_SUM,
        "not a new array",
    ),
    ("gradients as lists", rules(dense="(g @ w).tolist(), g.T @ x, g.sum(axis=0)"), BY_DENSE, "no array"),
    ("exp overflows", entropy_rule(shift="0"), PULLED, "e\\^900|infinite"),
    ("labels have a gradient", entropy_rule("g * (p - hot) / len(labels), 0 * labels"), (PULLED, SHARED), "not None"),
    ("entries without a gradient", backward(skip="pass"), BACK, "4 is not used"),
    ("the derivative at 0", rules(relu="g * (y >= 0)"), BY_RELU, "At 0 the gradient is 0"),
    ("broadcast axes not summed", rules(add="g.copy(), g.copy()"), STRETCHED, "its operand's shape"),
    (
        "axes of size one removed",
        rules(add="np.squeeze(reduced(g, a)), np.squeeze(reduced(g, b))"),
        STRETCHED,
        "its operand's shape",
    ),
    ("b is subtracted", rules(add="reduced(g, a), reduced(-g, b)"), (BY_SUM, STRETCHED), "gradient of b"),
    ("w is not transposed", rules(dense="g @ w, x.T @ g, g.sum(axis=0)"), BY_DENSE, "wrong shape of the gradient of w"),
    ("the mean for the bias", rules(dense="g @ w, g.T @ x, g.mean(axis=0)"), BY_BIAS, "same bias"),
    (
        "a flipped kernel",
        conv_rule(
            by_x="scatter(np.einsum('fk,nfp->nkp', w[..., ::-1, ::-1].reshape(len(w), -1), flat), x.shape, "
            "kernel, stride, padding)"
        ),
        IMAGES,
        "scatter",
    ),
    (
        "only the first image",
        conv_rule(by_w="(flat[0] @ columns(x, kernel, stride, padding)[0].T).reshape(w.shape)"),
        FILTERS,
        "sum of",
    ),
    ("always with a bias", conv_rule(by_bias="(g.sum(axis=(0, 2, 3)),)"), FILTERS, "2 in a tuple"),
    (
        "stride and padding ignored",
        conv_rule(by_w="np.einsum('nfp,nkp->fk', flat, columns(x, kernel, 1, 0)).reshape(w.shape)"),
        MOVED,
        "stride",
    ),
    ("not divided by the batch size", entropy_rule("g * (p - hot), None"), SHARED, "a mean over N"),
    ("g ignored", entropy_rule("(p - hot) / len(labels), None"), SHARED, "changes by g"),
    ("the wrong sign", entropy_rule("g * (hot - p) / len(labels), None"), (PULLED, SHARED), "differentiate log"),
    ("the last gradient overwrites", backward(add="gradients[number] = part"), TWICE, "exists already"),
    (
        "added in place",
        backward(add="gradients[number] = gradients[number].__iadd__(part) if number in gradients else part"),
        TWICE,
        "\\+=",
    ),
    ("entries in forward order", backward(order="tape.entries"), (BACK, TWICE), "there is no gradient"),
    ("attributes not passed", backward(call="rules[entry.op](g, y, *inputs)"), BACK, "factor"),
)

LEARNING: tuple[Mistake, ...] = (
    *mistakes(
        "P5.7",
        (
            "the gradient of the batch",
            examples("jax.grad(loss)(params, x, y)"),
            (LEAD, OWN),
            "the gradient of one example",
        ),
        ("a loop", examples(LOOPED), UNROLLED, "grows with"),
        (
            "a loop in the program",
            examples("jax.lax.map(lambda pair: jax.grad(loss)(params, pair[0][None], pair[1][None]), (x, y))"),
            UNROLLED,
            "loops over the examples",
        ),
        (
            "norm 0",
            clipping(
                result="jax.tree.map(lambda leaf: (leaf * (factor * norm / norm).reshape(-1, *[1] * "
                "(leaf.ndim - 1))).mean(0), gradients)"
            ),
            SHORT,
            "NaN",
        ),
        ("the batch's gradient for each example", examples(REPEATED), OWN, "not over params"),
        ("clipped leaf by leaf", BY_LEAF, LONG, "over all leaves"),
        ("the mean is clipped", CLIPPED_MEAN, LONG, "that of the clipped"),
        ("all scaled to the limit", clipping(factor="limit / norm"), SHORT, "no gradient becomes longer"),
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
            "the sum over the rows",
            entropy("-jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).sum()"),
            ENTROPY,
            "and their mean",
        ),
        (
            "the old state returned",
            stepping(update="updates, _ = optimizer.update(gradients, state, params)"),
            REMEMBERS,
            "contains the momentum",
        ),
        (
            "plain gradient descent instead of the optimiser",
            stepping(apply="jax.tree.map(lambda p, g: p - 0.125 * g, params, gradients)"),
            REMEMBERS,
            "return the new one",
        ),
        (
            "up the gradient",
            stepping(apply="jax.tree.map(lambda p, u: p - u, params, updates)"),
            (DOWN, REMEMBERS),
            "are added to the weights",
        ),
        ("nothing is donated", stepping(jit="@jax.jit"), DONATED, "is not donated"),
        ("only parameters are donated", stepping(jit="@partial(jax.jit, donate_argnums=0)"), DONATED, "`state`"),
        (
            "the logarithm of a softmax",
            entropy("-jnp.log(jax.nn.softmax(logits))[jnp.arange(len(labels)), labels].mean()"),
            ENTROPY,
            "infinite",
        ),
        ("not compiled", stepping(jit=""), DONATED, "is the step compiled"),
        ("not trained", training(epochs="range(0)"), (LOSSES, READS), "takes no step"),
        ("all parameters zero", training(result="jax.tree.map(jnp.zeros_like, params), losses"), READS, "10|9"),
        ("invented losses", training(result="params, [3.0, 2.0, 1.0]"), LOSSES, "not those of its steps"),
        (
            "trained on the test set",
            training(epochs="range(9)", batch="x_test[rows % 296], y_test[rows % 296]"),
            (LOSSES, READS),
            "other data than its arguments",
        ),
        ("the digits shuffled in place", SHUFFLED_IN_PLACE, LOSSES, "changes its arguments"),
    ),
)

COMPOSED = (
    "jnp.clip(x, -128 * scale, 127 * scale) + jax.lax.stop_gradient(_quantize(x, scale=scale) - jnp.clip(x, "
    "-128 * scale, 127 * scale))"
)

RENAMED = {
    name: cell.replace('Primitive("fake_quantize")', 'Primitive("fake_quantize_p")')
    for name, cell in quantizing().items()
}

PRIMITIVE = mistakes(
    "P5.9",
    ("nothing is clipped", quantizing(implementation="scale * jnp.round(x / scale)"), ROUNDED, "staircase"),
    (
        "rounded down",
        quantizing(implementation="scale * jnp.clip(jnp.floor(x / scale), -128, 127)"),
        ROUNDED,
        "staircase",
    ),
    ("no lowering", quantizing(lowering=""), COMPILED, "lowering|translation"),
    ("the derivative of rounding", quantizing(derivative="jnp.zeros_like(g)"), (STRAIGHT, ENDS), "0 nearly everywhere"),
    ("straight through everywhere", quantizing(derivative="g"), ENDS, "a clipped value"),
    ("the axis is lost", quantizing(axis="0"), AXIS, "batching rule"),
    ("a primitive of another name", RENAMED, JAXPR, "fake_quantize_p"),
    ("composed of other operations", quantizing(call=COMPOSED), (STRAIGHT, JAXPR), "binds the primitive"),
)

SHARD_MAP = "jax.shard_map({}, mesh=mesh, in_specs=({}), out_specs=P())"
SUMMED = splitting(gradient=SHARD_MAP.format("lambda p, x, y: jax.grad(loss)(p, x, y)", "P(), P('data'), P('data')"))
MEAN_OF_SUMS = splitting(
    gradient=SHARD_MAP.format(
        "lambda p, x, y: jax.lax.pmean(jax.grad(loss)(p, x, y), 'data')", "P(), P('data'), P('data')"
    )
)
GATHERED = splitting(
    gradient="jax.jit(lambda p, x, y: jax.grad(loss)(p, *(jax.lax.with_sharding_constraint(array, replicated) "
    "for array in (x, y))), out_shardings=replicated)"
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

UNSHARDED = {
    "P5-10-solution-2": "def two_layers(mesh):\n"
    "    return jax.jit(lambda x, w1, b1, w2, b2: jax.nn.relu(x @ w1 + b1) @ w2 + b2)\n"
}

CLUSTER = mistakes(
    "P5.10",
    (
        "everything on every device",
        splitting(gradient="jax.jit(jax.grad(loss), out_shardings=replicated)"),
        REDUCED,
        "all-red",
    ),
    ("layers that are not sharded", UNSHARDED, ONE_SUM, "no collective"),
    ("float32 assumed", counting("sum(4 * leaf.size for leaf in jax.tree.leaves(params))"), BYTES, "float16"),
    ("a float", counting("float(sum(leaf.nbytes for leaf in jax.tree.leaves(params)))"), BYTES, "no integer"),
    (
        "everything in every process",
        script(gradient="jax.grad(program.loss)(params, *batch)"),
        PROCESSES,
        "NaN",
    ),
    ("the batch replicated", splitting("NamedSharding(mesh, P())"), SPLIT, "the devices hold the wrong shards"),
    ("summed over devices", SUMMED, WHOLE, "pmean"),
    ("a mean of sums", MEAN_OF_SUMS, WHOLE, "summed over the devices already"),
    ("the batch is gathered", GATHERED, REDUCED, "no all-reduce"),
    ("all weights replicated", layering(specs="P(), P(), P(), P(), P()"), ONE_SUM, "no collective"),
    (
        "both by columns",
        layering(specs='P(), P(None, "model"), P("model"), P(None, "model"), P()'),
        ONE_SUM,
        "all-gather",
    ),
    ("a bias from each device", BIAS_EVERYWHERE, LAYERS, "added once"),
    (
        "elements instead of bytes",
        counting("sum(leaf.size for leaf in jax.tree.leaves(params))"),
        BYTES,
        "how many bytes has an element",
    ),
    (
        "not divided by the number of devices",
        counting(ring="2 * (devices - 1) * bytes"),
        RING,
        "how much does a device send",
    ),
    ("only the second half of the ring", counting(ring="(devices - 1) * bytes / devices"), RING, "how many steps"),
    ("all bytes twice", counting(ring="2 * bytes"), RING, "how many steps"),
    (
        "a single latency",
        predicting("compute / devices + latency + 2 * (devices - 1) * bytes / devices / bandwidth"),
        STEP,
        "each has its latency",
    ),
    (
        "all bytes in each step of the ring",
        predicting("compute / devices + 2 * (devices - 1) * (latency + bytes / bandwidth)"),
        STEP,
        "its bytes to send",
    ),
    (
        "computation not divided",
        predicting("compute + 2 * (devices - 1) * (latency + bytes / devices / bandwidth)"),
        STEP,
        "a share of the computation",
    ),
    ("half of the batch twice", script(rows="slice(0, half)"), PROCESSES, "wrong values in OUT"),
    (
        "each process on its own half",
        script(gradient="jax.grad(program.loss)(params, *(array[rows] for array in batch))"),
        PROCESSES,
        "global array",
    ),
    (
        "all parts in every process",
        script(
            gradient="jax.jit(jax.grad(program.loss))(params, *(multihost_utils.process_allgather(array, tiled=True)"
            " for array in (x, y)))"
        ),
        PROCESSES,
        "the loss of the whole batch",
    ),
    (
        "replicated in the program",
        script(
            gradient="jax.jit(lambda p, *batch: jax.grad(program.loss)(p, *jax.lax.with_sharding_constraint("
            "batch, NamedSharding(mesh, P()))), out_shardings=NamedSharding(mesh, P()))(params, x, y)"
        ),
        PROCESSES,
        "the loss of the whole batch",
    ),
    ("no cluster", script(start="pass"), PROCESSES, "one cluster|initialize"),
)

PLANS = mistakes(
    "P5.11",
    ("data parallel", planning(kinds="[0] * (len(widths) - 1)"), (BEATS, NEAR, REACHED), "whatever the sizes"),
    (
        "columns and rows in turn",
        planning(kinds="[1 + i % 2 for i in range(len(widths) - 1)]"),
        (BEATS, NEAR, REACHED),
        "more bytes than data parallelism",
    ),
    ("all in all", planning(h="(P(), P(), P())"), (DIVIDED, BEATS, NEAR, REACHED), "does not divide the work"),
)

WRONG = (*TAPE, *LEARNING, *PRIMITIVE, *CLUSTER, *PLANS)
