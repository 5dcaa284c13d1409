"""Random ONNX models: of the patterns that passes match, for hypothesis, and in the style of exporters, by a seed."""

import itertools

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

BATCH = 2  # the size of the dynamic batch axis of `models` at run time
OPSET = 20


class ModelBuilder:
    """Builds a model node by node; values are (name, shape), with the batch first.

    Args:
        choose: Returns one of some options.
        seed: Of the constants and the input.
        features: Numbers of channels of a new layer.
    """

    def __init__(self, choose, seed, features):
        self._choose, self.features = choose, features
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.shared = [], {}, {}

    def choose(self, *options):
        return self._choose(options)

    def node(self, op, inputs, shape, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"n{len(self.nodes)}", **attributes))
        return name, tuple(shape)

    def constant(self, array) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def numbers(self, *shape, inputs=3) -> str:
        """Return a constant of numbers for sums of so many products, which two nodes may share."""
        if shape in self.shared and self.choose(True, False, False, False):
            return self.shared[shape]
        scale = (3 / max(inputs, 3)) ** 0.5
        self.shared[shape] = self.constant(self.random.uniform(-scale, scale, shape).astype(np.float32))
        return self.shared[shape]

    def model(self, shape, steps, most, limit):
        """Return a model of up to `most` steps, whose values have up to `limit` elements."""
        values = [("x", shape)]
        for _ in range(self.choose(*range(1, most + 1))):
            x = values[-1] if self.choose(True, True, True, True, False) else self.choose(*values)
            step = self.choose(*steps, add_earlier)
            y = add_earlier(self, x, values) if step is add_earlier else step(self, x)
            if y is not None and np.prod(y[1]) < limit:
                values.append(y)
        chosen = [values[-1], *(self.choose(*values) for _ in range(self.choose(0, 0, 1, 2)))]
        # ONNX does not allow an input as an output
        outputs = dict(self.node("Identity", ["x"], shape) if name == "x" else (name, s) for name, s in chosen)
        first = self.choose("n", shape[0])
        x, *infos = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [first, *s[1:]])
            for name, s in [("x", shape), *outputs.items()]
        )
        tensors = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "random", [x], infos, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    def input(self, shape):
        return self.random.standard_normal(shape).astype(np.float32)


@st.composite
def models(draw):
    """Draw a small model, and its input."""
    d = ModelBuilder(lambda options: draw(st.sampled_from(options)), draw(st.integers(0, 2**20)), (1, 2, 3))
    shape = d.choose((BATCH, 2, 5, 4), (BATCH, 3, 4, 4), (BATCH, 1, 6, 5), (BATCH, 4, 3))
    return d.model(shape, STEPS, most=14, limit=2000), d.input(shape)


def network(seed):
    """Return a network and its inputs, of few sizes, so that few kernels have to be compiled."""
    random = np.random.default_rng(seed)
    choose = lambda options: options[random.integers(len(options))]  # noqa: E731
    d = ModelBuilder(choose, seed, (3, 8, 12, 16, 24))
    shape = d.choose(1, 2, 3), d.choose(1, 3, 8, 16), d.choose(6, 9), d.choose(6, 9)
    model, x = d.model(shape, LAYERS, most=12, limit=20_000), d.input(shape)
    if d.choose(True, False, False, False, False):
        for value in (np.nan, np.inf, -np.inf):
            x.flat[d.random.integers(x.size)] = value
    return model, {"x": x}


# -- steps: each returns a value computed from another one, or None where it does not apply


def channels(shape):
    return (shape[1], *(1,) * (len(shape) - 2))


def activation(d, x):
    op = d.choose("Relu", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Identity", "Abs", "Neg", "Elu", "HardSwish")
    return d.node(op, [x[0]], x[1])


def clip(d, x):
    limits = d.choose((0.0, 6.0), (0.0, None), (None, 1.0), (-1.0, 0.5), (0.5, -0.5))
    inputs = [x[0], *("" if limit is None else d.constant(np.float32(limit)) for limit in limits)]
    return d.node("Clip", inputs, x[1])


def min_or_max(d, x):
    return d.node(d.choose("Max", "Min"), d.choose([x[0], d.constant(np.float32(d.choose(0, 1, -1)))]), x[1])


def conv(d, x):
    if len(x[1]) != 4:
        return None
    n, c, *spatial = x[1]
    features, k, stride, dilation = d.choose(c, *d.features), d.choose(1, 1, 3), d.choose(1, 1, 2), d.choose(1, 1, 1, 2)
    pads = d.choose([0] * 4, [1] * 4, [0, 1, 1, 2])
    group = d.choose(*(g for g in (1, 1, 2, c) if c % g == features % g == 0))
    size = [(spatial[i] + pads[i] + pads[i + 2] - dilation * (k - 1) - 1) // stride + 1 for i in range(2)]
    if min(size) < 1:
        return None
    weight = d.numbers(features, c // group, k, k, inputs=c // group * k * k)
    options = {"pads": pads, "strides": [stride] * 2, "dilations": [dilation] * 2, "group": group}
    inputs = [x[0], weight, *d.choose([], [d.numbers(features)])]
    return d.node("Conv", inputs, (n, features, *size), **options)


def batch_normalization(d, x):
    c = x[1][1]
    variance = d.constant(d.random.uniform(0.5, 2, c).astype(np.float32))
    return d.node("BatchNormalization", [x[0], *(d.numbers(c) for _ in range(3)), variance], x[1])


def arithmetic(d, x):
    shape = d.choose((), (1,), channels(x[1]), (1, *channels(x[1])), x[1][-1:], x[1][1:])
    op = d.choose("Add", "Sub", "Mul", "Div", "Add", "Mul")
    element = d.choose(None, 0.0, 1.0)
    if element is None or op == "Div":
        c = d.constant((d.random.uniform(0.5, 1.5, shape) * d.choose(1, -1)).astype(np.float32))
    else:
        c = d.constant(np.full(shape, element, np.float32))
    inputs = [x[0], c] if op == "Div" or d.choose(True, False) else [c, x[0]]
    return d.node(op, inputs, x[1])


def residual(d, x):
    """Add the results of two short chains on the same value."""
    branches = []
    for _ in range(2):
        y = x
        for _ in range(d.choose(0, 1, 2)):
            y = d.choose(conv_same, conv_same, activation, batch_normalization, clip)(d, y) or y
        branches.append(y)
    return d.node("Add", [name for name, _ in branches], x[1])


def conv_same(d, x):
    if len(x[1]) != 4:
        return None
    c, k = x[1][1], d.choose(1, 3)
    inputs = [x[0], d.numbers(c, c, k, k, inputs=c * k * k), *d.choose([], [d.numbers(c)])]
    return d.node("Conv", inputs, x[1], pads=[k // 2] * 4)


def pool(d, x):
    if len(x[1]) != 4:
        return None
    op, k, stride = d.choose("MaxPool", "AveragePool"), d.choose(1, 2, 3), d.choose(1, 2)
    pads = d.choose([0] * 4, [0] * 4, [1] * 4, [1, 1, 0, 0]) if k > 1 else [0] * 4
    size = [(axis + pads[i] + pads[i + 2] - k) // stride + 1 for i, axis in enumerate(x[1][2:])]
    if min(size) < 1:
        return d.node("GlobalAveragePool", [x[0]], (*x[1][:2], 1, 1))
    more = {"count_include_pad": d.choose(0, 1)} if op == "AveragePool" else {}
    return d.node(op, [x[0]], (*x[1][:2], *size), kernel_shape=[k, k], strides=[stride] * 2, pads=pads, **more)


def pad(d, x):
    if len(x[1]) != 4 or max(x[1][2:]) > 8:
        return None
    before, after = d.choose([0, 0], [1, 0], [1, 1]), d.choose([0, 0], [0, 1], [1, 1])
    extra = d.choose(0, 0, 0, 1)
    pads = d.constant(np.array([0, extra, *before, 0, 0, *after], np.int64))
    value = d.constant(np.float32(d.choose(0.0, 0.0, -1.0, 0.5)))
    spatial = [axis + low + high for axis, low, high in zip(x[1][2:], before, after, strict=True)]
    shape = (x[1][0], x[1][1] + extra, *spatial)
    mode = d.choose("constant", "constant", "edge")
    return d.node("Pad", [x[0], pads, *([value] if mode == "constant" else [])], shape, mode=mode)


def concat(d, x):
    axis = d.choose(*range(1, len(x[1])))
    pieces = [x, *(activation(d, x) for _ in range(d.choose(0, 1)))]
    shape = list(x[1])
    shape[axis] *= len(pieces)
    return d.node("Concat", [name for name, _ in pieces], shape, axis=axis)


def transpose(d, x):
    order = [0, *d.choose(*itertools.permutations(range(1, len(x[1]))))]
    return d.node("Transpose", [x[0]], [x[1][i] for i in order], perm=order)


def channels_last(d, x):
    """Add a chain between two Transposes."""
    if len(x[1]) != 4:
        return None
    y = d.node("Transpose", [x[0]], [x[1][i] for i in (0, 2, 3, 1)], perm=[0, 2, 3, 1])
    for _ in range(d.choose(0, 1, 2)):
        y = d.choose(activation, arithmetic, clip, pad, softmax, twice)(d, y) or y
    return d.node("Transpose", [y[0]], [y[1][i] for i in (0, 3, 1, 2)], perm=[0, 3, 1, 2])


def softmax(d, x):
    return d.node("Softmax", [x[0]], x[1], axis=d.choose(*range(1, len(x[1]))))


def reshape(d, x):
    features = int(np.prod(x[1][1:]))
    halves = [[2, features // 2]] if features % 2 == 0 else []
    shape = d.choose([features], [1, features], [features, 1], list(x[1][1:]), *halves)
    return d.node("Reshape", [x[0], d.constant(np.array([-1, *shape], np.int64))], (x[1][0], *shape))


def flatten(d, x):
    return d.node("Flatten", [x[0]], (x[1][0], int(np.prod(x[1][1:]))))


def unsqueeze_and_back(d, x):
    axis = d.choose(1, 2)
    axes = d.constant(np.array([axis], np.int64))
    y = d.node("Unsqueeze", [x[0], axes], (*x[1][:axis], 1, *x[1][axis:]))
    return d.node("Squeeze", [y[0], axes], x[1])


def layer(d, x):
    """Add a convolution or product, and operators that typically follow one."""
    y = d.choose(conv, conv, matmul)(d, d.choose(pad, identity)(d, x) or x) or matmul(d, x)
    for _ in range(d.choose(0, 1, 2, 3)):
        y = d.choose(batch_normalization, per_channel, activation, min_or_max)(d, y) or y
    return y


def identity(d, x):
    return x


def per_channel(d, x):
    op, shape = d.choose("Add", "Sub", "Mul", "Div"), d.choose(channels(x[1]), ())
    c = d.constant(d.random.uniform(0.5, 1.5, shape).astype(np.float32))
    if d.choose(True, False, False):  # computed from constants
        c, _ = d.node(d.choose("Neg", "Exp", "Sqrt"), [c], shape)
    inputs = [x[0], c]
    return d.node(op, inputs if op == "Div" else d.choose(inputs, inputs[::-1]), x[1])


def padded_pool(d, x):
    y = d.node("Relu", [x[0]], x[1]) if d.choose(True, False) else x
    y = pad(d, y)
    return y and pool(d, y)


def twice(d, x):
    """Compute the same twice."""
    start, result = len(d.nodes), d.choose(activation, conv, per_channel)(d, x)
    copies = [result]
    for node in d.nodes[start:]:
        copies.append(d.node(node.op_type, node.input, result[1]))
        d.nodes[-1].attribute.extend(node.attribute)
    return d.node("Add", [name for name, _ in copies], result[1]) if len(copies) == 2 else result


def matmul(d, x):
    features = d.choose(1, *d.features)
    y = d.node("MatMul", [x[0], d.numbers(x[1][-1], features, inputs=x[1][-1])], (*x[1][:-1], features))
    return d.node("Add", [y[0], d.numbers(features)], y[1]) if d.choose(True, False) else y


def gemm(d, x):
    if len(x[1]) != 2:
        return None
    features = d.choose(1, *d.features)
    transposed = d.choose(0, 1)
    shape = (features, x[1][1]) if transposed else (x[1][1], features)
    attributes = {"alpha": d.choose(1.0, 0.5), "beta": d.choose(1.0, 2.0), "transB": transposed}
    return d.node(
        "Gemm", [x[0], d.numbers(*shape, inputs=x[1][1]), d.numbers(features)], (x[1][0], features), **attributes
    )


def mean(d, x):
    keep = d.choose(0, 1)
    axes = d.choose(list(range(2, len(x[1]))), [len(x[1]) - 1], [1])
    shape = [1 if i in axes else axis for i, axis in enumerate(x[1]) if keep or i not in axes]
    if len(shape) < 2 or not axes:
        return None
    return d.node("ReduceMean", [x[0], d.constant(np.array(axes, np.int64))], shape, keepdims=keep)


def slice_axis(d, x):
    axis = d.choose(*range(1, len(x[1])))
    start = d.choose(0, 0, 1) if x[1][axis] > 1 else 0
    ends = [d.constant(np.array([value], np.int64)) for value in (start, 2**31, axis)]
    shape = list(x[1])
    shape[axis] -= start
    return d.node("Slice", [x[0], *ends], shape)


def add_earlier(d, x, earlier):
    same = [name for name, shape in earlier if shape == x[1]]
    return d.node(d.choose("Add", "Mul", "Sub"), [x[0], d.choose(*same)], x[1])


def rare_activation(d, x):
    op = d.choose("Exp", "Sqrt", "Softplus", "HardSigmoid", "PRelu")
    if op == "PRelu":
        return d.node(op, [x[0], d.numbers(*(channels(x[1]) if len(x[1]) > 2 else x[1][-1:]))], x[1])
    if inner := {"Exp": "Tanh", "Sqrt": "Abs"}.get(op):
        x = d.node(inner, [x[0]], x[1])
    return d.node(op, [x[0]], x[1])


def gate(d, x):
    """Scale each channel, as a squeeze-and-excitation block does."""
    if len(x[1]) != 4:
        return None
    n, c = x[1][:2]
    y = d.node("GlobalAveragePool", [x[0]], (n, c, 1, 1))
    y = d.node("Conv", [y[0], d.numbers(c, c, 1, 1, inputs=c)], y[1])
    y = d.node("Sigmoid", [y[0]], y[1])
    return d.node("Mul", [x[0], y[0]], x[1])


def pointwise(d, x):
    f, c = d.choose(*d.features), x[1][1]
    return d.node("Conv", [x[0], d.numbers(f, c, 1, 1, inputs=c)], (x[1][0], f, *x[1][2:]))


def branches(d, x):
    if len(x[1]) != 4:
        return None
    parts = [d.choose(pointwise, activation)(d, x) for _ in range(2)]
    shape = (x[1][0], sum(part[1][1] for part in parts), *x[1][2:])
    return d.node("Concat", [name for name, _ in parts], shape, axis=1)


def to_tokens(d, x):
    if len(x[1]) != 4:
        return None
    n, c, h, w = x[1]
    y = d.node("Reshape", [x[0], d.constant(np.array([0, c, h * w], np.int64))], (n, c, h * w))
    return d.node("Transpose", [y[0]], (n, h * w, c), perm=[0, 2, 1])


def layer_norm(d, x):
    scales = [d.numbers(x[1][-1]) for _ in range(2)]
    return d.node("LayerNormalization", [x[0], *scales], x[1], axis=-1, epsilon=1e-5)


def attention(d, x):
    """Multiply a matrix with its own transpose, normalise the rows, and multiply again."""
    if len(x[1]) != 3:
        return None
    n, rows, depth = x[1]
    turned = d.node("Transpose", [x[0]], (n, depth, rows), perm=[0, 2, 1])
    scores = d.node("MatMul", [x[0], turned[0]], (n, rows, rows))
    scores = d.node("Mul", [scores[0], d.constant(np.float32(depth**-0.5))], scores[1])
    weights = d.node("Softmax", [scores[0]], scores[1], axis=2)
    return d.node("MatMul", [weights[0], x[0]], x[1])


ANYTHING = (activation, clip, min_or_max, arithmetic, transpose, flatten, matmul, softmax)
STEPS = (*ANYTHING, conv, conv, batch_normalization, pool, pad, concat, channels_last, channels_last, reshape)
STEPS += (unsqueeze_and_back, gemm, mean, slice_axis, layer, layer, layer, padded_pool, padded_pool, twice)
STEPS += (residual, residual)
IMAGES = (conv, conv, conv, layer, residual, residual, pool, batch_normalization, gate, branches)
LAYERS = (*IMAGES, *IMAGES, *ANYTHING, rare_activation, to_tokens, layer_norm, attention, attention)
