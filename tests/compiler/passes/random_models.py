"""Random ONNX models composed of the patterns that passes match: the strategy of the property tests."""

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

BATCH = 2  # the size of the dynamic batch axis at run time


class ModelBuilder:
    """Builds a model node by node; values are (name, shape), with a batch axis that may be dynamic."""

    def __init__(self, draw, seed: int, dynamic_batch: bool):
        self.draw = draw
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.shared = [], {}, {}
        self.batch = BATCH
        self.dynamic_batch = dynamic_batch

    def node(self, op, inputs, shape, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"n{len(self.nodes)}", **attributes))
        return name, tuple(shape)

    def constant(self, array) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def numbers(self, *shape) -> str:
        """Return a constant of small numbers, which two nodes may share."""
        if shape in self.shared and self.draw(st.integers(0, 3)) == 0:
            return self.shared[shape]
        self.shared[shape] = self.constant(self.random.uniform(-1, 1, shape).astype(np.float32))
        return self.shared[shape]

    def choose(self, *choices):
        return self.draw(st.sampled_from(choices))


def channels(shape):
    return (shape[1], *(1,) * (len(shape) - 2))


def activation(d, x):
    op = d.choose("Relu", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "Identity", "Abs", "Neg")
    return d.node(op, [x[0]], x[1])


def clip(d, x):
    limits = d.choose((0.0, 6.0), (0.0, None), (None, 1.0), (-1.0, 0.5), (0.5, -0.5))
    inputs = [x[0], *("" if limit is None else d.constant(np.float32(limit)) for limit in limits)]
    return d.node("Clip", inputs, x[1])


def min_or_max(d, x):
    return d.node(d.choose("Max", "Min"), d.choose([x[0], d.constant(np.float32(d.choose(0, 1, -1)))]), x[1])


def conv(d, x):
    if len(x[1]) != 4 or min(x[1][2:]) < 1:
        return None
    n, c, h, w = x[1]
    features, k, stride, pad = d.choose(c, 1, 2, 3), d.choose(1, 1, 3), d.choose(1, 1, 2), d.choose(0, 1)
    size = [(axis + 2 * pad - k) // stride + 1 for axis in (h, w)]
    group = c if features == c and d.choose(True, False) else 1
    if min(h, w) + 2 * pad < k:
        return None
    inputs = [x[0], d.numbers(features, c // group, k, k), *d.choose([], [d.numbers(features)])]
    return d.node("Conv", inputs, (n, features, *size), pads=[pad] * 4, strides=[stride] * 2, group=group)


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
            y = d.choose(conv_same, activation, batch_normalization, clip)(d, y) or y
        branches.append(y)
    return d.node("Add", [name for name, _ in branches], x[1])


def conv_same(d, x):
    if len(x[1]) != 4:
        return None
    c, k = x[1][1], d.choose(1, 3)
    inputs = [x[0], d.numbers(c, c, k, k), *d.choose([], [d.numbers(c)])]
    return d.node("Conv", inputs, x[1], pads=[k // 2] * 4)


def pool(d, x):
    if len(x[1]) != 4 or min(x[1][2:]) < 2:
        return None
    op, k, stride = d.choose("MaxPool", "AveragePool"), d.choose(1, 2), d.choose(1, 2)
    pads = d.choose([0] * 4, [0] * 4, [1, 1, 0, 0]) if k == 2 else [0] * 4
    size = [(axis + pads[i] + pads[i + 2] - k) // stride + 1 for i, axis in enumerate(x[1][2:])]
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
    return None if max(shape) > 12 else d.node("Concat", [name for name, _ in pieces], shape, axis=axis)


def transpose(d, x):
    if len(x[1]) == 4:
        order = d.choose([0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2], [0, 1, 2, 3])
    else:
        order = [0, *d.draw(st.permutations(range(1, len(x[1]))))]
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
        y = d.choose(batch_normalization, per_channel, activation, min_or_max)(d, y)
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
    features = d.choose(1, 2, 3)
    y = d.node("MatMul", [x[0], d.numbers(x[1][-1], features)], (*x[1][:-1], features))
    return d.node("Add", [y[0], d.numbers(features)], y[1]) if d.choose(True, False) else y


def gemm(d, x):
    if len(x[1]) != 2:
        return None
    features = d.choose(1, 3)
    transposed = d.choose(0, 1)
    shape = (features, x[1][1]) if transposed else (x[1][1], features)
    attributes = {"alpha": d.choose(1.0, 0.5), "beta": d.choose(1.0, 2.0), "transB": transposed}
    return d.node("Gemm", [x[0], d.numbers(*shape), d.numbers(features)], (x[1][0], features), **attributes)


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


STEPS = (
    activation,
    clip,
    min_or_max,
    conv,
    conv,
    batch_normalization,
    arithmetic,
    residual,
    pool,
    pad,
    concat,
    transpose,
)
STEPS += (channels_last, reshape, flatten, unsqueeze_and_back, matmul, gemm, mean, slice_axis, softmax, channels_last)
STEPS += (layer, layer, layer, padded_pool, padded_pool, twice, residual)


@st.composite
def models(draw):
    """Draw a model of up to fourteen steps, and its input."""
    d = ModelBuilder(draw, draw(st.integers(0, 2**20)), draw(st.booleans()))
    shape = draw(st.sampled_from([(BATCH, 2, 5, 4), (BATCH, 3, 4, 4), (BATCH, 1, 6, 5), (BATCH, 4, 3)]))
    values = [("x", shape)]
    for _ in range(draw(st.integers(1, 14))):
        x = values[-1] if draw(st.integers(0, 4)) else draw(st.sampled_from(values))
        step = draw(st.sampled_from((*STEPS, add_earlier)))
        y = add_earlier(d, x, values) if step is add_earlier else step(d, x)
        if y is not None and np.prod(y[1]) < 2000:
            values.append(y)
    outputs = {values[-1][0], *(draw(st.sampled_from(values))[0] for _ in range(draw(st.sampled_from([0, 0, 1, 2]))))}
    return model(d, shape, [value for value in dict(values).items() if value[0] in outputs]), numbers(d, shape)


def numbers(d, shape):
    return d.random.standard_normal(shape).astype(np.float32)


def model(d, shape, outputs):
    first = "n" if d.dynamic_batch else shape[0]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, *shape[1:]])]
    nodes = list(d.nodes)
    output_infos = []
    for i, (name, _) in enumerate(outputs):
        if name == "x":  # ONNX does not allow an input as an output
            nodes.append(helper.make_node("Identity", ["x"], ["same"], f"same{i}"))
            name = "same"
        output_infos.append(helper.make_empty_tensor_value_info(name))
    tensors = [numpy_helper.from_array(array, name) for name, array in d.weights.items()]
    opsets = [helper.make_opsetid("", 20)]
    draft = helper.make_model(helper.make_graph(nodes, "random", inputs, output_infos, tensors), opset_imports=opsets)
    output_infos = onnx.shape_inference.infer_shapes(draft).graph.output
    graph = helper.make_graph(nodes, "random", inputs, output_infos, tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
