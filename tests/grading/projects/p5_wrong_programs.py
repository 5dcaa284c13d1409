"""Typical wrong solutions of P5.1 to P5.5: networks, operators, the table, repaired programs and tracers."""

from __future__ import annotations

from tests.grading.projects.gallery import mistakes
from tests.grading.projects.p5_checks import (
    ADD,
    ADDED,
    AGAIN,
    AGREED,
    BIAS,
    COMPARED,
    COMPILED_SIDE,
    CONV,
    DENSE,
    DENSE_BIAS,
    DROPPED,
    EARNED,
    EPS,
    FASTER,
    GONE,
    LARGEST,
    LEAVES,
    LOGITS,
    MASKS,
    MEANS,
    NAMES,
    NEVER,
    NEW,
    NORM,
    NOT_RUN,
    NUMBERS,
    NUMPY_SIDE,
    PADDING,
    PIXELS,
    POOL_PADDING,
    POOL_STRIDES,
    PROJECTED,
    RELU,
    ROOTS,
    ROWS,
    RUN,
    RUNNING,
    SAME,
    SCALED,
    SHAPES,
    SOFTMAX,
    STABLE,
    STAYS,
    STRIDES,
    SUMMED,
    TIE,
    TIMED,
    WRITTEN,
    ZERO,
)
from tests.grading.projects.p5_snippets_programs import (
    block,
    breaking_even,
    convolving,
    dropping,
    ending,
    evaluating,
    filling,
    living,
    norming,
    pooling,
    recording,
    remembering,
    resnet,
    rooting,
    summing,
    timing,
    to_tree,
)

BATCH_STATISTICS = """[(y - y.mean((0, 2, 3), keepdims=True)) / jnp.sqrt(y.var((0, 2, 3), keepdims=True) + 1e-5)
            * p['weight'][:, None, None] + p['bias'][:, None, None]][0]"""
WITHOUT_EPS = "ops.batch_norm(y, p['running_mean'], p['running_var'], p['weight'], p['bias'], eps=0.0)"
FLAT = {
    "P5-1-solution": """
def to_tree(state):
    return {name: jnp.asarray(value) for name, value in state.items() if "num_batches" not in name}
"""
}
LOOPS = {
    "P5-2-solution": """
def conv2d(x, w, bias=None, stride=1, padding=0):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    (n, _, high, wide), (f, _, kh, kw) = x.shape, w.shape
    y = np.zeros((n, f, (high - kh) // stride + 1, (wide - kw) // stride + 1), np.float32)
    for oh in range(y.shape[2]):
        for ow in range(y.shape[3]):
            window = x[:, None, :, oh * stride:oh * stride + kh, ow * stride:ow * stride + kw]
            y[:, :, oh, ow] = (window * w).sum(axis=(2, 3, 4))
    return y if bias is None else y + bias[:, None, None]
"""
}
BY_ROWS = convolving(
    product="np.stack([np.tensordot(windows[:, :, r], w, ((1, 3, 4), (1, 2, 3))) for r in range(windows.shape[2])], "
    "1).transpose(0, 3, 1, 2)"
)
IN_JAX = {
    "P5-2-solution": """
from mlhood.jaxlab.operators import with_jax
def conv2d(x, w, bias=None, stride=1, padding=0):
    return np.asarray(with_jax.conv2d(jnp.asarray(x), w, bias, stride, padding))
"""
}

EMPTIED = {
    "P5-1-solution": """
def to_tree(state):
    tree = {}
    for name in [name for name in state if name.endswith("tracked")]:
        del state[name]
    for name, value in state.items():
        *path, last = name.split(".")
        here = tree
        for part in path:
            here = here.setdefault(part, {})
        here[last] = jnp.asarray(value)
    return tree
"""
}

NETWORKS = mistakes(
    "P5.1",
    ("counters deleted from the state", EMPTIED, (NAMES, LEAVES), "`to_tree` changes its arguments"),
    ("projected where there is a stride", block(when="stride == 2"), PROJECTED, "stride 1, with downsample"),
    (
        "projected where the channels change",
        block(when='params["conv1"]["weight"].shape[1] != len(params["conv1"]["weight"])'),
        PROJECTED,
        "with downsample",
    ),
    ("batch counters kept", to_tree(skipped="False"), LEAVES, "still contains batch counters"),
    ("NumPy arrays", to_tree(leaf="value"), LEAVES, "jnp.asarray"),
    ("names with dots", FLAT, NAMES, "one dictionary for each part"),
    ("integers as keys", to_tree(step="int(part) if part.isdigit() else part"), NAMES, '"0"'),
    ("statistics of the batch", block(norm=BATCH_STATISTICS), (ADDED, PROJECTED), "running_mean"),
    ("no epsilon", block(norm=WITHOUT_EPS), (ADDED, PROJECTED), "1e-5"),
    ("relu before the sum", block(result="ops.add(ops.relu(y), x)"), (ADDED, PROJECTED), "relu of that"),
    (
        "a projection without stride",
        block(shortcut="ops.conv2d(x, params['downsample']['0']['weight'])"),
        PROJECTED,
        "with the stride of conv1",
    ),
    ("no padding in the first convolution", resnet(stem="stride=2"), LOGITS, "padding 3"),
    ("no stage has a stride", resnet(stride="1"), LOGITS, "stride 2 in layer2"),
    ("a stride in every stage", resnet(stride="2 if name == '0' else 1"), LOGITS, "layer2 to layer4"),
    ("no relu at the end", block(result="ops.add(y, x)"), (ADDED, PROJECTED), "relu of that"),
    ("no pooling", resnet(pool="x"), LOGITS, "max pool"),
    (
        "weights not transposed",
        resnet(result="x.mean((2, 3)) @ params['fc']['weight'] + params['fc']['bias']"),
        LOGITS,
        "dot_general|wrong",
    ),
)

IN_NUMPY = mistakes(
    "P5.2",
    ("added in place", norming(add="x.__iadd__(y)"), ADD, "`add` changes its arguments"),
    ("relu in place", norming(relu="np.maximum(x, 0, out=x)"), RELU, "`relu` changes its arguments"),
    ("float64 inside", ending(dense="x.astype(np.float64) @ w.T + bias"), (DENSE, DENSE_BIAS), "wrong data type"),
    ("means as lists", ending(pool="x.mean(axis=(2, 3)).tolist()"), MEANS, "no array"),
    ("no default stride", pooling(head="x, kernel=3, stride=1, padding=1"), POOL_STRIDES, "defaults"),
    ("a large negative number as padding", pooling(fill="-1e9"), POOL_PADDING, "never the maximum"),
    ("a loop over pixels", LOOPS, PIXELS, "more lines of Python"),
    ("a loop over rows", BY_ROWS, PIXELS, "sliding_window_view"),
    (
        "a flipped kernel",
        convolving(product="np.einsum('nchwij,fcij->nfhw', windows, w[..., ::-1, ::-1])"),
        CONV,
        "not flipped",
    ),
    ("strides in one direction", convolving(windows="windows[:, :, ::stride]"), STRIDES, "by stride columns"),
    ("no padding", convolving(pad="0"), PADDING, "np.pad"),
    ("a bias for each column", convolving(bias="bias"), BIAS, "one bias for each"),
    ("the bias is forgotten", convolving(bias="0"), BIAS, "what the bias of `conv2d` adds"),
    ("JAX inside", IN_JAX, (CONV, STRIDES, PADDING, BIAS, PIXELS), "`jax.numpy.asarray` is not available where"),
    ("zeros around the maximum", pooling(fill="0"), POOL_PADDING, "never the maximum"),
    ("the mean of each window", pooling(largest="mean"), (LARGEST, POOL_PADDING, POOL_STRIDES), "the largest of"),
    ("pooling without stride", pooling(stride="1"), POOL_STRIDES, "shape"),
    (
        "statistics of the batch",
        norming(
            norm="(x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + eps)"
            " * c(weight) + c(bias)"
        ),
        (NORM, EPS),
        "one number for each channel",
    ),
    (
        "eps outside the root",
        norming(norm="(x - c(mean)) / (np.sqrt(c(var)) + eps) * c(weight) + c(bias)"),
        EPS,
        "where in the formula is eps",
    ),
    ("no eps", norming(norm="(x - c(mean)) / np.sqrt(c(var)) * c(weight) + c(bias)"), EPS, "eps"),
    ("signs are dropped", norming(relu="np.abs(x)"), RELU, "the larger one"),
    ("product instead of sum", norming(add="x * y"), ADD, "the sum"),
    ("the mean over the wrong axes", ending(pool="x.mean(axis=(1, 2))"), MEANS, "which axes"),
    ("axes of size one kept", ending(pool="x.mean(axis=(2, 3), keepdims=True)"), MEANS, "wrong shape"),
    ("weights not transposed", ending(dense="x @ w + bias"), DENSE, "matmul|belongs to one output"),
    ("no bias", ending(dense="x @ w.T"), DENSE_BIAS, "every row of the product"),
    ("overflow", ending(shift="x"), STABLE, "infinite"),
    ("the maximum of the whole array", ending(shift="x - x.max()"), STABLE, "can be subtracted"),
    (
        "softmax along the first axis",
        ending(shift="x - x.max()", divide="powers / powers.sum(axis=0)"),
        (SOFTMAX, STABLE),
        "those of the last axis",
    ),
)

COLUMN_BY_COLUMN = """for name, call in alternatives.items():
        table[row, name] = timed({name: call})[name]"""
FORGED = """table.fill(row, timed(alternatives))
    cell = table[row, "No-JAX"]
    table[row, "No-JAX"] = Measurement(tuple(100 * s for s in cell.seconds), None, cell.run, cell.agreed)"""

TABLE = mistakes(
    "P5.3",
    ("a float", breaking_even("float(compile_seconds // (no_jax - jax) + 1)"), (EARNED, TIE), "no integer"),
    ("the function itself", timing(inside="jax.jit(function).lower(*arguments).compile()"), TIMED, "remembers"),
    ("JAX is not jitted", filling(with_jax="lambda: case.with_jax(*on_device)"), COMPILED_SIDE, "not compiled"),
    ("NumPy on arrays of the device", filling(no_jax="lambda: case.no_jax(*on_device)"), NUMPY_SIDE, "is not NumPy"),
    ("transferred in each call", filling(with_jax="lambda: compiled(*case.arguments)"), COMPILED_SIDE, "transfers"),
    (
        "jitted in each call",
        filling(with_jax="lambda: jax.jit(lambda *args: case.with_jax(*args))(*on_device)"),
        COMPILED_SIDE,
        "not compiled",
    ),
    ("rounded up", breaking_even("math.ceil(compile_seconds / (no_jax - jax))"), TIE, "one call later"),
    ("rounded", breaking_even("round(compile_seconds / (no_jax - jax) + 0.51)"), EARNED, "how many of these gains"),
    ("not rounded", breaking_even("compile_seconds / (no_jax - jax)"), (EARNED, TIE), "how many of these gains"),
    (
        "rounded down",
        breaking_even("math.floor(compile_seconds / (no_jax - jax))"),
        (EARNED, TIE),
        "how many of these gains",
    ),
    ("zero if there is no gain", breaking_even(never="0"), NEVER, "float\\(.inf.\\)"),
    ("equal times not handled", breaking_even(when="<"), NEVER, "ZeroDivisionError"),
    ("nothing is compiled", timing(inside="jax.jit(function)"), (TIMED, NOT_RUN), "not traced"),
    (
        "timing a first call",
        timing(inside="jax.block_until_ready(jax.jit(lambda *args: function(*args))(*arguments))"),
        NOT_RUN,
        "does not call it",
    ),
    (
        "compiled and run",
        timing(inside="jax.jit(lambda *args: function(*args)).lower(*arguments).compile()(*arguments)"),
        NOT_RUN,
        "does not call it",
    ),
    ("milliseconds", timing(unit="1000"), TIMED, "in seconds"),
    (
        "tracing before the clock",
        timing("lowered = jax.jit(lambda *args: function(*args)).lower(*arguments)", "lowered.compile()"),
        TIMED,
        "before the tracing",
    ),
    ("one column after the other", filling(fill=COLUMN_BY_COLUMN), COMPARED, "side by side"),
    ("missing rows", filling(rows="list(cases.items())[:8]"), (COMPARED, AGREED, FASTER), "ResNet-18/No-JAX"),
    ("results not compared", filling(options=", check=False"), AGREED, "never compared"),
    ("a column multiplied by 100", filling(fill=FORGED), (COMPARED, AGREED, FASTER), "as it says"),
)

WHILE = {
    "P5-4-solution-2": """
def square_root(a):
    x, before = a, 0.0
    while abs(x - before) > 1e-6 * x:
        x, before = (x + a / x) / 2, x
    return x
"""
}
STATIC = {"P5-4-solution-2": WHILE["P5-4-solution-2"] + "square_root = jax.jit(square_root, static_argnums=0)\n"}
THREE_STEPS = {
    "P5-4-solution-2": """
def square_root(a):
    return jax.lax.fori_loop(0, 3, lambda i, x: jnp.where(x > 0, (x + a / x) / 2, 0.0), a)
"""
}

BROKEN = mistakes(
    "P5.4",
    (
        "exp and log",
        {"P5-4-solution-2": "def square_root(a):\n    return jnp.where(a > 0, jnp.exp(jnp.log(a) / 2), 0.0)\n"},
        (ROOTS, ZERO),
        "the operations exponential, log",
    ),
    ("a mask as an index", summing("x[x > 0].sum()"), (SUMMED, ROWS), "a Boolean index"),
    ("the number of positive values", summing("(x > 0).sum()"), (SUMMED, ROWS), "wrong data type"),
    ("a Python loop", WHILE, (ROOTS, ZERO), "while_loop"),
    ("a static argument", STATIC, (ROOTS, ZERO), "while_loop"),
    ("three steps", THREE_STEPS, ROOTS, "when does the loop end"),
    (
        "the library's root",
        {"P5-4-solution-2": "def square_root(a):\n    return jnp.sqrt(a)\n"},
        (ROOTS, ZERO),
        "not Newton's",
    ),
    ("zero not handled", rooting(safe="a", result="root"), ZERO, "0 / 0|half of the previous"),
    ("no end for zero", rooting(condition="~(jnp.abs(x - before) <= 1e-6 * x)", safe="a"), ZERO, "does not stop"),
    (
        "state in a global list",
        remembering("seen.append(x)\nreturn sum(seen) / len(seen), (len(seen), sum(seen))"),
        (RUNNING, SAME),
        "passed in and returned",
    ),
    (
        "the old state returned",
        remembering("return (state[1] + x) / (state[0] + 1), state"),
        RUNNING,
        "the state after 1",
    ),
    (
        "the newest value not counted",
        remembering("count, total = state[0], state[1] + x\nreturn total / (count + 1), (count, total)"),
        RUNNING,
        "count, total",
    ),
    ("NumPy's random numbers", dropping("np.random.random(x.shape) > rate"), MASKS, "never np"),
    ("writing into x", dropping(result="x.__setitem__(~kept, 0)"), (DROPPED, SCALED, MASKS), "jnp.where"),
    ("not scaled", dropping(result="jnp.where(kept, x, 0)"), SCALED, "by which factor"),
    (
        "kept and dropped elements swapped",
        dropping("jax.random.bernoulli(key, rate, x.shape)"),
        DROPPED,
        "wrong share",
    ),
    (
        "whole rows dropped",
        dropping("jax.random.bernoulli(key, 1 - rate, (len(x), 1))"),
        DROPPED,
        "together|wrong share",
    ),
    (
        "the same mask always",
        dropping("jax.random.bernoulli(jax.random.key(0), 1 - rate, x.shape)"),
        MASKS,
        "the same mask",
    ),
)

READ_BY_ANOTHER = {
    "P5-5-solution-3": """
from mlhood.jaxlab.tracing.tracer import Program
def live(program):
    kept = [x for x in program.equations if any(x.output in other.inputs for other in program.equations)]
    return Program(program.inputs, tuple(kept), program.outputs)
"""
}

ALL_LIVE = {"P5-5-solution-3": "def live(program):\n    return program\n"}

TRACER = mistakes(
    "P5.5",
    ("a list of outputs", evaluating(result="[read(x) for x in program.outputs]"), (RUN, NUMBERS, AGAIN), "in a tuple"),
    ("the same variable each time", recording(output="Variable(only.number, shape)"), NEW, "fresh"),
    ("nothing is appended", recording(append="pass"), WRITTEN, "`record` appends is not one"),
    ("another variable is returned", recording(result="fresh(shape)"), WRITTEN, "`record` returns is not"),
    (
        "numbers have no shape",
        recording(shape="SHAPES[op](*(x.shape for x in operands))"),
        SHAPES,
        "'float' object has no attribute 'shape'",
    ),
    (
        "the first operand's shape",
        recording(shape="operands[0].shape if isinstance(operands[0], Variable) else ()"),
        SHAPES,
        "all operands",
    ),
    ("equations in reverse order", evaluating(order="reversed(program.equations)"), (RUN, AGAIN), "inputs first"),
    ("all operands are variables", evaluating(read="values[x]"), NUMBERS, "not a Variable is a number"),
    ("only the first output", evaluating(result="(read(program.outputs[0]),)"), (NUMBERS, AGAIN), "program.outputs"),
    (
        "values dropped once read",
        evaluating(after="[values.pop(x, None) for x in equation.inputs]"),
        AGAIN,
        "keep every value to the end",
    ),
    ("nothing is removed", ALL_LIVE, (GONE, STAYS), "who needs"),
    ("equations left in reverse order", living(kept="tuple(kept)"), STAYS, "the order stays"),
    ("unused inputs removed", living(inputs="program.inputs[:1]"), STAYS, "signature"),
    ("every value that is read is kept", READ_BY_ANOTHER, (GONE, STAYS), "first the outputs"),
)

WRONG = (*NETWORKS, *IN_NUMPY, *TABLE, *BROKEN, *TRACER)
