"""Random ONNX models, made of what passes look for: the strategy of the property tests."""

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

OPEN = 2  # how long the open batch axis is when models run


class Draft:
    """A model that grows node by node; values are (name, shape), of which the first axis may be open."""

    def __init__(self, draw, seed: int, open_batch: bool):
        self.draw = draw
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.shared = [], {}, {}
        self.batch = OPEN
        self.open_batch = open_batch

    def node(self, op, inputs, shape, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"n{len(self.nodes)}", **attributes))
        return name, tuple(shape)

    def constant(self, array) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def numbers(self, *shape) -> str:
        """A constant of friendly numbers: small, and now and then one that two nodes share."""
        if shape in self.shared and self.draw(st.integers(0, 3)) == 0:
            return self.shared[shape]
        self.shared[shape] = self.constant(self.random.uniform(-1, 1, shape).astype(np.float32))
        return self.shared[shape]

    def some(self, *choices):
        return self.draw(st.sampled_from(choices))


def channels(shape):
    return (shape[1], *(1,) * (len(shape) - 2))


def activation(d, x):
    op = d.some("Relu", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "Identity", "Abs", "Neg")
    return d.node(op, [x[0]], x[1])


def clip(d, x):
    limits = d.some((0.0, 6.0), (0.0, None), (None, 1.0), (-1.0, 0.5), (0.5, -0.5))
    inputs = [x[0], *("" if one is None else d.constant(np.float32(one)) for one in limits)]
    return d.node("Clip", inputs, x[1])


def extreme(d, x):
    return d.node(d.some("Max", "Min"), d.some([x[0], d.constant(np.float32(d.some(0, 1, -1)))]), x[1])


def conv(d, x):
    if len(x[1]) != 4 or min(x[1][2:]) < 1:
        return None
    n, c, h, w = x[1]
    features, k, stride, pad = d.some(c, 1, 2, 3), d.some(1, 1, 3), d.some(1, 1, 2), d.some(0, 1)
    size = [(axis + 2 * pad - k) // stride + 1 for axis in (h, w)]
    group = c if features == c and d.some(True, False) else 1
    if min(h, w) + 2 * pad < k:
        return None
    inputs = [x[0], d.numbers(features, c // group, k, k), *d.some([], [d.numbers(features)])]
    return d.node("Conv", inputs, (n, features, *size), pads=[pad] * 4, strides=[stride] * 2, group=group)


def batch_normalization(d, x):
    c = x[1][1]
    variance = d.constant(d.random.uniform(0.5, 2, c).astype(np.float32))
    return d.node("BatchNormalization", [x[0], *(d.numbers(c) for _ in range(3)), variance], x[1])


def arithmetic(d, x):
    shape = d.some((), (1,), channels(x[1]), (1, *channels(x[1])), x[1][-1:], x[1][1:])
    op = d.some("Add", "Sub", "Mul", "Div", "Add", "Mul")
    name = d.some(None, 0.0, 1.0)
    if name is None or op == "Div":
        c = d.constant((d.random.uniform(0.5, 1.5, shape) * d.some(1, -1)).astype(np.float32))
    else:
        c = d.constant(np.full(shape, name, np.float32))
    inputs = [x[0], c] if op == "Div" or d.some(True, False) else [c, x[0]]
    return d.node(op, inputs, x[1])


def residual(d, x):
    """A sum of what two small chains make of the same value."""
    branches = []
    for _ in range(2):
        y = x
        for _ in range(d.some(0, 1, 2)):
            made = d.some(conv_same, activation, batch_normalization, clip)(d, y)
            y = made or y
        branches.append(y)
    return d.node("Add", [name for name, _ in branches], x[1])


def conv_same(d, x):
    if len(x[1]) != 4:
        return None
    c, k = x[1][1], d.some(1, 3)
    inputs = [x[0], d.numbers(c, c, k, k), *d.some([], [d.numbers(c)])]
    return d.node("Conv", inputs, x[1], pads=[k // 2] * 4)


def pool(d, x):
    if len(x[1]) != 4 or min(x[1][2:]) < 2:
        return None
    op, k, stride = d.some("MaxPool", "AveragePool"), d.some(1, 2), d.some(1, 2)
    pads = d.some([0] * 4, [0] * 4, [1, 1, 0, 0]) if k == 2 else [0] * 4
    size = [(axis + pads[i] + pads[i + 2] - k) // stride + 1 for i, axis in enumerate(x[1][2:])]
    more = {"count_include_pad": d.some(0, 1)} if op == "AveragePool" else {}
    return d.node(op, [x[0]], (*x[1][:2], *size), kernel_shape=[k, k], strides=[stride] * 2, pads=pads, **more)


def pad(d, x):
    if len(x[1]) != 4 or max(x[1][2:]) > 8:
        return None
    before, after = d.some([0, 0], [1, 0], [1, 1]), d.some([0, 0], [0, 1], [1, 1])
    extra = d.some(0, 0, 0, 1)
    pads = d.constant(np.array([0, extra, *before, 0, 0, *after], np.int64))
    value = d.constant(np.float32(d.some(0.0, 0.0, -1.0, 0.5)))
    spatial = [axis + one + two for axis, one, two in zip(x[1][2:], before, after, strict=True)]
    shape = (x[1][0], x[1][1] + extra, *spatial)
    mode = d.some("constant", "constant", "edge")
    return d.node("Pad", [x[0], pads, *([value] if mode == "constant" else [])], shape, mode=mode)


def concat(d, x):
    axis = d.some(*range(1, len(x[1])))
    pieces = [x, *(activation(d, x) for _ in range(d.some(0, 1)))]
    shape = list(x[1])
    shape[axis] *= len(pieces)
    return None if max(shape) > 12 else d.node("Concat", [name for name, _ in pieces], shape, axis=axis)


def transpose(d, x):
    if len(x[1]) == 4:
        order = d.some([0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2], [0, 1, 2, 3])
    else:
        order = [0, *d.draw(st.permutations(range(1, len(x[1]))))]
    return d.node("Transpose", [x[0]], [x[1][i] for i in order], perm=order)


def channels_last(d, x):
    """A chain between a pair of Transposes."""
    if len(x[1]) != 4:
        return None
    y = d.node("Transpose", [x[0]], [x[1][i] for i in (0, 2, 3, 1)], perm=[0, 2, 3, 1])
    for _ in range(d.some(0, 1, 2)):
        y = d.some(activation, arithmetic, clip, pad, softmax, twice)(d, y) or y
    return d.node("Transpose", [y[0]], [y[1][i] for i in (0, 3, 1, 2)], perm=[0, 3, 1, 2])


def softmax(d, x):
    return d.node("Softmax", [x[0]], x[1], axis=d.some(*range(1, len(x[1]))))


def reshape(d, x):
    rest = int(np.prod(x[1][1:]))
    halves = [[2, rest // 2]] if rest % 2 == 0 else []
    shape = d.some([rest], [1, rest], [rest, 1], list(x[1][1:]), *halves)
    return d.node("Reshape", [x[0], d.constant(np.array([-1, *shape], np.int64))], (x[1][0], *shape))


def flatten(d, x):
    return d.node("Flatten", [x[0]], (x[1][0], int(np.prod(x[1][1:]))))


def unsqueeze_and_back(d, x):
    axis = d.some(1, 2)
    axes = d.constant(np.array([axis], np.int64))
    y = d.node("Unsqueeze", [x[0], axes], (*x[1][:axis], 1, *x[1][axis:]))
    return d.node("Squeeze", [y[0], axes], x[1])


def layer(d, x):
    """A convolution or product, and what likes to follow one."""
    y = d.some(conv, conv, matmul)(d, d.some(pad, identity)(d, x) or x) or matmul(d, x)
    for _ in range(d.some(0, 1, 2, 3)):
        y = d.some(batch_normalization, per_channel, activation, extreme)(d, y)
    return y


def identity(d, x):
    return x


def per_channel(d, x):
    op, shape = d.some("Add", "Sub", "Mul", "Div"), d.some(channels(x[1]), ())
    c = d.constant(d.random.uniform(0.5, 1.5, shape).astype(np.float32))
    if d.some(True, False, False):  # computed from constants
        c, _ = d.node(d.some("Neg", "Exp", "Sqrt"), [c], shape)
    inputs = [x[0], c]
    return d.node(op, inputs if op == "Div" else d.some(inputs, inputs[::-1]), x[1])


def padded_pool(d, x):
    y = d.node("Relu", [x[0]], x[1]) if d.some(True, False) else x
    y = pad(d, y)
    return y and pool(d, y)


def twice(d, x):
    """The same computed twice."""
    start, made = len(d.nodes), d.some(activation, conv, per_channel)(d, x)
    copies = [made]
    for node in d.nodes[start:]:
        copies.append(d.node(node.op_type, node.input, made[1]))
        d.nodes[-1].attribute.extend(node.attribute)
    return d.node("Add", [name for name, _ in copies], made[1]) if len(copies) == 2 else made


def matmul(d, x):
    features = d.some(1, 2, 3)
    y = d.node("MatMul", [x[0], d.numbers(x[1][-1], features)], (*x[1][:-1], features))
    return d.node("Add", [y[0], d.numbers(features)], y[1]) if d.some(True, False) else y


def gemm(d, x):
    if len(x[1]) != 2:
        return None
    features = d.some(1, 3)
    turned = d.some(0, 1)
    shape = (features, x[1][1]) if turned else (x[1][1], features)
    numbers = {"alpha": d.some(1.0, 0.5), "beta": d.some(1.0, 2.0), "transB": turned}
    return d.node("Gemm", [x[0], d.numbers(*shape), d.numbers(features)], (x[1][0], features), **numbers)


def mean(d, x):
    keep = d.some(0, 1)
    axes = d.some(list(range(2, len(x[1]))), [len(x[1]) - 1], [1])
    shape = [1 if i in axes else axis for i, axis in enumerate(x[1]) if keep or i not in axes]
    if len(shape) < 2 or not axes:
        return None
    return d.node("ReduceMean", [x[0], d.constant(np.array(axes, np.int64))], shape, keepdims=keep)


def cut(d, x):
    axis = d.some(*range(1, len(x[1])))
    start = d.some(0, 0, 1) if x[1][axis] > 1 else 0
    ends = [d.constant(np.array([value], np.int64)) for value in (start, 2**31, axis)]
    shape = list(x[1])
    shape[axis] -= start
    return d.node("Slice", [x[0], *ends], shape)


def add_earlier(d, x, earlier):
    same = [name for name, shape in earlier if shape == x[1]]
    return d.node(d.some("Add", "Mul", "Sub"), [x[0], d.some(*same)], x[1])


STEPS = (activation, clip, extreme, conv, conv, batch_normalization, arithmetic, residual, pool, pad, concat, transpose)
STEPS += (channels_last, reshape, flatten, unsqueeze_and_back, matmul, gemm, mean, cut, softmax, channels_last)
STEPS += (layer, layer, layer, padded_pool, padded_pool, twice, residual)


@st.composite
def models(draw):
    """Draw a model, of one to fourteen steps, and numbers for its input."""
    d = Draft(draw, draw(st.integers(0, 2**20)), draw(st.booleans()))
    shape = draw(st.sampled_from([(OPEN, 2, 5, 4), (OPEN, 3, 4, 4), (OPEN, 1, 6, 5), (OPEN, 4, 3)]))
    made = [("x", shape)]
    for _ in range(draw(st.integers(1, 14))):
        x = made[-1] if draw(st.integers(0, 4)) else draw(st.sampled_from(made))
        step = draw(st.sampled_from((*STEPS, add_earlier)))
        y = add_earlier(d, x, made) if step is add_earlier else step(d, x)
        if y is not None and np.prod(y[1]) < 2000:
            made.append(y)
    outputs = {made[-1][0], *(draw(st.sampled_from(made))[0] for _ in range(draw(st.sampled_from([0, 0, 1, 2]))))}
    return model(d, shape, [one for one in dict(made).items() if one[0] in outputs]), numbers(d, shape)


def numbers(d, shape):
    return d.random.standard_normal(shape).astype(np.float32)


def model(d, shape, outputs):
    first = "n" if d.open_batch else shape[0]
    declared = helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, *shape[1:]])
    nodes = list(d.nodes)
    made = []
    for i, (name, _) in enumerate(outputs):
        if name == "x":  # an output that is an input needs a node in ONNX
            nodes.append(helper.make_node("Identity", ["x"], ["same"], f"same{i}"))
            name = "same"
        made.append(helper.make_empty_tensor_value_info(name))
    tensors = [numpy_helper.from_array(array, name) for name, array in d.weights.items()]
    opsets = [helper.make_opsetid("", 20)]
    draft = helper.make_model(helper.make_graph(nodes, "random", [declared], made, tensors), opset_imports=opsets)
    made = onnx.shape_inference.infer_shapes(draft).graph.output
    return helper.make_model(
        helper.make_graph(nodes, "random", [declared], made, tensors), opset_imports=opsets, ir_version=8
    )
