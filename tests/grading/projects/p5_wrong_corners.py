"""Wrong solutions of P5 that are right for most arguments, or reach what is off limits by another way."""

from __future__ import annotations

from tests.grading.projects import p5_checks as check
from tests.grading.projects.examples import mistakes
from tests.grading.projects.p5_snippets_learning import (
    clipping,
    counting,
    layering,
    stepping,
    training,
)
from tests.grading.projects.p5_snippets_programs import (
    backward,
    breaking_even,
    convolving,
    dropping,
    ending,
    evaluating,
    norming,
    pooling,
    remembering,
    summing,
    timing,
    to_tree,
)


def changed(cells: dict[str, str], old: str, new: str) -> dict[str, str]:
    """Return right cells in which one piece of source is replaced."""
    assert any(old in source for source in cells.values()), old
    return {name: source.replace(old, new) for name, source in cells.items()}


NETWORK_OF_ANOTHER_MODULE = {
    "P5-1-solution-3": """
from mlhood.jaxlab.operators.cases import network
def resnet(params, x):
    return network.forward(ops, params, x)
"""
}
NETWORKS = mistakes(
    "P5.1",
    ("single numbers left out", to_tree(skipped="value.ndim == 0"), check.NAMES, "no `scale.factor`"),
    (
        "the course's network, from another module",
        NETWORK_OF_ANOTHER_MODULE,
        check.LOGITS,
        "network.forward` is not available",
    ),
)

WINDOWS_OF_ONE = changed(
    pooling(), "    sides", "    if kernel == 1:\n        return x[:, :, ::stride, ::stride]\n    sides"
)
SCIPY = changed(ending(), "def softmax(x):", "from scipy.special import softmax as library\ndef softmax(x):")
SCIPY = changed(SCIPY, "powers = np.exp(", "return library(x, axis=-1)\n    powers = np.exp(")
OPERATORS = mistakes(
    "P5.2",
    (
        "padding without stride only",
        convolving(pad="(padding if stride == 1 else 0)"),
        check.STRIDES,
        "do they work together",
    ),
    ("windows of one element", WINDOWS_OF_ONE, check.LARGEST, "not a new array"),
    (
        "x itself where nothing changes",
        norming(relu="x if (x >= 0).all() else np.maximum(x, 0)", add="x + y if y.any() else x"),
        (check.RELU, check.ADD),
        "not a new array",
    ),
    ("a library's softmax", SCIPY, (check.SOFTMAX, check.STABLE), "`scipy.special.softmax` is not available where"),
)

LIMITED_SEARCH = "next((n for n in range(1, 1001) if compile_seconds + n * jax < n * no_jax), float('inf'))"
LOWERED = "jax.jit(lambda *args: function(*args)).lower(*arguments)"
TABLE = mistakes(
    "P5.3",
    ("a search that ends", breaking_even(calls=LIMITED_SEARCH), check.EARNED, "how many of these gains"),
    (
        "compiled after the clock",
        timing(inside=f"lowered = {LOWERED}", after="lowered.compile()"),
        check.TIMED,
        "leaves out the compiling",
    ),
)

SO_MANY = "(jax.random.permutation(key, x.size) >= round(rate * x.size)).reshape(x.shape)"
BROKEN = mistakes(
    "P5.4",
    ("infinities that cancel out", summing("(x.sum() + jnp.abs(x).sum()) / 2"), check.SUMMED, "from -inf to"),
    (
        "an integer count",
        remembering(
            "count, total = state[0].astype(jnp.int32) + 1, state[1] + x\nreturn total / count, (count, total)"
        ),
        check.RUNNING,
        "wrong data type of the state",
    ),
    ("exactly so many dropped", dropping(SO_MANY), check.DROPPED, "the same number of elements"),
)

TWO_LEVELS = {
    "P5-5-solution-3": """
from mlhood.jaxlab.tracing.tracer import Program
def live(program):
    needed = set(program.outputs)
    for _ in range(2):
        needed |= {x for e in program.equations if e.output in needed for x in e.inputs}
    return Program(program.inputs, tuple(e for e in program.equations if e.output in needed), program.outputs)
"""
}
COMPUTED_OUTPUTS = {
    "P5-5-solution-3": """
from mlhood.jaxlab.tracing.tracer import Program, Variable
def live(program):
    made, needed = {e.output: e for e in program.equations}, set()
    def visit(equation):
        needed.add(equation.output)
        for x in equation.inputs:
            if isinstance(x, Variable) and x in made:
                visit(made[x])
    for output in program.outputs:
        visit(made[output])
    return Program(program.inputs, tuple(e for e in program.equations if e.output in needed), program.outputs)
"""
}
REMEMBERED = changed(
    evaluating(after="values[equation.output] = EARLIER.setdefault(equation, values[equation.output])"),
    "def evaluate(",
    "EARLIER = {}\ndef evaluate(",
)
TRACER = mistakes(
    "P5.5",
    (
        "numbers that are integers, evaluated",
        evaluating(read="x if isinstance(x, float) else values[x]"),
        check.NUMBERS,
        "KeyError",
    ),
    ("results of the first call", REMEMBERED, check.RUN, "keep the value of every variable"),
    (
        "outputs copied",
        evaluating(result="tuple(np.array(read(x)) for x in program.outputs)"),
        check.AGAIN,
        "not a copy",
    ),
    ("needed at two levels", TWO_LEVELS, check.STAYS, "missing or out of order"),
    ("an input as an output", COMPUTED_OUTPUTS, check.STAYS, "KeyError"),
)

SQUARE = {
    "P5-6-solution-4": """
def backward(tape, rules):
    gradients = {len(tape.values) - 1: np.ones_like(tape.values[-1])}
    for entry in reversed(tape.entries):
        if entry.output in gradients:
            inputs = [tape.values[number] for number in entry.inputs]
            parts = rules[entry.op](gradients[entry.output], tape.values[entry.output], *inputs, **entry.attributes)
            gradients |= {i: gradients.get(i, 0) + g for i, g in zip(entry.inputs, parts) if g is not None}
    return gradients
"""
}
NO_REMAINDER = {
    "P5-6-solution-2": """
from mlhood.jaxlab.autodiff.windows import scatter
def vjp_conv2d(g, y, x, w, bias=None, stride=1, padding=0):
    n, f, high, wide = g.shape
    spread = np.zeros((n, f, (high - 1) * stride + 1, (wide - 1) * stride + 1), np.float32)
    spread[:, :, ::stride, ::stride] = g
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, spread.shape[2:], (2, 3))
    dw = np.einsum("ncijhw,nfhw->fcij", seen, spread, optimize=True)
    flat = np.einsum("fk,nfp->nkp", w.reshape(f, -1), g.reshape(n, f, -1))
    dx = scatter(flat, x.shape, w.shape[2:], stride, padding)
    return (dx, dw) if bias is None else (dx, dw, g.sum((0, 2, 3)))
"""
}
RULE_OF_A_FIGURE = {
    "P5-6-solution-3": """
from mlhood.jaxlab.autodiff.autodiff_figures import RULES
vjp_cross_entropy = RULES["cross_entropy"]
"""
}
TAPE = mistakes(
    "P5.6",
    ("a square has one gradient", SQUARE, check.TWICE, "can read a value twice"),
    ("rows that no window reaches", NO_REMAINDER, check.MOVED, "wrong shape of the gradient of w"),
    ("from the last entry", backward(last="tape.entries[-1].output"), check.BACK, "there is no gradient of value 2"),
    ("a rule of the figures' module", RULE_OF_A_FIGURE, (check.PULLED, check.SHARED), "RULES` is not available where"),
)

LEARNING = (
    *mistakes(
        "P5.7",
        (
            "all are scaled if one is long",
            clipping(factor="jnp.where((norm > limit).any(), limit / norm, 1.0)"),
            check.SHORT,
            "a factor of its own",
        ),
    ),
    *mistakes(
        "P5.8",
        (
            "update without the weights",
            stepping(update="updates, state = optimizer.update(gradients, state)"),
            check.DOWN,
            "need the weights",
        ),
        ("another start", changed(training(), "cnn.init(0)", "cnn.init(7)"), check.LOSSES, "other weights than"),
    ),
)

SCALE_AS_INPUT = {
    "P5-9-solution": """
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
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
""",
}
PRIMITIVE = mistakes(
    "P5.9",
    ("scale as an input", SCALE_AS_INPUT, check.JAXPR, "more inputs than x"),
)

DIVIDED_RESULT = changed(layering(), "NamedSharding(mesh, P()))", "NamedSharding(mesh, P(None, 'model')))")
RING_OF_THE_PACKAGE = changed(
    counting(ring="course('all-reduce', bytes, devices)"),
    "def ring_bytes",
    "from mlhood.jaxlab.cluster.collectives import ring_bytes as course\n\ndef ring_bytes",
)
CLUSTER = (
    *mistakes("P5.11", ("a result that is divided", DIVIDED_RESULT, check.LAYERS, "is divided among the devices")),
    *mistakes("P5.12", ("the bytes of the package", RING_OF_THE_PACKAGE, check.RING, "ring_bytes` is not available")),
)

WRONG = (*NETWORKS, *OPERATORS, *TABLE, *BROKEN, *TRACER, *TAPE, *LEARNING, *PRIMITIVE, *CLUSTER)
