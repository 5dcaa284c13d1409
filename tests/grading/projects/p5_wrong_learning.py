"""Typical wrong solutions of P5.6 to P5.14: gradients, training steps, primitives, clusters and plans."""

from __future__ import annotations

from tests.grading.projects import p5_checks as check
from tests.grading.projects.examples import changed, mistakes
from tests.grading.projects.p5_quick import TRAINING

RULE_OF_A_FIGURE = {
    "P5-6-solution-3": """
from mlhood.jaxlab.autodiff.autodiff_figures import RULES
vjp_cross_entropy = RULES["cross_entropy"]
"""
}
OPERANDS = "unbroadcast(a.shape), unbroadcast(b.shape)"
ADDED = "gradients.get(number, 0) + part"
TAPE = mistakes(
    "P5.6",
    (
        "g itself",
        (5, ("    def unb", "    if a.shape == b.shape:\n        return g, g\n\n    def unb")),
        check.BY_SUM,
        "not a new array",
    ),
    (
        "exp overflows",
        (3, ("= softmax(logits)", "= np.exp(logits) / np.exp(logits).sum(1, keepdims=True)")),
        check.PULLED,
        "e\\^900|infinite",
    ),
    ("entries without a gradient", (4, ("if entry.output in gradients", "if True")), check.BACK, "is passed over"),
    ("the derivative at 0", (1, ("x > 0", "y >= 0")), check.BY_RELU, "At 0 the gradient is 0"),
    ("broadcast axes not summed", (5, (OPERANDS, "g.copy(), g.copy()")), check.STRETCHED, "its operand's shape"),
    ("w is not transposed", (1, ("g.T @ x", "x.T @ g")), check.BY_DENSE, "wrong shape of the gradient of w"),
    ("the mean for the bias", (1, ("g.sum(0)", "g.mean(0)")), check.BY_BIAS, "same bias"),
    ("a flipped kernel", (2, ("flat.T @ g", "w[..., ::-1, ::-1].reshape(len(w), -1).T @ g")), check.IMAGES, "scatter"),
    ("only the first image", (2, (".sum(0)", "[0]")), check.FILTERS, "sum of"),
    (
        "stride and padding ignored",
        (2, ("columns(x, w.shape[2:], stride, padding)", "columns(x, w.shape[2:], 1, 0)")),
        check.MOVED,
        "stride",
    ),
    ("not divided by the batch size", (3, (" / len(labels)", "")), check.SHARED, "a mean over N"),
    ("the last gradient overwrites", (4, (ADDED, "part")), check.TWICE, "exists already"),
    (
        "added in place",
        (4, (ADDED, "gradients[number].__iadd__(part) if number in gradients else part")),
        check.TWICE,
        "\\+=",
    ),
    ("a rule of the figures' module", RULE_OF_A_FIGURE, (check.PULLED, check.SHARED), "RULES` is not available where"),
)

MAPPED, NORM = "jax.vmap(gradient)(x, y)", "jnp.sqrt(sum(squares))"
FACTOR = f"jnp.minimum(1, limit / jnp.maximum({NORM}, 1e-12))"
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
LEARNING = (
    *mistakes(
        "P5.7",
        (
            "the gradient of the batch",
            (1, (MAPPED, "jax.grad(loss)(params, x, y)")),
            (check.LEAD, check.OWN),
            "the gradient of one example",
        ),
        (
            "a loop in the program",
            (1, (MAPPED, "jax.lax.map(lambda pair: gradient(*pair), (x, y))")),
            check.UNROLLED,
            "loops over the examples",
        ),
        ("the batch's gradient for each example", (1, (MAPPED, REPEATED)), check.OWN, "not over params"),
        ("clipped leaf by leaf", BY_LEAF, check.LONG, "over all leaves"),
        ("all scaled to the limit", (2, (FACTOR, f"limit / {NORM}")), check.SHORT, "no gradient becomes longer"),
        (
            "all are scaled if one is long",
            (2, (FACTOR, f"jnp.where(({NORM} > limit).any(), limit / {NORM}, 1.0)")),
            check.SHORT,
            "its own factor",
        ),
    ),
    *mistakes(
        "P5.8",
        ("the sum over the rows", (1, (".mean()", ".sum()")), check.ENTROPY, "and their mean"),
        ("the old state returned", (2, ("updates, state =", "updates, _ =")), check.REMEMBERS, "contains the momentum"),
        (
            "up the gradient",
            (2, ("optax.apply_updates(", "jax.tree.map(lambda p, u: p - u, ")),
            (check.DOWN, check.REMEMBERS),
            "are added to the weights",
        ),
        ("only parameters are donated", (2, ("(0, 1)", "0")), check.DONATED, "`state`"),
        ("not trained", changed(TRAINING, ("range(150)", "range(0)")), (check.LOSSES, check.READS), "takes no step"),
        (
            "invented losses",
            changed(TRAINING, ("return params, losses", "return params, [3.0, 2.0, 1.0]")),
            check.LOSSES,
            "not those of its steps",
        ),
        (
            "labels of other rows",
            changed(TRAINING, ("x[batch], y[batch]", "x[batch], y[::-1][batch]")),
            (check.LOSSES, check.READS),
            "other data than its arguments",
        ),
        ("update without the weights", (2, (", state, params)\n", ", state)\n")), check.DOWN, "need the weights"),
    ),
)

STAIRCASE = 'jax.jit(staircase, static_argnames="scale")'
LOWERING = "mlir.register_lowering(fake_quantize_p, mlir.lower_fun(staircase, multiple_results=False))"
STRAIGHT = "jnp.where((steps >= -128) & (steps <= 127), tangent, 0)"
SCALE_AS_INPUT = {
    "P5-9-solution": """
fake_quantize_p = Primitive("fake_quantize")

def fake_quantize(x, *, scale):
    return fake_quantize_p.bind(x, np.asarray(scale, x.dtype))

@fake_quantize_p.def_impl
def _quantize(x, scale):
    return scale * jnp.clip(jnp.round(x / scale), -128, 127)

fake_quantize_p.def_abstract_eval(lambda x, scale: ShapedArray(x.shape, x.dtype))
mlir.register_lowering(fake_quantize_p, mlir.lower_fun(_quantize, multiple_results=False))
ad.defjvp(fake_quantize_p, lambda g, x, s: jnp.where((x / s >= -128) & (x / s <= 127), g, 0), None)
batching.primitive_batchers[fake_quantize_p] = lambda args, axes: (fake_quantize_p.bind(*args), axes[0])
"""
}
PRIMITIVE = mistakes(
    "P5.9",
    (
        "nothing is clipped",
        (1, (STAIRCASE, "lambda x, *, scale: scale * jnp.round(x / scale)")),
        (check.ROUNDED, check.COMPILED),
        "staircase",
    ),
    ("no lowering", (1, (LOWERING, "")), check.COMPILED, "lowering|translation"),
    (
        "the derivative of rounding",
        (1, (STRAIGHT, "jnp.zeros_like(tangent)")),
        (check.STRAIGHT, check.ENDS),
        "0 nearly everywhere",
    ),
    ("the axis is lost", (1, (", axes[0])", ", 0)")), check.AXIS, "batching rule"),
    ("scale as an input", SCALE_AS_INPUT, check.JAXPR, "more inputs than x"),
)

BATCH = 'device_put(x, NamedSharding(mesh, P("data")))'
GRADIENT = "jax.jit(jax.grad(loss), in_shardings=shardings, out_shardings=everywhere)"
SUMMED = """jax.shard_map(
        lambda p, x, y: jax.grad(loss)(p, x, y), mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P())"""
GATHERED = """jax.jit(lambda p, x, y: jax.grad(loss)(p, *(
        jax.lax.with_sharding_constraint(array, everywhere) for array in (x, y))), out_shardings=everywhere)"""
GLOBAL = "x, y = (jax.make_array_from_callback(array.shape, split, array.__getitem__) for array in (x, y))"
IN_EACH = ("jax.jit(jax.grad(program.loss), out_shardings=everywhere)", "jax.grad(program.loss)")
OWN_HALF = """first = jax.process_index() * len(x) // 2
x, y = (array[first : first + len(x) // 2] for array in (x, y))"""
ALL_PARTS = """
from jax.experimental import multihost_utils
x, y = (multihost_utils.process_allgather(array, tiled=True) for array in (x, y))"""


def layered(w1: str, b1: str, w2: str, result: str = "") -> dict[str, str]:
    """P5.11 by a compiled function, from the specifications of its arguments."""
    specs = f"P(), P({w1}), P({b1}), P({w2}), P()"
    return {
        "P5-11-solution": f"""
def two_layers(mesh):
    shardings = tuple(NamedSharding(mesh, spec) for spec in ({specs}))
    return jax.jit(lambda x, w1, b1, w2, b2: jax.nn.relu(x @ w1 + b1) @ w2 + b2,
                   in_shardings=shardings, out_shardings=NamedSharding(mesh, P({result})))
"""
    }


CLUSTER = (
    *mistakes(
        "P5.10",
        (
            "everything on every device",
            (1, ("in_shardings=shardings, ", "")),
            check.REDUCED,
            "no collective|all of the work",
        ),
        (
            "the batch replicated",
            (1, (BATCH, BATCH.replace('"data"', ""))),
            check.SPLIT,
            "the devices hold the wrong shards",
        ),
        ("summed over devices", (1, (GRADIENT, SUMMED)), check.WHOLE, "pmean"),
        ("the batch is gathered", (1, (GRADIENT, GATHERED)), check.REDUCED, "no collective"),
        (
            "the weights are donated",
            (1, ("out_shardings=everywhere", "out_shardings=everywhere, donate_argnums=0")),
            check.WHOLE,
            "`parallel_gradient` donates its arguments",
        ),
    ),
    *mistakes(
        "P5.11",
        ("all weights replicated", layered("", "", ""), check.ONE_SUM, "no collective"),
        ("both by columns", layered('None, "model"', '"model"', 'None, "model"'), check.ONE_SUM, "all-gather"),
        ("a bias from each device", (1, ('@ w2, "model") + b2', '@ w2 + b2, "model")')), check.LAYERS, "added once"),
        (
            "a result that is divided",
            layered('None, "model"', '"model"', '"model", None', 'None, "model"'),
            check.LAYERS,
            "is divided among the devices",
        ),
    ),
    *mistakes(
        "P5.12",
        ("float32 assumed", (1, ("leaf.size * leaf.dtype.itemsize", "4 * leaf.size")), check.BYTES, "float16"),
        (
            "not divided by the number of devices",
            (1, (" / devices * total", " * total")),
            check.RING,
            "how much does a device send",
        ),
        (
            "a single latency",
            (2, ("1) * (latency + total / devices / bandwidth)", "1) * total / devices / bandwidth + latency")),
            check.STEP,
            "each has its latency",
        ),
        (
            "the bytes of the package",
            (
                1,
                ("def ring", "from mlhood.jaxlab.cluster.collectives import ring_bytes as course\n\n\ndef ring"),
                ("2 * (devices - 1) / devices * total", "course('all-reduce', total, devices)"),
            ),
            check.RING,
            "ring_bytes` is not available",
        ),
    ),
    *mistakes(
        "P5.13",
        ("everything in every process", (1, (GLOBAL, ""), IN_EACH), check.PROCESSES, "NaN"),
        ("each process on its own half", (1, (GLOBAL, OWN_HALF), IN_EACH), check.PROCESSES, "global array"),
        (
            "all parts in every process",
            (1, (GLOBAL, GLOBAL + ALL_PARTS), (", out_shardings=everywhere", "")),
            check.PROCESSES,
            "the loss of the whole batch",
        ),
    ),
)

PLANS = mistakes(
    "P5.14",
    (
        "data parallel",
        (
            1,
            ('    ("rows", "columns", "columns"): (3, 0, 0),\n', ""),
            ('    ("rows", "whole", "columns"): (1, 1, 1 / 8),\n', ""),
        ),
        (check.BEATS, check.NEAR, check.REACHED),
        "whatever the sizes",
    ),
    (
        "columns and rows in turn",
        (
            1,
            ('    ("rows", "whole", "rows"): (0, 2, 0),\n', ""),
            ('    ("columns", "columns", "columns"): (3, 0, 0),\n', ""),
        ),
        (check.BEATS, check.NEAR, check.REACHED),
        "data parallelism is one of the plans",
    ),
    (
        "three kinds",
        (
            1,
            ('    ("rows", "whole", "columns"): (1, 1, 1 / 8),\n', ""),
            ('    ("columns", "rows", "rows"): (0, 0, 3),\n', ""),
            ('    ("columns", "rows", "columns"): (0, 0, 3),\n', ""),
        ),
        (check.REACHED,),
        "every kind of layer",
    ),
    (
        "all in all",
        (2, ("CUTS[h]", "P()")),
        (check.DIVIDED, check.BEATS, check.NEAR, check.REACHED),
        "does not divide the work",
    ),
)

WRONG = (*TAPE, *LEARNING, *PRIMITIVE, *CLUSTER, *PLANS)
