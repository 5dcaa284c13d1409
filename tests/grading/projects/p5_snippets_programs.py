"""Building blocks of P5's examples for P5.1 to P5.6: each function returns new source by cell id, right by default."""

from __future__ import annotations

from textwrap import indent

MEAN = "def global_average_pool(x):\n    return x.mean((2, 3))\n"  # `add` is in the cell above


def function(head: str, body: str) -> str:
    return f"{head}\n{indent(body.strip(), '    ')}\n"


# -- P5.1


def to_tree(
    skipped: str = 'name.endswith("num_batches_tracked")', leaf: str = "jnp.asarray(value)", step: str = "part"
) -> dict[str, str]:
    body = f"""
tree = {{}}
for name, value in state.items():
    if {skipped}:
        continue
    *path, last = name.split(".")
    here = tree
    for part in path:
        here = here.setdefault({step}, {{}})
    here[last] = {leaf}
return tree
"""
    return {"P5-1-solution": function("def to_tree(state):", body)}


def block(
    norm: str = "ops.batch_norm(y, p['running_mean'], p['running_var'], p['weight'], p['bias'])",
    shortcut: str = "ops.conv2d(x, params['downsample']['0']['weight'], stride=stride)",
    when: str = '"downsample" in params',
    result: str = "ops.relu(ops.add(y, x))",
) -> dict[str, str]:
    body = f"""
def norm(p, y):
    return {norm}
y = ops.conv2d(x, params["conv1"]["weight"], stride=stride, padding=1)
y = ops.relu(norm(params["bn1"], y))
y = norm(params["bn2"], ops.conv2d(y, params["conv2"]["weight"], padding=1))
if {when}:
    x = norm(params["downsample"]["1"], {shortcut})
return {result}
"""
    head = "from mlhood.jaxlab.operators import with_jax as ops\ndef block(params, x, stride):"
    return {"P5-1-solution-2": function(head, body)}


def resnet(
    stem: str = "stride=2, padding=3",
    stride: str = "2 if number > 1 and name == '0' else 1",
    pool: str = "ops.max_pool(x)",
    result: str = "ops.dense(ops.global_average_pool(x), params['fc']['weight'], params['fc']['bias'])",
) -> dict[str, str]:
    body = f"""
bn = params["bn1"]
x = ops.conv2d(x, params["conv1"]["weight"], {stem})
x = ops.relu(ops.batch_norm(x, bn["running_mean"], bn["running_var"], bn["weight"], bn["bias"]))
x = {pool}
for number in (1, 2, 3, 4):
    for name in ("0", "1"):
        x = block(params[f"layer{{number}}"][name], x, {stride})
return {result}
"""
    return {"P5-1-solution-3": function("def resnet(params, x):", body)}


# -- P5.2


def convolving(
    pad: str = "padding",
    windows: str = "windows[:, :, ::stride, ::stride]",
    product: str = "np.einsum('nchwij,fcij->nfhw', windows, w, optimize=True)",
    bias: str = "bias[:, None, None]",
) -> dict[str, str]:
    body = f"""
x = np.pad(x, ((0, 0), (0, 0), ({pad}, {pad}), ({pad}, {pad})))
windows = sliding_window_view(x, w.shape[2:], axis=(2, 3))
windows = {windows}
y = {product}
return y if bias is None else y + {bias}
"""
    head = "from numpy.lib.stride_tricks import sliding_window_view\n"
    return {"P5-2-solution": function(f"{head}def conv2d(x, w, bias=None, stride=1, padding=0):", body)}


def pooling(
    fill: str = "-np.inf",
    stride: str = "stride",
    largest: str = "max",
    head: str = "x, kernel=3, stride=2, padding=1",
) -> dict[str, str]:
    body = f"""
sides = (padding, padding)
x = np.pad(x, ((0, 0), (0, 0), sides, sides), constant_values={fill})
windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
return windows[:, :, ::{stride}, ::{stride}].{largest}(axis=(4, 5))
"""
    return {"P5-2-solution-2": function(f"def max_pool({head}):", body)}


def norming(
    norm: str = "(x - c(mean)) / np.sqrt(c(var) + eps) * c(weight) + c(bias)",
    relu: str = "np.maximum(x, 0)",
    add: str = "x + y",
) -> dict[str, str]:
    return {
        "P5-2-solution-3": f"""
def batch_norm(x, mean, var, weight, bias, eps=1e-5):
    def c(values):
        return values[:, None, None]
    return {norm}

def relu(x):
    return {relu}

def add(x, y):
    return {add}
""",
        "P5-2-solution-5": MEAN,
    }


def ending(
    pool: str = "x.mean(axis=(2, 3))",
    dense: str = "x @ w.T + bias",
    shift: str = "x - x.max(axis=-1, keepdims=True)",
    divide: str = "powers / powers.sum(axis=-1, keepdims=True)",
) -> dict[str, str]:
    return {
        "P5-2-solution-4": f"""
def global_average_pool(x):
    return {pool}

def dense(x, w, bias):
    return {dense}

def softmax(x):
    powers = np.exp({shift})
    return {divide}
"""
    }


# -- P5.3


def breaking_even(
    calls: str = "math.floor(compile_seconds / (no_jax - jax)) + 1", never: str = "float('inf')", when: str = "<="
) -> dict[str, str]:
    body = f"if no_jax {when} jax:\n    return {never}\nreturn {calls}"
    return {"P5-3-solution": function("import math\ndef break_even(compile_seconds, no_jax, jax):", body)}


def timing(
    before: str = "",
    inside: str = "jax.jit(lambda *args: function(*args)).lower(*arguments).compile()",
    unit: str = "1",
    after: str = "",
) -> dict[str, str]:
    body = f"""
{before}
start = time.perf_counter()
{inside}
seconds = time.perf_counter() - start
{after}
return seconds * {unit}
"""
    return {"P5-3-solution-2": function("import time\ndef compile_seconds(function, *arguments):", body)}


def filling(
    rows: str = "cases.items()",
    options: str = "",
    fill: str = "table.fill(row, timed(alternatives))",
    no_jax: str = "lambda: case.no_jax(*case.arguments)",
    with_jax: str = "lambda: compiled(*on_device)",
) -> dict[str, str]:
    return {
        "P5-3-solution-3": f"""
import gc
from functools import partial
from types import SimpleNamespace
from mlhood.jaxlab.tables import operators_table
from mlhood.measure import Measurement, compare

def sides(case):
    compiled, on_device = jax.jit(case.with_jax), jax.device_put(case.arguments)
    return {{"No-JAX": {no_jax}, "JAX": {with_jax}}}

gc.freeze()  # each comparison collects garbage first, among all that is loaded
table = operators_table()
def call(times):
    return lambda: sum(range(times)) * 0.0
cases = dict.fromkeys(table.rows, SimpleNamespace(no_jax=call(20_000), with_jax=call(20_000)))
for row, case in {rows}:
    timed = partial(compare, shortest=1e-4{options})
    alternatives = {{"No-JAX": case.no_jax, "JAX": case.with_jax}}
    {fill}
"""
    }


# -- P5.4


def summing(result: str = "jnp.where(x > 0, x, 0).sum()") -> dict[str, str]:
    return {"P5-4-solution": f"def positive_sum(x):\n    return {result}\n"}


def rooting(
    condition: str = "jnp.abs(x - before) > 1e-6 * x",
    first: str = "(jnp.maximum(a, 1.0), jnp.float32(0))",
    step: str = "((x + a / x) / 2, x)",
    result: str = "jnp.where(a > 0, root, 0.0)",
    safe: str = "jnp.where(a > 0, a, 1.0)",
) -> dict[str, str]:
    body = f"""
argument = a
a = {safe}
def condition(pair):
    x, before = pair
    return {condition}
def step(pair):
    x, before = pair
    return {step}
root, _ = jax.lax.while_loop(condition, step, {first})
a = argument
return {result}
"""
    return {"P5-4-solution-2": function("def square_root(a):", body)}


def remembering(
    body: str = "count, total = state[0] + 1, state[1] + x\nreturn total / count, (count, total)",
) -> dict[str, str]:
    return {"P5-4-solution-3": "seen = []\n" + function("def running_mean(x, state):", body)}


def dropping(
    kept: str = "jax.random.bernoulli(key, 1 - rate, x.shape)", result: str = "jnp.where(kept, x / (1 - rate), 0)"
) -> dict[str, str]:
    return {"P5-4-solution-4": function("def dropout(key, x, rate):", f"kept = {kept}\nreturn {result}")}


# -- P5.5


def recording(
    shape: str = "SHAPES[op](*(x.shape if isinstance(x, Variable) else () for x in operands))",
    output: str = "fresh(shape)",
    append: str = "equations.append(Equation(op, tuple(operands), output))",
    result: str = "output",
) -> dict[str, str]:
    body = f"shape = {shape}\noutput = {output}\n{append}\nreturn {result}"
    head = "from mlhood.jaxlab.tracing.tracer import SHAPES, Equation, Variable, fresh\nonly = fresh(())\n"
    head += "def record(equations, op, operands):"
    return {"P5-5-solution": function(head, body)}


def evaluating(
    order: str = "program.equations",
    read: str = "values[x] if isinstance(x, Variable) else x",
    result: str = "tuple(read(x) for x in program.outputs)",
    after: str = "pass",
) -> dict[str, str]:
    body = f"""
values = dict(zip(program.inputs, arguments))
def read(x):
    return {read}
for equation in {order}:
    values[equation.output] = NUMPY[equation.op](*[read(x) for x in equation.inputs])
    {after}
return {result}
"""
    head = "from mlhood.jaxlab.tracing.tracer import NUMPY, Variable\ndef evaluate(program, *arguments):"
    return {"P5-5-solution-2": function(head, body)}


def living(
    needed: str = "set(program.outputs)",
    also: str = "needed.update(equation.inputs)",
    kept: str = "tuple(kept[::-1])",
    inputs: str = "program.inputs",
) -> dict[str, str]:
    body = f"""
needed, kept = {needed}, []
for equation in program.equations[::-1]:
    if equation.output in needed:
        {also}
        kept.append(equation)
return Program({inputs}, {kept}, program.outputs)
"""
    return {"P5-5-solution-3": function("from mlhood.jaxlab.tracing.tracer import Program\ndef live(program):", body)}


# -- P5.6


def rules(
    relu: str = "g * (x > 0)", add: str = "reduced(g, a), reduced(g, b)", dense: str = "g @ w, g.T @ x, g.sum(axis=0)"
) -> dict[str, str]:
    return {
        "P5-6-solution": f"""
def vjp_relu(g, y, x):
    return ({relu},)

def reduced(g, operand):
    g = g.copy()
    while g.ndim > operand.ndim:
        g = g.sum(axis=0)
    for axis, size in enumerate(operand.shape):
        if size == 1:
            g = g.sum(axis=axis, keepdims=True)
    return g

def vjp_add(g, y, a, b):
    return {add}

def vjp_dense(g, y, x, w, bias):
    return {dense}
""",
        "P5-6-solution-5": "",  # vjp_add is in the cell above
    }


def conv_rule(
    by_w: str = "np.einsum('nfp,nkp->fk', flat, columns(x, kernel, stride, padding)).reshape(w.shape)",
    by_x: str = "scatter(np.einsum('fk,nfp->nkp', w.reshape(len(w), -1), flat), x.shape, kernel, stride, padding)",
    by_bias: str = "() if bias is None else (g.sum(axis=(0, 2, 3)),)",
) -> dict[str, str]:
    body = f"""
kernel = w.shape[2:]
flat = g.reshape(*g.shape[:2], -1)
return {by_x}, {by_w}, *({by_bias})
"""
    head = "from mlhood.jaxlab.autodiff.windows import columns, scatter\n"
    return {"P5-6-solution-2": function(f"{head}def vjp_conv2d(g, y, x, w, bias=None, stride=1, padding=0):", body)}


def entropy_rule(
    result: str = "g * (p - hot) / len(labels), None", shift: str = "logits.max(axis=1, keepdims=True)"
) -> dict[str, str]:
    body = f"""
p = np.exp(logits - {shift})
p = p / p.sum(axis=1, keepdims=True)
hot = np.eye(logits.shape[1], dtype=np.float32)[labels]
return {result}
"""
    return {"P5-6-solution-3": function("def vjp_cross_entropy(g, y, logits, labels):", body)}


def backward(
    order: str = "reversed(tape.entries)",
    call: str = "rules[entry.op](g, y, *inputs, **entry.attributes)",
    add: str = "gradients[number] = gradients[number] + part if number in gradients else part",
    last: str = "len(tape.values) - 1",
    skip: str = "continue",
) -> dict[str, str]:
    body = f"""
gradients = {{{last}: np.ones_like(tape.values[-1])}}
for entry in {order}:
    g, y = gradients.get(entry.output), tape.values[entry.output]
    inputs = [tape.values[number] for number in entry.inputs]
    if g is None:
        {skip}
    for number, part in zip(entry.inputs, {call}):
        if part is not None:
            {add}
return gradients
"""
    return {"P5-6-solution-4": function("def backward(tape, rules):", body)}
