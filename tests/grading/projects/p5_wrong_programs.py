"""Typical wrong solutions of P5.1 to P5.5: networks, operators, the table, repaired programs and tracers."""

from __future__ import annotations

from tests.grading.projects import p5_checks as check
from tests.grading.projects.examples import mistakes
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
FLAT = {
    "P5-1-solution": """
def to_tree(state):
    return {name: jnp.asarray(value) for name, value in state.items() if "num_batches" not in name}
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
    ("counters deleted from the state", EMPTIED, (check.NAMES, check.LEAVES), "`to_tree` changes its arguments"),
    (
        "projected where the channels change",
        block(when='params["conv1"]["weight"].shape[1] != len(params["conv1"]["weight"])'),
        check.PROJECTED,
        "with downsample",
    ),
    ("batch counters kept", to_tree(skipped="False"), check.LEAVES, "still contains batch counters"),
    ("NumPy arrays", to_tree(leaf="value"), check.LEAVES, "jnp.asarray"),
    ("names with dots", FLAT, check.NAMES, "one dictionary for each part"),
    ("statistics of the batch", block(norm=BATCH_STATISTICS), (check.ADDED, check.PROJECTED), "running_mean"),
    (
        "a projection without stride",
        block(shortcut="ops.conv2d(x, params['downsample']['0']['weight'])"),
        check.PROJECTED,
        "with the stride of conv1",
    ),
    ("no padding in the first convolution", resnet(stem="stride=2"), check.LOGITS, "padding 3"),
    ("no stage has a stride", resnet(stride="1"), check.LOGITS, "stride 2 in layer2"),
    (
        "weights not transposed",
        resnet(result="x.mean((2, 3)) @ params['fc']['weight'] + params['fc']['bias']"),
        check.LOGITS,
        "dot_general|wrong",
    ),
)

IN_NUMPY = mistakes(
    "P5.2",
    ("added in place", norming(add="x.__iadd__(y)"), check.ADD, "`add` changes its arguments"),
    (
        "float64 inside",
        ending(dense="x.astype(np.float64) @ w.T + bias"),
        (check.DENSE, check.DENSE_BIAS),
        "wrong data type",
    ),
    ("no default stride", pooling(head="x, kernel=3, stride=1, padding=1"), check.POOL_STRIDES, "defaults"),
    ("a large negative number as padding", pooling(fill="-1e9"), check.POOL_PADDING, "never the maximum"),
    ("a loop over rows", BY_ROWS, check.PIXELS, "sliding_window_view"),
    (
        "a flipped kernel",
        convolving(product="np.einsum('nchwij,fcij->nfhw', windows, w[..., ::-1, ::-1])"),
        check.CONV,
        "not flipped",
    ),
    ("strides in one direction", convolving(windows="windows[:, :, ::stride]"), check.STRIDES, "by stride columns"),
    ("no padding", convolving(pad="0"), check.PADDING, "np.pad"),
    ("a bias for each column", convolving(bias="bias"), check.BIAS, "one bias for each"),
    (
        "JAX inside",
        IN_JAX,
        (check.CONV, check.STRIDES, check.PADDING, check.BIAS, check.PIXELS),
        "`jax.numpy.asarray` is not available where",
    ),
    (
        "the mean of each window",
        pooling(largest="mean"),
        (check.LARGEST, check.POOL_PADDING, check.POOL_STRIDES),
        "the largest of",
    ),
    (
        "statistics of the batch",
        norming(
            norm="(x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + eps)"
            " * c(weight) + c(bias)"
        ),
        (check.NORM, check.EPS),
        "one number for each channel",
    ),
    (
        "eps outside the root",
        norming(norm="(x - c(mean)) / (np.sqrt(c(var)) + eps) * c(weight) + c(bias)"),
        check.EPS,
        "where in the formula is eps",
    ),
    ("the mean over the wrong axes", ending(pool="x.mean(axis=(1, 2))"), check.MEANS, "which axes"),
    ("weights not transposed", ending(dense="x @ w + bias"), check.DENSE, "matmul|belongs to one output"),
    ("no bias", ending(dense="x @ w.T"), check.DENSE_BIAS, "every row of the product"),
    ("the maximum of the whole array", ending(shift="x - x.max()"), check.STABLE, "can be subtracted"),
    (
        "softmax along the first axis",
        ending(shift="x - x.max()", divide="powers / powers.sum(axis=0)"),
        (check.SOFTMAX, check.STABLE),
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
    (
        "a float",
        breaking_even(calls="float(compile_seconds // (no_jax - jax) + 1)"),
        (check.EARNED, check.TIE),
        "no integer",
    ),
    ("the function itself", timing(inside="jax.jit(function).lower(*arguments).compile()"), check.TIMED, "remembers"),
    (
        "arrays that the compiler knows",
        filling(with_jax="jax.jit(lambda: case.with_jax(*on_device))"),
        check.COMPILED_SIDE,
        "knows no numbers",
    ),
    ("JAX is not jitted", filling(with_jax="lambda: case.with_jax(*on_device)"), check.COMPILED_SIDE, "not compiled"),
    (
        "NumPy on arrays of the device",
        filling(no_jax="lambda: case.no_jax(*on_device)"),
        check.NUMPY_SIDE,
        "is not NumPy",
    ),
    (
        "transferred in each call",
        filling(with_jax="lambda: compiled(*case.arguments)"),
        check.COMPILED_SIDE,
        "transfers",
    ),
    ("rounded up", breaking_even(calls="math.ceil(compile_seconds / (no_jax - jax))"), check.TIE, "one call later"),
    ("zero if there is no gain", breaking_even(never="0"), check.NEVER, "float\\(.inf.\\)"),
    ("equal times not handled", breaking_even(when="<"), check.NEVER, "ZeroDivisionError"),
    (
        "timing a first call",
        timing(inside="jax.block_until_ready(jax.jit(lambda *args: function(*args))(*arguments))"),
        check.NOT_RUN,
        "does not call it",
    ),
    ("milliseconds", timing(unit="1000"), check.TIMED, "in seconds"),
    ("one column after the other", filling(fill=COLUMN_BY_COLUMN), check.COMPARED, "side by side"),
    (
        "missing rows",
        filling(rows="list(cases.items())[:8]"),
        (check.COMPARED, check.AGREED, check.FASTER),
        "ResNet-18/No-JAX",
    ),
    ("results not compared", filling(options=", check=False"), check.AGREED, "never compared"),
    ("a column multiplied by 100", filling(fill=FORGED), (check.COMPARED, check.AGREED, check.FASTER), "as it says"),
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
        (check.ROOTS, check.ZERO),
        "the operations exponential, log",
    ),
    ("a mask as an index", summing("x[x > 0].sum()"), (check.SUMMED, check.ROWS), "a Boolean index"),
    ("a Python loop", WHILE, (check.ROOTS, check.ZERO), "while_loop"),
    ("three steps", THREE_STEPS, check.ROOTS, "when does the loop end"),
    ("zero not handled", rooting(safe="a", result="root"), check.ZERO, "0 / 0|half of the previous"),
    (
        "state in a global list",
        remembering("seen.append(x)\nreturn sum(seen) / len(seen), (len(seen), sum(seen))"),
        (check.RUNNING, check.SAME),
        "wrong data type of the state after 1",
    ),
    (
        "the old state returned",
        remembering("return (state[1] + x) / (state[0] + 1), state"),
        check.RUNNING,
        "the state after 1",
    ),
    ("NumPy's random numbers", dropping("np.random.random(x.shape) > rate"), check.MASKS, "never np"),
    ("not scaled", dropping(result="jnp.where(kept, x, 0)"), check.SCALED, "by which factor"),
    (
        "whole rows dropped",
        dropping("jax.random.bernoulli(key, 1 - rate, (len(x), 1))"),
        check.DROPPED,
        "wrong sha",
    ),
    (
        "the same mask always",
        dropping("jax.random.bernoulli(jax.random.key(0), 1 - rate, x.shape)"),
        check.MASKS,
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
    (
        "a list of outputs",
        evaluating(result="[read(x) for x in program.outputs]"),
        (check.RUN, check.NUMBERS, check.AGAIN),
        "no tuple in",
    ),
    ("the same variable each time", recording(output="Variable(only.number, shape)"), check.NEW, "fresh"),
    (
        "numbers have one element",
        recording(shape="SHAPES[op](*(x.shape if isinstance(x, Variable) else (1,) for x in operands))"),
        check.SHAPES,
        "has the wrong shape",
    ),
    ("nothing is appended", recording(append="pass"), check.WRITTEN, "`record` appends is not one"),
    (
        "equations in reverse order",
        evaluating(order="reversed(program.equations)"),
        (check.RUN, check.AGAIN),
        "inputs first",
    ),
    ("all operands are variables", evaluating(read="values[x]"), check.NUMBERS, "not a Variable is a number"),
    (
        "values dropped once read",
        evaluating(after="[values.pop(x, None) for x in equation.inputs]"),
        check.AGAIN,
        "keep every value to the end",
    ),
    (
        "the last result is an output of a program without outputs",
        evaluating(result="tuple(read(x) for x in program.outputs or [program.equations[-1].output])")
        | living(needed="set(program.outputs or [program.equations[-1].output])"),
        (check.NUMBERS, check.GONE),
        "the wrong number of items",
    ),
    ("nothing is removed", ALL_LIVE, (check.GONE, check.STAYS), "who needs"),
    ("equations left in reverse order", living(kept="tuple(kept)"), check.STAYS, "the order stays"),
    ("every value that is read is kept", READ_BY_ANOTHER, (check.GONE, check.STAYS), "first the outputs"),
)

WRONG = (*NETWORKS, *IN_NUMPY, *TABLE, *BROKEN, *TRACER)
