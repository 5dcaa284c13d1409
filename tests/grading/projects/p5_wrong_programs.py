"""Typical wrong operators, tables, programs, tracers and tapes of P5."""

from __future__ import annotations

from tests.grading.projects.gallery import Wrong
from tests.grading.projects.p5_checks import (
    ADD,
    ADDED,
    AGAIN,
    AGREED,
    BACK,
    BIAS,
    BY_BIAS,
    BY_DENSE,
    BY_RELU,
    BY_SUM,
    COMPARED,
    CONV,
    DENSE,
    DENSE_BIAS,
    DROPPED,
    EARNED,
    EPS,
    FASTER,
    FILTERS,
    GONE,
    IMAGES,
    LARGEST,
    LEAVES,
    LOGITS,
    MASKS,
    MEANS,
    MOVED,
    NAMES,
    NEVER,
    NEW,
    NORM,
    NOT_RUN,
    NUMBERS,
    PADDING,
    PIXELS,
    POOL_PADDING,
    POOL_STRIDES,
    PROJECTED,
    PULLED,
    RELU,
    ROOTS,
    ROWS,
    RUN,
    RUNNING,
    SAME,
    SCALED,
    SHAPES,
    SHARED,
    SOFTMAX,
    STABLE,
    STAYS,
    STRETCHED,
    STRIDES,
    SUMMED,
    TIE,
    TIMED,
    TWICE,
    WRITTEN,
    ZERO,
)
from tests.grading.projects.p5_snippets_programs import (
    backward,
    block,
    breaking_even,
    conv_rule,
    convolving,
    dropping,
    ending,
    entropy_rule,
    evaluating,
    filling,
    living,
    norming,
    pooling,
    recording,
    remembering,
    resnet,
    rooting,
    rules,
    summing,
    timing,
    to_tree,
)

OF_THE_BATCH = """[(y - y.mean((0, 2, 3), keepdims=True)) / jnp.sqrt(y.var((0, 2, 3), keepdims=True) + 1e-5)
            * p['weight'][:, None, None] + p['bias'][:, None, None]][0]"""
WITHOUT_EPS = "ops.batch_norm(y, p['running_mean'], p['running_var'], p['weight'], p['bias'], eps=0.0)"
FLAT = {"P5-1-solution": """
def to_tree(state):
    return {name: jnp.asarray(value) for name, value in state.items() if "num_batches" not in name}
"""}  # fmt: skip
LOOPS = {"P5-2-solution": """
def conv2d(x, w, bias=None, stride=1, padding=0):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    (n, _, high, wide), (f, _, kh, kw) = x.shape, w.shape
    y = np.zeros((n, f, (high - kh) // stride + 1, (wide - kw) // stride + 1), np.float32)
    for oh in range(y.shape[2]):
        for ow in range(y.shape[3]):
            window = x[:, None, :, oh * stride:oh * stride + kh, ow * stride:ow * stride + kw]
            y[:, :, oh, ow] = (window * w).sum(axis=(2, 3, 4))
    return y if bias is None else y + bias[:, None, None]
"""}  # fmt: skip
BY_ROWS = convolving(
    product="np.stack([np.tensordot(windows[:, :, r], w, ((1, 3, 4), (1, 2, 3))) for r in range(windows.shape[2])], "
    "1).transpose(0, 3, 1, 2)"
)
IN_JAX = {"P5-2-solution": """
from mlhood.jaxlab.operators import with_jax
def conv2d(x, w, bias=None, stride=1, padding=0):
    return np.asarray(with_jax.conv2d(jnp.asarray(x), w, bias, stride, padding))
"""}  # fmt: skip

NETWORKS: tuple[Wrong, ...] = (
    Wrong("counts of batches stay", "P5.1", to_tree(skipped="False"), (LEAVES,), "still there"),
    Wrong("arrays of NumPy", "P5.1", to_tree(leaf="value"), (LEAVES,), "jnp.asarray"),
    Wrong("names stay dotted", "P5.1", FLAT, (NAMES,), "one dictionary for each part"),
    Wrong("numbers for names", "P5.1", to_tree(step="int(part) if part.isdigit() else part"), (NAMES,), '"0"'),
    Wrong("statistics of the batch", "P5.1", block(norm=OF_THE_BATCH), (ADDED, PROJECTED), "running_mean"),
    Wrong("no epsilon", "P5.1", block(norm=WITHOUT_EPS), (ADDED, PROJECTED), "1e-5"),
    Wrong("relu before the sum", "P5.1", block(result="ops.add(ops.relu(y), x)"), (ADDED, PROJECTED), "relu of that"),
    Wrong(
        "the projection without stride",
        "P5.1",
        block(shortcut="ops.conv2d(x, params['downsample']['0']['weight'])"),
        (PROJECTED,),
        "of the same stride",
    ),
    Wrong("no padding before the stem", "P5.1", resnet(stem="stride=2"), (LOGITS,), "padding 3"),
    Wrong("no stage has a stride", "P5.1", resnet(stride="1"), (LOGITS,), "stride 2 in layer2"),
    Wrong("a stride in every stage", "P5.1", resnet(stride="2 if name == '0' else 1"), (LOGITS,), "layer2 to layer4"),
    Wrong("no relu at the end", "P5.1", block(result="ops.add(y, x)"), (ADDED, PROJECTED), "relu of that"),
    Wrong("no pooling", "P5.1", resnet(pool="x"), (LOGITS,), "max pool"),
    Wrong(
        "weights not transposed",
        "P5.1",
        resnet(result="x.mean((2, 3)) @ params['fc']['weight'] + params['fc']['bias']"),
        (LOGITS,),
        "dot_general|wrong",
    ),
)

IN_NUMPY: tuple[Wrong, ...] = (
    Wrong("a loop over pixels", "P5.2", LOOPS, (PIXELS,), "more lines of Python"),
    Wrong("a loop over rows", "P5.2", BY_ROWS, (PIXELS,), "sliding_window_view"),
    Wrong("a flipped kernel", "P5.2", convolving(product="np.einsum('nchwij,fcij->nfhw', windows, w[..., ::-1, ::-1])"),
          (CONV,), "not flipped"),
    Wrong("strides in one direction", "P5.2", convolving(windows="windows[:, :, ::stride]"), (STRIDES,), "ow \\* str"),
    Wrong("no padding", "P5.2", convolving(pad="0"), (PADDING,), "np.pad"),
    Wrong("a bias for each column", "P5.2", convolving(bias="bias"), (BIAS,), "bias\\[:, None, None\\]"),
    Wrong("the bias is forgotten", "P5.2", convolving(bias="0"), (BIAS,), "what the bias adds"),
    Wrong("JAX under another name", "P5.2", IN_JAX, (CONV, STRIDES, PADDING, BIAS, PIXELS), "NumPy alone"),
    Wrong("zeros around the maximum", "P5.2", pooling(fill="0"), (POOL_PADDING,), "-np.inf"),
    Wrong("the mean of windows", "P5.2", pooling(largest="mean"), (LARGEST, POOL_PADDING, POOL_STRIDES), "the largest"),
    Wrong("pooling without stride", "P5.2", pooling(stride="1"), (POOL_STRIDES,), "shape"),
    Wrong(
        "statistics of the batch",
        "P5.2",
        norming(norm="(x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + eps)"
                " * c(weight) + c(bias)"),
        (NORM, EPS),
        "mean\\[:, None, None\\]",
    ),
    Wrong("eps outside of the root", "P5.2", norming(norm="(x - c(mean)) / (np.sqrt(c(var)) + eps) * c(weight) + "
          "c(bias)"), (EPS,), "inside of the root|sqrt\\(var \\+ eps\\)"),
    Wrong("no eps", "P5.2", norming(norm="(x - c(mean)) / np.sqrt(c(var)) * c(weight) + c(bias)"), (EPS,), "eps"),
    Wrong("signs are dropped", "P5.2", norming(relu="np.abs(x)"), (RELU,), "np.maximum"),
    Wrong("product for sum", "P5.2", norming(add="x * y"), (ADD,), "x \\+ y"),
    Wrong("the mean of rows", "P5.2", ending(pool="x.mean(axis=(1, 2))"), (MEANS,), "axes 2 and 3"),
    Wrong("axes of size one", "P5.2", ending(pool="x.mean(axis=(2, 3), keepdims=True)"), (MEANS,), "\\[N, C\\]"),
    Wrong("weights not transposed", "P5.2", ending(dense="x @ w + bias"), (DENSE,), "matmul|x @ w.T"),
    Wrong("no bias", "P5.2", ending(dense="x @ w.T"), (DENSE_BIAS,), "x @ w.T \\+ bias"),
    Wrong("overflow", "P5.2", ending(shift="x"), (STABLE,), "e\\^1000"),
    Wrong("the largest of all", "P5.2", ending(shift="x - x.max()"), (STABLE,), "the largest number of the axis"),
    Wrong("the first axis", "P5.2", ending(shift="x - x.max()", divide="powers / powers.sum(axis=0)"),
          (SOFTMAX, STABLE), "axis=-1"),
)  # fmt: skip

ONE_BY_ONE = """for name, call in alternatives.items():
        table[row, name] = timed({name: call})[name]"""
FORGED = """table.fill(row, timed(alternatives))
    one = table[row, "No-JAX"]
    table[row, "No-JAX"] = Measurement(tuple(100 * s for s in one.seconds), None, one.run, one.agreed)"""
EXCHANGED = '{"JAX": case.no_jax, "No-JAX": case.with_jax}'

TABLE: tuple[Wrong, ...] = (
    Wrong("rounded up", "P5.3", breaking_even("math.ceil(compile_seconds / (no_jax - jax))"), (TIE,), "one call later"),
    Wrong("not rounded", "P5.3", breaking_even("compile_seconds / (no_jax - jax)"), (EARNED, TIE), "a whole number"),
    Wrong("rounded down", "P5.3", breaking_even("math.floor(compile_seconds / (no_jax - jax))"), (EARNED, TIE),
          "a whole number"),
    Wrong("no gain, no calls", "P5.3", breaking_even(never="0"), (NEVER,), "float\\(.inf.\\)"),
    Wrong("a gain of nothing", "P5.3", breaking_even(when="<"), (NEVER,), "ZeroDivisionError"),
    Wrong("nothing is compiled", "P5.3", timing(inside="jax.jit(function)"), (TIMED, NOT_RUN), "not traced"),
    Wrong("a first call", "P5.3", timing(inside="jax.block_until_ready(jax.jit(function)(*arguments))"), (NOT_RUN,),
          "does not call it"),
    Wrong("compiled, and run", "P5.3", timing(inside="jax.jit(function).lower(*arguments).compile()(*arguments)"),
          (NOT_RUN,), "does not call it"),
    Wrong("milliseconds", "P5.3", timing(unit="1000"), (TIMED,), "in seconds"),
    Wrong("tracing before the clock", "P5.3",
          timing("lowered = jax.jit(function).lower(*arguments)", "lowered.compile()"), (TIMED,), "before .lower"),
    Wrong("one column after the other", "P5.3", filling(fill=ONE_BY_ONE), (COMPARED,), "side by side"),
    Wrong("rows are missing", "P5.3", filling(rows="list(cases.items())[:8]"), (COMPARED,), "ResNet-18/No-JAX"),
    Wrong("results not compared", "P5.3", filling(options=", check=False"), (AGREED,), "never compared"),
    Wrong("a column times a hundred", "P5.3", filling(fill=FORGED), (FASTER,), "as the table has it.*is needed"),
    Wrong("columns changed places", "P5.3", filling(alternatives=EXCHANGED), (FASTER,), "not faster"),
)  # fmt: skip

WHILE = {"P5-4-solution-2": """
def square_root(a):
    x, before = a, 0.0
    while abs(x - before) > 1e-6 * x:
        x, before = (x + a / x) / 2, x
    return x
"""}  # fmt: skip
STATIC = {"P5-4-solution-2": WHILE["P5-4-solution-2"] + "square_root = jax.jit(square_root, static_argnums=0)\n"}
THREE_STEPS = {"P5-4-solution-2": """
def square_root(a):
    return jax.lax.fori_loop(0, 3, lambda i, x: jnp.where(x > 0, (x + a / x) / 2, 0.0), a)
"""}  # fmt: skip

BROKEN: tuple[Wrong, ...] = (
    Wrong("a mask as an index", "P5.4", summing("x[x > 0].sum()"), (SUMMED, ROWS), "jnp.where"),
    Wrong("how many are positive", "P5.4", summing("(x > 0).sum()"), (SUMMED, ROWS), "wrong values in the sum"),
    Wrong("a loop of Python", "P5.4", WHILE, (ROOTS, ZERO), "while_loop"),
    Wrong("a static number", "P5.4", STATIC, (ROOTS, ZERO), "while_loop"),
    Wrong("three steps", "P5.4", THREE_STEPS, (ROOTS,), "1e-6 of x"),
    Wrong("the root of others", "P5.4", {"P5-4-solution-2": "def square_root(a):\n    return jnp.sqrt(a)\n"},
          (ROOTS, ZERO), "not Newton's"),
    Wrong("zero is no case", "P5.4", rooting(safe="a", result="root"), (ZERO,), "0 / 0|half of the one before"),
    Wrong("no end for zero", "P5.4", rooting(goes_on="~(jnp.abs(x - before) <= 1e-6 * x)", safe="a"), (ZERO,),
          "does not stop"),
    Wrong("a list outside", "P5.4", remembering("seen.append(x)\nreturn sum(seen) / len(seen), (len(seen), sum(seen))"),
          (RUNNING, SAME), "goes out"),
    Wrong("a state that stays", "P5.4", remembering("return (state[1] + x) / (state[0] + 1), state"), (RUNNING,),
          "the state after 1"),
    Wrong("the newest does not count", "P5.4",
          remembering("count, total = state[0], state[1] + x\nreturn total / (count + 1), (count, total)"), (RUNNING,),
          "count, total"),
    Wrong("NumPy's random numbers", "P5.4", dropping("np.random.random(x.shape) > rate"), (MASKS,), "nothing of np"),
    Wrong("writing into x", "P5.4", dropping(result="x.__setitem__(~kept, 0)"), (DROPPED, SCALED, MASKS), "jnp.where"),
    Wrong("not scaled", "P5.4", dropping(result="jnp.where(kept, x, 0)"), (SCALED,), "x / \\(1 - rate\\)"),
    Wrong("as many stay as should go", "P5.4", dropping("jax.random.bernoulli(key, rate, x.shape)"), (DROPPED,),
          "what stays"),
    Wrong("row by row", "P5.4", dropping("jax.random.bernoulli(key, 1 - rate, (len(x), 1))"), (DROPPED,),
          "together|another part"),
    Wrong("the same mask always", "P5.4", dropping("jax.random.bernoulli(jax.random.key(0), 1 - rate, x.shape)"),
          (MASKS,), "the same mask"),
)  # fmt: skip

READ_BY_ANOTHER = {"P5-5-solution-3": """
from mlhood.jaxlab.tracing.tracer import Program
def live(program):
    kept = [one for one in program.equations if any(one.output in other.inputs for other in program.equations)]
    return Program(program.inputs, tuple(kept), program.outputs)
"""}  # fmt: skip

ALL_LIVE = {"P5-5-solution-3": "def live(program):\n    return program\n"}

TRACER: tuple[Wrong, ...] = (
    Wrong("one variable for all", "P5.5", recording(output="Variable(only.number, shape)"), (NEW,), "fresh"),
    Wrong("nothing is written", "P5.5", recording(append="pass"), (WRITTEN,), "other than one equation"),
    Wrong("another is returned", "P5.5", recording(result="fresh(shape)"), (WRITTEN,), "another variable"),
    Wrong("numbers have no shape", "P5.5", recording(shape="SHAPES[op](*(one.shape for one in operands))"), (SHAPES,),
          "'float' object has no attribute 'shape'"),
    Wrong("as the first operand", "P5.5",
          recording(shape="operands[0].shape if isinstance(operands[0], Variable) else ()"), (SHAPES,), "all operands"),
    Wrong("backwards", "P5.5", evaluating(order="reversed(program.equations)"), (RUN, AGAIN), "inputs first"),
    Wrong("all operands are variables", "P5.5", evaluating(read="values[one]"), (NUMBERS,), "no Variable are numbers"),
    Wrong("one output", "P5.5", evaluating(result="(read(program.outputs[0]),)"), (NUMBERS, AGAIN), "program.outputs"),
    Wrong("read and forgotten", "P5.5", evaluating(after="[values.pop(one, None) for one in equation.inputs]"),
          (AGAIN,), "stays until the end"),
    Wrong("all is needed", "P5.5", ALL_LIVE, (GONE,), "backwards"),
    Wrong("in the order in which it was found", "P5.5", living(kept="tuple(kept)"), (STAYS,), "in order again"),
    Wrong("inputs go as well", "P5.5", living(inputs="program.inputs[:1]"), (STAYS,), "signature"),
    Wrong("what another reads", "P5.5", READ_BY_ANOTHER, (GONE, STAYS), "needed to begin with"),
)  # fmt: skip

TAPE: tuple[Wrong, ...] = (
    Wrong("from the result", "P5.6", rules(relu="g * (y >= 0)"), (BY_RELU,), "where x > 0"),
    Wrong("stretched axes stay", "P5.6", rules(add="g, g"), (STRETCHED,), "its input's shape"),
    Wrong("axes of size one are gone", "P5.6", rules(add="np.squeeze(reduced(g, a)), np.squeeze(reduced(g, b))"),
          (STRETCHED,), "its input's shape"),
    Wrong("b is subtracted", "P5.6", rules(add="reduced(g, a), reduced(-g, b)"), (BY_SUM, STRETCHED), "by b"),
    Wrong("w is not transposed", "P5.6", rules(dense="g @ w, x.T @ g, g.sum(axis=0)"), (BY_DENSE,), "g.T @ x"),
    Wrong("the bias gets a mean", "P5.6", rules(dense="g @ w, g.T @ x, g.mean(axis=0)"), (BY_BIAS,), "same bias"),
    Wrong("the gradient flipped", "P5.6",
          conv_rule(by_x="scatter(np.einsum('fk,nfp->nkp', w[..., ::-1, ::-1].reshape(len(w), -1), flat), x.shape, "
                    "kernel, stride, padding)"), (IMAGES,), "scatter"),
    Wrong("one image's filters", "P5.6",
          conv_rule(by_w="(flat[0] @ columns(x, kernel, stride, padding)[0].T).reshape(w.shape)"), (FILTERS,),
          "sum of"),
    Wrong("always with a bias", "P5.6", conv_rule(by_bias="(g.sum(axis=(0, 2, 3)),)"), (FILTERS,), "2 in a tuple"),
    Wrong("no stride back", "P5.6",
          conv_rule(by_w="np.einsum('nfp,nkp->fk', flat, columns(x, kernel, 1, 0)).reshape(w.shape)"), (MOVED,),
          "stride"),
    Wrong("not divided by the batch", "P5.6", entropy_rule("g * (p - hot), None"), (SHARED,), "/ N"),
    Wrong("without g", "P5.6", entropy_rule("(p - hot) / len(labels), None"), (SHARED,), "\\* g"),
    Wrong("away from the label", "P5.6", entropy_rule("g * (hot - p) / len(labels), None"), (PULLED, SHARED), "less 1"),
    Wrong("the last one counts", "P5.6", backward(add="found[number] = part"), (TWICE,), "where there is one already"),
    Wrong("added in place", "P5.6",
          backward(add="found[number] = found[number].__iadd__(part) if number in found else part"), (TWICE,), "\\+="),
    Wrong("forwards", "P5.6", backward(order="tape.entries"), (BACK, TWICE), "there is no gradient"),
    Wrong("no attributes", "P5.6", backward(call="rules[entry.op](g, y, *inputs)"), (BACK,), "factor"),
)  # fmt: skip

WRONG = (*NETWORKS, *IN_NUMPY, *TABLE, *BROKEN, *TRACER, *TAPE)
