"""Typical wrong solutions of P5.1 to P5.5: networks, operators, the table, repaired programs and tracers."""

from __future__ import annotations

from tests.grading.projects import p5_checks as check
from tests.grading.projects.examples import changed, edited, mistakes
from tests.grading.projects.p5_quick import FILL, TABLE

FLAT = {
    "P5-1-solution": """
def to_tree(state):
    return {name: jnp.asarray(value) for name, value in state.items() if "num_batches" not in name}
"""
}
NETWORK_OF_ANOTHER_MODULE = {
    "P5-1-solution-3": """
from mlhood.jaxlab.operators.cases import network
def resnet(params, x):
    return network.forward(ops, params, x)
"""
}
NETWORKS = mistakes(
    "P5.1",
    ("NumPy arrays", (1, ("jnp.asarray(value)", "value")), check.LEAVES, "jnp.asarray"),
    ("names with dots", FLAT, check.NAMES, "one dictionary for each part"),
    (
        "statistics of the batch",
        (2, ('p["running_mean"], p["running_var"]', "x.mean((0, 2, 3)), x.var((0, 2, 3))")),
        (check.ADDED, check.PROJECTED),
        "running_mean",
    ),
    (
        "a projection without stride",
        (2, ('project["0"]["weight"], stride=stride', 'project["0"]["weight"]')),
        check.PROJECTED,
        "with the stride of conv1",
    ),
    ("no padding in the first convolution", (3, (", padding=3", "")), check.LOGITS, "padding 3"),
    (
        "the course's network, from another module",
        NETWORK_OF_ANOTHER_MODULE,
        check.LOGITS,
        "network.forward` is not available",
    ),
)

PRODUCT = "(w.reshape(len(w), size) @ columns).reshape(n, len(w), oh, ow)"
BY_ROWS = """np.stack([
        np.tensordot(windows[:, :, row], w, ((1, 3, 4), (1, 2, 3))) for row in range(oh)], 1).transpose(0, 3, 1, 2)"""
IN_JAX = {
    "P5-2-solution": """
from mlhood.jaxlab.operators import with_jax
def conv2d(x, w, bias=None, stride=1, padding=0):
    return np.asarray(with_jax.conv2d(jnp.asarray(x), w, bias, stride, padding))
"""
}
MAXIMUM, SUM = "x.max(-1, keepdims=True)", "powers.sum(-1, keepdims=True)"
OPERATORS = mistakes(
    "P5.2",
    ("added in place", (5, ("x + y", "x.__iadd__(y)")), check.ADD, "`add` changes its arguments"),
    (
        "float64 inside",
        (4, ("return x @", "return x.astype(np.float64) @")),
        (check.DENSE, check.DENSE_BIAS),
        "wrong data type",
    ),
    ("a large negative number as padding", (2, ("-np.inf", "-1e9")), check.POOL_PADDING, "never the maximum"),
    ("a loop over rows", (1, (PRODUCT, BY_ROWS)), check.PIXELS, "sliding_window_view"),
    ("a flipped kernel", (1, ("(w.reshape(", "(w[..., ::-1, ::-1].reshape(")), check.CONV, "not flipped"),
    ("strides in one direction", (1, ("::stride, ::stride]", "::stride]")), check.STRIDES, "by stride columns"),
    ("no padding", (1, ("(padding, padding), (padding, padding)", "(0, 0), (0, 0)")), check.PADDING, "np.pad"),
    ("a bias for each column", (1, ("bias[:, None, None]", "bias")), check.BIAS, "one bias for each"),
    (
        "JAX inside",
        IN_JAX,
        (check.CONV, check.STRIDES, check.PADDING, check.BIAS, check.PIXELS),
        "`jax.numpy.asarray` is not available where",
    ),
    (
        "the sum of each window",
        (2, ("np.maximum(", "np.add(")),
        (check.LARGEST, check.POOL_PADDING, check.POOL_STRIDES),
        "the largest of",
    ),
    (
        "statistics of the batch",
        (3, ("    scale =", "    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))\n    scale =")),
        (check.NORM, check.EPS),
        "one number for each channel",
    ),
    (
        "eps outside the root",
        (3, ("np.sqrt(var + eps)", "(np.sqrt(var) + eps)")),
        check.EPS,
        "where in the formula is eps",
    ),
    ("the mean over the wrong axes", (5, ("(2, 3)", "(1, 2)")), check.MEANS, "which axes"),
    ("no bias", (4, (" + bias", "")), check.DENSE_BIAS, "every row of the product"),
    ("the maximum of the whole array", (4, (MAXIMUM, "x.max()")), check.STABLE, "can be subtracted"),
    (
        "softmax along the first axis",
        (4, (MAXIMUM, "x.max()"), (SUM, "powers.sum(0)")),
        (check.SOFTMAX, check.STABLE),
        "those of the last axis",
    ),
    (
        "x itself where nothing changes",
        edited("P5-2-solution-3", ("return np.maximum", "return x if (x >= 0).all() else np.maximum"))
        | edited("P5-2-solution-5", ("x + y", "x + y if y.any() else x")),
        (check.RELU, check.ADD),
        "not a new array",
    ),
)

CLOCK = "return time.perf_counter() - start"
COLUMN_BY_COLUMN = """for name, call in alternatives.items():
        table[row, name] = timed({name: call})[name]"""
FORGED = """table.fill(row, timed(alternatives))
    cell = table[row, "No-JAX"]
    table[row, "No-JAX"] = Measurement(tuple(100 * s for s in cell.seconds), None, cell.run, cell.agreed)"""
COMPARISONS = mistakes(
    "P5.3",
    ("a float", (1, ("int(", "float(")), (check.EARNED, check.TIE), "no integer"),
    ("the function itself", (2, ("lambda *args: function(*args)", "function")), check.TIMED, "remembers"),
    (
        "JAX is not jitted",
        changed(TABLE, ("compiled(*on_device)", "case.with_jax(*on_device)")),
        check.COMPILED_SIDE,
        "compiled once",
    ),
    (
        "NumPy on arrays of the device",
        changed(TABLE, ("no_jax(*case.arguments)", "no_jax(*on_device)")),
        check.NUMPY_SIDE,
        "on the NumPy arrays",
    ),
    (
        "transferred in each call",
        changed(TABLE, ("compiled(*on_device)", "compiled(*case.arguments)")),
        check.COMPILED_SIDE,
        "without transfers",
    ),
    ("zero if there is no gain", (1, ('float("inf")', "0")), check.NEVER, "float\\(.inf.\\)"),
    (
        "timing a first call",
        (2, (".lower(*arguments).compile()", "(*arguments).block_until_ready()")),
        check.NOT_RUN,
        "does not call it",
    ),
    ("one column after the other", changed(TABLE, (FILL, COLUMN_BY_COLUMN)), check.COMPARED, "side by side"),
    (
        "missing rows",
        changed(TABLE, ("in cases.items()", "in list(cases.items())[:8]")),
        (check.COMPARED, check.AGREED, check.FASTER),
        "ResNet-18/No-JAX",
    ),
    (
        "results not compared",
        changed(TABLE, ("shortest=1e-4", "shortest=1e-4, check=False")),
        check.AGREED,
        "never compared",
    ),
    (
        "a column multiplied by 100",
        changed(TABLE, (FILL, FORGED)),
        (check.COMPARED, check.AGREED, check.FASTER),
        "as it says",
    ),
    (
        "compiled after the clock",
        (
            2,
            ("    jax.jit", "    lowered = jax.jit"),
            (".compile()", ""),
            (CLOCK, "seconds = time.perf_counter() - start\n    lowered.compile()\n    return seconds"),
        ),
        check.TIMED,
        "is not compiled ",
    ),
)

NEWTON = "while_loop(differs, improve, a + 1)"
WHILE = """r = a + 1
    while differs(r):
        r = improve(r)
    return r"""
MEAN, KEPT = "count, total = state[0] + 1, state[1] + x", "jax.random.bernoulli(key, 1 - rate, x.shape)"
SO_MANY = "(jax.random.permutation(key, x.size) >= round(rate * x.size)).reshape(x.shape)"
BROKEN = mistakes(
    "P5.4",
    (
        "exp and log",
        {"P5-4-solution-2": "def square_root(a):\n    return jnp.where(a > 0, jnp.exp(jnp.log(a) / 2), 0.0)\n"},
        (check.ROOTS, check.ZERO),
        "the operations exponential, log",
    ),
    ("a mask as an index", (1, ("jnp.where(x > 0, x, 0)", "x[x > 0]")), (check.SUMMED, check.ROWS), "a Boolean index"),
    ("a Python loop", (2, (f"return jax.lax.{NEWTON}", WHILE)), (check.ROOTS, check.ZERO), "while_loop"),
    ("zero not handled", (2, ("> 1e-6 * a\n", ">= 1e-6 * a\n")), check.ZERO, "0 / 0|half of the previous"),
    (
        "state in a global list",
        (
            3,
            ("def running", "seen = []\n\n\ndef running"),
            (MEAN, "seen.append(x)\n    count, total = len(seen), sum(seen)"),
        ),
        (check.RUNNING, check.SAME),
        "wrong data type of the state after 1",
    ),
    ("NumPy's random numbers", (4, (KEPT, "np.random.random(x.shape) > rate")), check.MASKS, "never np"),
    ("not scaled", (4, ("x / (1 - rate), 0", "x, 0")), check.SCALED, "by which factor"),
    ("whole rows dropped", (4, ("rate, x.shape)", "rate, (len(x), 1))")), check.DROPPED, "wrong sha"),
    ("exactly so many dropped", (4, (KEPT, SO_MANY)), check.DROPPED, "the same number of elements"),
)

OUTPUTS, NEEDED = "map(read, program.outputs)", "needed, kept = set(program.outputs)"
READ = "values[operand] if isinstance(operand, Variable) else operand"
LAST = "program.outputs or [program.equations[-1].output]"
ALL_READ = "{x for e in program.equations for x in e.inputs if isinstance(x, Variable)}"
TWO_LEVELS = """    for _ in range(2):
        needed |= {x for e in program.equations if e.output in needed for x in e.inputs}
    for equation in reversed"""
TRACER = mistakes(
    "P5.5",
    (
        "a list of outputs",
        (2, (f"tuple({OUTPUTS})", f"list({OUTPUTS})")),
        (check.RUN, check.NUMBERS, check.AGAIN),
        "no tuple in",
    ),
    ("the same variable each time", (1, ("fresh(SHAPES", "Variable(0, SHAPES")), check.NEW, "fresh"),
    (
        "numbers are left out",
        (1, ("tuple(operands)", "tuple(x for x in operands if isinstance(x, Variable))")),
        check.WRITTEN,
        "does not append one equation",
    ),
    ("numbers have one element", (1, ("else ()", "else (1,)")), check.SHAPES, "has the wrong shape"),
    (
        "nothing is appended",
        (1, ("equations.append(Equation(op, tuple(operands), output))", "pass")),
        check.WRITTEN,
        "does not append one equation",
    ),
    ("all operands are variables", (2, (READ, "values[operand]")), check.NUMBERS, "not a Variable is a number"),
    (
        "the last result is an output of a program without outputs",
        edited("P5-5-solution-2", (OUTPUTS, f"map(read, {LAST})"))
        | edited("P5-5-solution-3", ("set(program.outputs)", f"set({LAST})")),
        (check.NUMBERS, check.GONE),
        "the wrong number of items",
    ),
    (
        "nothing is removed",
        {"P5-5-solution-3": "def live(program):\n    return program\n"},
        (check.GONE, check.STAYS),
        "who needs",
    ),
    (
        "every value that is read is kept",
        (3, (NEEDED, f"needed, kept = {ALL_READ}")),
        (check.GONE, check.STAYS),
        "first the outputs",
    ),
    (
        "needed at two levels",
        (
            3,
            ("    for equation in reversed", TWO_LEVELS),
            ("needed.update(x for x in equation.inputs if isinstance(x, Variable))", "pass"),
        ),
        check.STAYS,
        "missing or out of order",
    ),
)

WRONG = (*NETWORKS, *OPERATORS, *COMPARISONS, *BROKEN, *TRACER)
