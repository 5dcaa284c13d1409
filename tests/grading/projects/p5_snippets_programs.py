"""Building blocks of P5's examples for P5.1 to P5.6: each function returns new source by cell id, right by default."""

from __future__ import annotations

from tests.grading.projects.examples import Snippet

# -- P5.1


to_tree = Snippet("""# %% P5-1-solution
def to_tree(state):
    tree = {}
    for name, value in state.items():
        if <<skipped: name.endswith("num_batches_tracked")>>:
            continue
        *path, last = name.split(".")
        here = tree
        for part in path:
            here = here.setdefault(<<step: part>>, {})
        here[last] = <<leaf: jnp.asarray(value)>>
    return tree
""")


block = Snippet("""# %% P5-1-solution-2
from mlhood.jaxlab.operators import with_jax as ops
def block(params, x, stride):
    def norm(p, y):
        return <<norm: ops.batch_norm(y, p['running_mean'], p['running_var'], p['weight'], p['bias'])>>
    y = ops.conv2d(x, params["conv1"]["weight"], stride=stride, padding=1)
    y = ops.relu(norm(params["bn1"], y))
    y = norm(params["bn2"], ops.conv2d(y, params["conv2"]["weight"], padding=1))
    if <<when: "downsample" in params>>:
        x = norm(params["downsample"]["1"],
                 <<shortcut: ops.conv2d(x, params['downsample']['0']['weight'], stride=stride)>>)
    return <<result: ops.relu(ops.add(y, x))>>
""")


resnet = Snippet("""# %% P5-1-solution-3
def resnet(params, x):
    bn = params["bn1"]
    x = ops.conv2d(x, params["conv1"]["weight"], <<stem: stride=2, padding=3>>)
    x = ops.relu(ops.batch_norm(x, bn["running_mean"], bn["running_var"], bn["weight"], bn["bias"]))
    x = <<pool: ops.max_pool(x)>>
    for number in (1, 2, 3, 4):
        for name in ("0", "1"):
            x = block(params[f"layer{number}"][name], x, <<stride: 2 if number > 1 and name == '0' else 1>>)
    return <<result: ops.dense(ops.global_average_pool(x), params['fc']['weight'], params['fc']['bias'])>>
""")


# -- P5.2


convolving = Snippet("""# %% P5-2-solution
from numpy.lib.stride_tricks import sliding_window_view
def conv2d(x, w, bias=None, stride=1, padding=0):
    x = np.pad(x, ((0, 0), (0, 0), (<<pad: padding>>, <<pad>>), (<<pad>>, <<pad>>)))
    windows = sliding_window_view(x, w.shape[2:], axis=(2, 3))
    windows = <<windows: windows[:, :, ::stride, ::stride]>>
    y = <<product: np.einsum('nchwij,fcij->nfhw', windows, w, optimize=True)>>
    return y if bias is None else y + <<bias: bias[:, None, None]>>
""")


pooling = Snippet("""# %% P5-2-solution-2
def max_pool(<<head: x, kernel=3, stride=2, padding=1>>):
    sides = (padding, padding)
    x = np.pad(x, ((0, 0), (0, 0), sides, sides), constant_values=<<fill: -np.inf>>)
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    return windows[:, :, ::<<stride: stride>>, ::<<stride>>].<<largest: max>>(axis=(4, 5))
""")


norming = Snippet("""# %% P5-2-solution-3
def batch_norm(x, mean, var, weight, bias, eps=1e-5):
    def c(values):
        return values[:, None, None]
    return <<norm: (x - c(mean)) / np.sqrt(c(var) + eps) * c(weight) + c(bias)>>

def relu(x):
    return <<relu: np.maximum(x, 0)>>

def add(x, y):
    return <<add: x + y>>
# %% P5-2-solution-5
def global_average_pool(x):
    return x.mean((2, 3))
""")


ending = Snippet("""# %% P5-2-solution-4
def global_average_pool(x):
    return <<pool: x.mean(axis=(2, 3))>>

def dense(x, w, bias):
    return <<dense: x @ w.T + bias>>

def softmax(x):
    powers = np.exp(<<shift: x - x.max(axis=-1, keepdims=True)>>)
    return <<divide: powers / powers.sum(axis=-1, keepdims=True)>>
""")


# -- P5.3


breaking_even = Snippet("""# %% P5-3-solution
import math
def break_even(compile_seconds, no_jax, jax):
    if no_jax <<when: <=>> jax:
        return <<never: float('inf')>>
    return <<calls: math.floor(compile_seconds / (no_jax - jax)) + 1>>
""")


timing = Snippet("""# %% P5-3-solution-2
import time
def compile_seconds(function, *arguments):
    <<before:>>
    start = time.perf_counter()
    <<inside: jax.jit(lambda *args: function(*args)).lower(*arguments).compile()>>
    seconds = time.perf_counter() - start
    <<after:>>
    return seconds * <<unit: 1>>
""")


filling = Snippet("""# %% P5-3-solution-3
import gc
from functools import partial
from types import SimpleNamespace
from mlhood.jaxlab.tables import operators_table
from mlhood.measure import Measurement, compare

def sides(case):
    compiled, on_device = jax.jit(case.with_jax), jax.device_put(case.arguments)
    return {"No-JAX": <<no_jax: lambda: case.no_jax(*case.arguments)>>,
            "JAX": <<with_jax: lambda: compiled(*on_device)>>}

gc.freeze()  # each comparison collects garbage first, among all that is loaded
table = operators_table()
def call(times):
    return lambda: sum(range(times)) * 0.0
cases = dict.fromkeys(table.rows, SimpleNamespace(no_jax=call(20_000), with_jax=call(20_000)))
for row, case in <<rows: cases.items()>>:
    timed = partial(compare, shortest=1e-4<<options:>>)
    alternatives = {"No-JAX": case.no_jax, "JAX": case.with_jax}
    <<fill: table.fill(row, timed(alternatives))>>
""")


# -- P5.4


summing = Snippet("""# %% P5-4-solution
def positive_sum(x):
    return <<result: jnp.where(x > 0, x, 0).sum()>>
""")


rooting = Snippet("""# %% P5-4-solution-2
def square_root(a):
    argument = a
    a = <<safe: jnp.where(a > 0, a, 1.0)>>
    def condition(pair):
        x, before = pair
        return <<condition: jnp.abs(x - before) > 1e-6 * x>>
    def step(pair):
        x, before = pair
        return <<step: ((x + a / x) / 2, x)>>
    root, _ = jax.lax.while_loop(condition, step, <<first: (jnp.maximum(a, 1.0), jnp.float32(0))>>)
    a = argument
    return <<result: jnp.where(a > 0, root, 0.0)>>
""")


remembering = Snippet("""# %% P5-4-solution-3
seen = []
def running_mean(x, state):
    <<body: count, total = state[0] + 1, state[1] + x
    return total / count, (count, total)>>
""")


dropping = Snippet("""# %% P5-4-solution-4
def dropout(key, x, rate):
    kept = <<kept: jax.random.bernoulli(key, 1 - rate, x.shape)>>
    return <<result: jnp.where(kept, x / (1 - rate), 0)>>
""")


# -- P5.5


recording = Snippet("""# %% P5-5-solution
from mlhood.jaxlab.tracing.tracer import SHAPES, Equation, Variable, fresh
only = fresh(())
def record(equations, op, operands):
    shape = <<shape: SHAPES[op](*(x.shape if isinstance(x, Variable) else () for x in operands))>>
    output = <<output: fresh(shape)>>
    <<append: equations.append(Equation(op, tuple(operands), output))>>
    return <<result: output>>
""")


evaluating = Snippet("""# %% P5-5-solution-2
from mlhood.jaxlab.tracing.tracer import NUMPY, Variable
def evaluate(program, *arguments):
    values = dict(zip(program.inputs, arguments))
    def read(x):
        return <<read: values[x] if isinstance(x, Variable) else x>>
    for equation in <<order: program.equations>>:
        values[equation.output] = NUMPY[equation.op](*[read(x) for x in equation.inputs])
        <<after: pass>>
    return <<result: tuple(read(x) for x in program.outputs)>>
""")


living = Snippet("""# %% P5-5-solution-3
from mlhood.jaxlab.tracing.tracer import Program
def live(program):
    needed, kept = <<needed: set(program.outputs)>>, []
    for equation in program.equations[::-1]:
        if equation.output in needed:
            <<also: needed.update(equation.inputs)>>
            kept.append(equation)
    return Program(<<inputs: program.inputs>>, <<kept: tuple(kept[::-1])>>, program.outputs)
""")


# -- P5.6


rules = Snippet("""# %% P5-6-solution
def vjp_relu(g, y, x):
    return (<<relu: g * (x > 0)>>,)

def reduced(g, operand):
    g = g.copy()
    while g.ndim > operand.ndim:
        g = g.sum(axis=0)
    for axis, size in enumerate(operand.shape):
        if size == 1:
            g = g.sum(axis=axis, keepdims=True)
    return g

def vjp_add(g, y, a, b):
    return <<add: reduced(g, a), reduced(g, b)>>

def vjp_dense(g, y, x, w, bias):
    return <<dense: g @ w, g.T @ x, g.sum(axis=0)>>
# %% P5-6-solution-5
""")


conv_rule = Snippet("""# %% P5-6-solution-2
from mlhood.jaxlab.autodiff.windows import columns, scatter
def vjp_conv2d(g, y, x, w, bias=None, stride=1, padding=0):
    kernel = w.shape[2:]
    flat = g.reshape(*g.shape[:2], -1)
    return (
        <<by_x: scatter(np.einsum('fk,nfp->nkp', w.reshape(len(w), -1), flat), x.shape, kernel, stride, padding)>>,
        <<by_w: np.einsum('nfp,nkp->fk', flat, columns(x, kernel, stride, padding)).reshape(w.shape)>>,
        *(<<by_bias: () if bias is None else (g.sum(axis=(0, 2, 3)),)>>))
""")


entropy_rule = Snippet("""# %% P5-6-solution-3
def vjp_cross_entropy(g, y, logits, labels):
    p = np.exp(logits - <<shift: logits.max(axis=1, keepdims=True)>>)
    p = p / p.sum(axis=1, keepdims=True)
    hot = np.eye(logits.shape[1], dtype=np.float32)[labels]
    return <<result: g * (p - hot) / len(labels), None>>
""")


backward = Snippet("""# %% P5-6-solution-4
def backward(tape, rules):
    gradients = {<<last: len(tape.values) - 1>>: np.ones_like(tape.values[-1])}
    for entry in <<order: reversed(tape.entries)>>:
        g, y = gradients.get(entry.output), tape.values[entry.output]
        inputs = [tape.values[number] for number in entry.inputs]
        if g is None:
            <<skip: continue>>
        for number, part in zip(entry.inputs, <<call: rules[entry.op](g, y, *inputs, **entry.attributes)>>):
            if part is not None:
                <<add: gradients[number] = gradients[number] + part if number in gradients else part>>
    return gradients
""")
