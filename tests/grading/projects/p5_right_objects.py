"""Right solutions of P5 with classes, closures and lambdas, and with the package."""

from __future__ import annotations

CLOSURES = {
    "P5-1-solution": """
def to_tree(state):
    heads = dict.fromkeys(name.split(".")[0] for name in state if not name.endswith("tracked"))
    def below(head):
        inner = {name.removeprefix(head + "."): value for name, value in state.items() if name.startswith(head + ".")}
        return to_tree(inner) if inner else jnp.array(state[head])
    return {head: below(head) for head in heads}
""",
    "P5-1-solution-2": """
from mlhood.jaxlab.operators import with_jax as ops
class Norm:
    def __init__(self, p):
        self.p = p
    def __call__(self, x):
        p = {name: value.reshape(-1, 1, 1) for name, value in self.p.items()}
        return (x - p["running_mean"]) / jnp.sqrt(p["running_var"] + 1e-5) * p["weight"] + p["bias"]

class Block:
    def __call__(self, params, x, stride):
        steps = [(params["conv1"], stride, params["bn1"], jax.nn.relu), (params["conv2"], 1, params["bn2"], None)]
        y = x
        for conv, by, norm, after in steps:
            y = Norm(norm)(ops.conv2d(y, conv["weight"], None, by, 1))
            y = after(y) if after else y
        if "downsample" in params:
            x = Norm(params["downsample"]["1"])(ops.conv2d(x, params["downsample"]["0"]["weight"], None, stride))
        return ops.relu(x + y)
block = Block()
""",
    "P5-1-solution-3": """
from functools import reduce
@jax.jit
def resnet(params, x):
    stem = ops.relu(Norm(params["bn1"])(ops.conv2d(x, params["conv1"]["weight"], None, 2, 3)))
    plan = [(i, j, 2 if i > 1 and j == 0 else 1) for i in (1, 2, 3, 4) for j in (0, 1)]
    top = reduce(lambda y, p: block(params[f"layer{p[0]}"][str(p[1])], y, p[2]), plan, ops.max_pool(stem))
    return top.mean((-1, -2)) @ params["fc"]["weight"].T + params["fc"]["bias"]
""",
    "P5-2-solution": """
class Convolution:
    def __call__(self, x, w, bias=None, stride=1, padding=0):
        x = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * 2)
        high, wide = ((size - k) // stride + 1 for size, k in zip(x.shape[2:], w.shape[2:]))
        n, c, h, v = x.strides
        shape = (x.shape[0], x.shape[1], *w.shape[2:], high, wide)
        windows = np.lib.stride_tricks.as_strided(x, shape, (n, c, h, v, h * stride, v * stride), writeable=False)
        columns = windows.reshape(len(x), -1, high * wide)
        y = (w.reshape(len(w), -1) @ columns).reshape(len(x), len(w), high, wide)
        return y + (0 if bias is None else bias.reshape(-1, 1, 1))
conv2d = Convolution()
""",
    "P5-2-solution-2": """
max_pool = lambda x, kernel=3, stride=2, padding=1: np.lib.stride_tricks.sliding_window_view(
    np.pad(x, [(0, 0), (0, 0), (padding,) * 2, (padding,) * 2], constant_values=-np.inf), (kernel, kernel), (2, 3)
)[..., ::stride, ::stride, :, :].reshape(*x.shape[:2], -1, (x.shape[3] + 2 * padding - kernel) // stride + 1,
                                         kernel * kernel).max(-1)
""",
    "P5-2-solution-3": """
def batch_norm(x, mean, var, weight, bias, eps=1e-5):
    scale = weight * (var + eps) ** -0.5
    return np.einsum("nchw,c->nchw", x, scale) + np.expand_dims(bias - mean * scale, (1, 2))

relu = lambda x: np.where(x > 0, x, 0)
add = np.add
""",
    "P5-2-solution-5": "",
    "P5-2-solution-4": """
import functools
global_average_pool = functools.partial(np.mean, axis=(2, 3))
dense = lambda x, w, bias: np.einsum("ni,oi->no", x, w) + bias
def softmax(x):
    logs = x - np.max(x, -1)[..., None]
    return np.exp(logs - np.log(np.exp(logs).sum(-1))[..., None])
""",
    "P5-3-solution": """
def break_even(compile_seconds, no_jax, jax):
    gain = no_jax - jax
    return 1 + int(compile_seconds // gain) if gain > 0 else float("inf")
""",
    "P5-3-solution-2": """
from time import perf_counter
def compile_seconds(function, *arguments):
    clock = [perf_counter()]
    traced = jax.jit(lambda *args: function(*args)).trace(*arguments)
    clock.append(perf_counter())
    compiled = traced.lower().compile()
    clock.append(perf_counter())
    return np.diff(clock).sum()
""",
    "P5-5-solution-2": """
from mlhood.jaxlab.tracing.tracer import NUMPY, Variable
def evaluate(program, *arguments):
    from functools import cache
    equations = {equation.output: equation for equation in program.equations}
    inputs = dict(zip(program.inputs, arguments))
    @cache
    def value(x):
        if not isinstance(x, Variable):
            return x
        return inputs[x] if x in inputs else NUMPY[equations[x].op](*map(value, equations[x].inputs))
    return tuple(map(value, program.outputs))
""",
    "P5-6-solution": """
def vjp_relu(g, y, x):
    return [np.where(y > 0, g, 0)]

def vjp_add(g, y, a, b):
    def back(shape):
        padded = (1,) * (g.ndim - len(shape)) + shape
        axes = tuple(i for i, (big, small) in enumerate(zip(g.shape, padded)) if small != big)
        return g.sum(axis=axes, keepdims=True).reshape(shape)
    return [back(a.shape), back(b.shape)]

vjp_dense = lambda g, y, x, w, bias: (np.dot(g, w), np.dot(x.T, g).T, np.ones(len(g), np.float32) @ g)
""",
    "P5-6-solution-5": "",
    "P5-6-solution-3": """
def vjp_cross_entropy(g, y, logits, labels):
    shifted = logits - logits.max(-1, keepdims=True)
    p = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    return p * (g / len(logits)), None
""",
    "P5-6-solution-4": """
def backward(tape, rules):
    gradients = {number: np.zeros_like(value, np.float32) for number, value in enumerate(tape.values)}
    gradients[len(tape.values) - 1] = np.array(1.0, np.float32)
    for entry in tape.entries[::-1]:
        rule = rules[entry.op]
        parts = rule(gradients[entry.output], tape.values[entry.output], *[tape.values[i] for i in entry.inputs],
                     **entry.attributes)
        for number, part in zip(entry.inputs, parts):
            gradients[number] = gradients[number] + (0 if part is None else part)
    return gradients
""",
    "P5-10-solution": """
import jax.sharding as sharding
class Split:
    def __call__(self, mesh, x):
        return jax.jit(lambda x: x, out_shardings=sharding.NamedSharding(mesh, sharding.PartitionSpec("data")))(x)
split_batch = Split()

def parallel_gradient(mesh, loss):
    def gradient(params, x, y):
        rows = sharding.NamedSharding(mesh, sharding.PartitionSpec("data"))
        x, y = (jax.lax.with_sharding_constraint(array, rows) for array in (x, y))
        result = jax.grad(loss)(params, x, y)
        return jax.lax.with_sharding_constraint(result, sharding.NamedSharding(mesh, sharding.PartitionSpec()))
    return jax.jit(gradient)
""",
}

PACKAGE = {
    "P5-1-solution": """
from mlhood.jaxlab.operators import network
def to_tree(state):
    return jax.tree.map(jnp.asarray, network.tree(state))
""",
    "P5-1-solution-2": """
from functools import partial
from mlhood.jaxlab.operators import with_jax
block = partial(network.block, with_jax)
""",
    "P5-1-solution-3": """
resnet = jax.jit(partial(network.forward, with_jax))
""",
    "P5-2-solution": "from mlhood.jaxlab.operators.no_jax import conv2d\n",
    "P5-2-solution-2": "from mlhood.jaxlab.operators.no_jax import max_pool\n",
    "P5-2-solution-3": "from mlhood.jaxlab.operators.no_jax import add, batch_norm, relu\n",
    "P5-2-solution-5": "",
    "P5-2-solution-4": "from mlhood.jaxlab.operators.no_jax import dense, global_average_pool, softmax\n",
    "P5-5-solution": "from mlhood.jaxlab.tracing.tracer import record\n",
    "P5-5-solution-2": "from mlhood.jaxlab.tracing.tracer import evaluate\n",
    "P5-5-solution-3": "from mlhood.jaxlab.tracing.tracer import live\n",
    "P5-6-solution": """
from mlhood.jaxlab.autodiff import RULES
vjp_relu, vjp_add, vjp_dense = (RULES[op] for op in ("relu", "add", "dense"))
""",
    "P5-6-solution-5": "",
    "P5-6-solution-2": "vjp_conv2d = RULES['conv2d']\n",
    "P5-6-solution-3": "vjp_cross_entropy = RULES['cross_entropy']\n",
    "P5-6-solution-4": "from mlhood.jaxlab.autodiff import backward\n",
    "P5-12-solution-2": "from mlhood.jaxlab.cluster.scaling import step_seconds\n",
}
