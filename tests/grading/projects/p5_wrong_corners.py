"""Wrong solutions of P5 that are right for most arguments, or reach what is off limits by another way."""

from __future__ import annotations

from tests.grading.projects.gallery import mistakes
from tests.grading.projects.p5_checks import (
    ADD,
    AGAIN,
    BACK,
    BY_RELU,
    BY_SUM,
    BYTES,
    COMPILED_SIDE,
    DENSE,
    DOWN,
    DROPPED,
    EARNED,
    ENDS,
    ENTROPY,
    FILTERS,
    JAXPR,
    LARGEST,
    LAYERS,
    LOGITS,
    LOSSES,
    MOVED,
    NAMES,
    NUMBERS,
    NUMPY_SIDE,
    PIXELS,
    POOL_PADDING,
    PULLED,
    RELU,
    RING,
    ROOTS,
    RUN,
    RUNNING,
    SHAPES,
    SHARED,
    SHORT,
    SOFTMAX,
    STABLE,
    STAYS,
    STRAIGHT,
    STRIDES,
    SUMMED,
    TIMED,
    TWICE,
    ZERO,
)
from tests.grading.projects.p5_snippets_learning import (
    clipping,
    counting,
    entropy,
    layering,
    quantizing,
    stepping,
    training,
)
from tests.grading.projects.p5_snippets_programs import (
    backward,
    breaking_even,
    conv_rule,
    convolving,
    dropping,
    ending,
    entropy_rule,
    evaluating,
    filling,
    norming,
    pooling,
    recording,
    remembering,
    rules,
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
    ("single numbers left out", to_tree(skipped="value.ndim == 0"), NAMES, "no `scale.factor`"),
    (
        "the course's network, from another module",
        NETWORK_OF_ANOTHER_MODULE,
        LOGITS,
        "network.forward` is not available",
    ),
)

BLOCKS_OF_ROWS = convolving(
    product="np.concatenate([np.tensordot(windows[:, :, r:r + 32], w, ((1, 4, 5), (1, 2, 3))) "
    "for r in range(0, windows.shape[2], 32)], 1).transpose(0, 3, 1, 2)"
)
WINDOWS_OF_ONE = changed(
    pooling(), "    sides", "    if kernel == 1:\n        return x[:, :, ::stride, ::stride]\n    sides"
)
SCIPY = changed(ending(), "def softmax(x):", "from scipy.special import softmax as library\ndef softmax(x):")
SCIPY = changed(SCIPY, "powers = np.exp(", "return library(x, axis=-1)\n    powers = np.exp(")
CLIPPED = "np.clip({0}, -{1}, {1}) - np.clip({0}, -{1}, {1}).max"
OPERATORS = mistakes(
    "P5.2",
    (
        "padding without stride only",
        convolving(pad="(padding if stride == 1 else 0)"),
        STRIDES,
        "do they work together",
    ),
    ("rows in blocks", BLOCKS_OF_ROWS, PIXELS, "more lines of Python"),
    ("windows of one element", WINDOWS_OF_ONE, LARGEST, "not a new array"),
    ("zeros around strided windows", pooling(fill="0 if stride == 2 else -np.inf"), POOL_PADDING, "never the maximum"),
    ("one example", ending(dense="np.squeeze(x @ w.T + bias)"), DENSE, "wrong shape"),
    (
        "x itself where nothing changes",
        norming(relu="x if (x >= 0).all() else np.maximum(x, 0)", add="x + y if y.any() else x"),
        (RELU, ADD),
        "not a new array",
    ),
    ("a small slope", norming(relu="np.maximum(x, np.float32(1e-5) * x)"), RELU, "do not become 0"),
    ("a library's softmax", SCIPY, (SOFTMAX, STABLE), "`scipy.special.softmax` is not available where"),
    ("clipped at 5,000", changed(ending(), "x - x.max", CLIPPED.format("x", 5000)), STABLE, "can be subtracted"),
)

LIMITED_SEARCH = "next((n for n in range(1, 1001) if compile_seconds + n * jax < n * no_jax), float('inf'))"
LOWERED = "jax.jit(lambda *args: function(*args)).lower(*arguments)"
ANOTHER_PROGRAM = "jax.eval_shape(lambda *args: function(*args), *arguments)"
COMPUTED_BEFORE = "lambda result=jax.block_until_ready(compiled(*on_device)): result"
TABLE = mistakes(
    "P5.3",
    ("a search that ends", breaking_even(LIMITED_SEARCH), EARNED, "how many of these gains"),
    ("not compiled", timing(inside=LOWERED), TIMED, "does not compile"),
    (
        "another program compiled",
        timing(inside=f"{ANOTHER_PROGRAM}\njax.jit(lambda *args: args[0]).lower(*arguments).compile()"),
        TIMED,
        "does not compile",
    ),
    (
        "compiled after the clock",
        timing(inside=f"lowered = {LOWERED}", after="lowered.compile()"),
        TIMED,
        "leaves out the compiling",
    ),
    ("computed before", filling(with_jax=COMPUTED_BEFORE), COMPILED_SIDE, "does not run in each call"),
    (
        "a result on JAX's device",
        filling(no_jax="lambda: jnp.asarray(case.no_jax(*case.arguments))"),
        NUMPY_SIDE,
        "is not NumPy",
    ),
)

BISECTION = {
    "P5-4-solution-2": """
def square_root(a):
    def step(i, pair):
        low, high = pair
        middle = (low + high) / 2
        return jnp.where(middle * middle > a, low, middle), jnp.where(middle * middle > a, middle, high)
    low, high = jax.lax.fori_loop(0, 80, step, (jnp.float32(0), a + jnp.float32(1)))
    return jnp.where(a > 0, (low + high) / 2, 0.0)
"""
}
SO_MANY = "(jax.random.permutation(key, x.size) >= round(rate * x.size)).reshape(x.shape)"
PAIRS = "jnp.repeat(jax.random.bernoulli(key, 1 - rate, (x.size // 2 + 1,)), 2)[:x.size].reshape(x.shape)"
BROKEN = mistakes(
    "P5.4",
    ("infinities that cancel out", summing("(x.sum() + jnp.abs(x).sum()) / 2"), SUMMED, "from -inf to"),
    ("bisection", BISECTION, (ROOTS, ZERO), "divides by the guess"),
    (
        "an integer count",
        remembering(
            "count, total = state[0].astype(jnp.int32) + 1, state[1] + x\nreturn total / count, (count, total)"
        ),
        RUNNING,
        "wrong data type of the state",
    ),
    ("exactly so many dropped", dropping(SO_MANY), DROPPED, "the same number of elements"),
    ("pairs dropped together", dropping(PAIRS), DROPPED, "independently|wrong share"),
    (
        "the last axis dropped together",
        dropping("jax.random.bernoulli(key, 1 - rate, x.shape[:2] + (1,) * (x.ndim - 2))"),
        DROPPED,
        "independently|wrong share",
    ),
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
FEW = changed(
    evaluating(),
    "import NUMPY, Variable\n",
    'import NUMPY as ALL, Variable\nNUMPY = {op: ALL[op] for op in ("add", "sub", "mul", "matmul", "relu")}\n',
)
REMEMBERED = changed(
    evaluating(after="values[equation.output] = EARLIER.setdefault(equation, values[equation.output])"),
    "def evaluate(",
    "EARLIER = {}\ndef evaluate(",
)
TRACER = mistakes(
    "P5.5",
    (
        "numbers that are integers, recorded",
        recording(shape="SHAPES[op](*(() if isinstance(x, float) else x.shape for x in operands))"),
        SHAPES,
        "'int' object has no attribute 'shape'",
    ),
    (
        "numbers that are integers, evaluated",
        evaluating(read="x if isinstance(x, float) else values[x]"),
        NUMBERS,
        "KeyError",
    ),
    ("results of the first call", REMEMBERED, RUN, "for the second time"),
    (
        "outputs are variables",
        evaluating(result="tuple(values[x] for x in program.outputs)"),
        NUMBERS,
        "KeyError: 2.5",
    ),
    ("outputs copied", evaluating(result="tuple(np.array(read(x)) for x in program.outputs)"), AGAIN, "not a copy"),
    ("five operations", FEW, RUN, "KeyError"),
    ("needed at two levels", TWO_LEVELS, STAYS, "missing or out of order"),
    ("an input as an output", COMPUTED_OUTPUTS, STAYS, "KeyError"),
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
    ("a square has one gradient", SQUARE, TWICE, "can read a value twice"),
    ("rows that no window reaches", NO_REMAINDER, MOVED, "wrong shape of the gradient of w"),
    (
        "x has a gradient with a bias only",
        changed(conv_rule(), "return scatter", "return (bias is not None) * scatter"),
        FILTERS,
        "a bias changes neither",
    ),
    (
        "one array for both",
        rules(add="(reduced(g, a),) * 2 if a.shape == b.shape else (reduced(g, a), reduced(g, b))"),
        BY_SUM,
        "the same memory",
    ),
    ("g where all are positive", rules(relu="g if (x > 0).all() else g * (x > 0)"), BY_RELU, "not a new array"),
    (
        "logits clipped at 10,000",
        changed(entropy_rule(), "logits - logits.max", CLIPPED.format("logits", 10_000)),
        PULLED,
        "as in P5.2",
    ),
    ("from the last entry", backward(last="tape.entries[-1].output"), BACK, "there is no gradient of value 2"),
    ("a rule of the figures' module", RULE_OF_A_FIGURE, (PULLED, SHARED), "RULES` is not available where"),
)

LEARNING = (
    *mistakes(
        "P5.7",
        (
            "all are scaled if one is long",
            clipping(factor="jnp.where((norm > limit).any(), limit / norm, 1.0)"),
            SHORT,
            "a factor of its own",
        ),
    ),
    *mistakes(
        "P5.8",
        (
            "update without the weights",
            stepping(update="updates, state = optimizer.update(gradients, state)"),
            DOWN,
            "need the weights",
        ),
        (
            "logits clipped at 10,000",
            changed(entropy(), "log_softmax(logits)", "log_softmax(jnp.clip(logits, -1e4, 1e4))"),
            ENTROPY,
            "its label",
        ),
        ("losses as arrays", changed(training(), "float(loss)", "loss"), LOSSES, "not Python's numbers"),
        ("another start", changed(training(), "cnn.init(0)", "cnn.init(7)"), LOSSES, "other weights than"),
        (
            "another loss",
            changed(training(), "optimizer, training_loss", "optimizer, lambda *all: 2 * training_loss(*all)"),
            LOSSES,
            "do not minimise",
        ),
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
    "P5-9-solution-2": "",
}
PRIMITIVE = mistakes(
    "P5.9",
    (
        "the range of the rounded value",
        quantizing(derivative="jnp.where(jnp.abs(jnp.round(x / scale) + 0.5) <= 127.5, g, 0)"),
        ENDS,
        "both ends of the range are inside",
    ),
    ("scale as an input", SCALE_AS_INPUT, JAXPR, "more inputs than x"),
    (
        "a derivative of float32",
        quantizing(derivative="g * ((x / scale >= -128) & (x / scale <= 127)).astype(jnp.float32)"),
        STRAIGHT,
        "float16",
    ),
)

DIVIDED_RESULT = changed(layering(), "NamedSharding(mesh, P()))", "NamedSharding(mesh, P(None, 'model')))")
RING_OF_THE_BENCH = changed(
    counting(ring="course('all-reduce', bytes, devices)"),
    "def ring_bytes",
    "from mlhood.jaxlab.cluster.bench import ring_bytes as course\n\ndef ring_bytes",
)
TWO_TYPES = "sum(leaf.size * {'float32': 4, 'float16': 2}[str(leaf.dtype)] for leaf in jax.tree.leaves(params))"
CLUSTER = mistakes(
    "P5.10",
    ("a result that is divided", DIVIDED_RESULT, LAYERS, "is divided among the devices"),
    ("two types", counting(TWO_TYPES), BYTES, "int8"),
    (
        "a single number has no shape",
        counting("sum(np.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))"),
        BYTES,
        "no integer",
    ),
    ("the bytes of the bench", RING_OF_THE_BENCH, RING, "bench.ring_bytes` is not available where"),
)

WRONG = (*NETWORKS, *OPERATORS, *TABLE, *BROKEN, *TRACER, *TAPE, *LEARNING, *PRIMITIVE, *CLUSTER)
