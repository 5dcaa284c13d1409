"""Random networks in the style of exporters: convolutional and attention layers, in opsets 7 to 23.

Sizes are drawn from few values, so that few kernels have to be compiled; what varies is how layers are combined.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSETS = (7, 9, 11, 13, 17, 20, 23)
CHANNELS = (3, 8, 12, 16, 24)
_UNARY = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Softplus", "Abs", "Neg", "Exp", "Sqrt", "Identity")


class Network:
    """A network under construction; values are (name, shape), with the batch first.

    Args:
        seed: Determines the network and its input.
    """

    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)
        self.opset = int(self.choose(*OPSETS))
        self.nodes, self.tensors = [], []
        self.batch = int(self.choose(1, 2, 3))
        self.is_open = bool(self.choose(True, False))

    def choose(self, *options):
        return options[self.draw.integers(len(options))]

    def constant(self, array):
        self.tensors.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.tensors)}"))
        return self.tensors[-1].name

    def numbers(self, *shape, scale=1.0):
        return self.constant((scale * self.draw.standard_normal(shape)).astype(np.float32))

    def node(self, operator, inputs, shape, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], f"n{len(self.nodes)}", **attributes))
        return name, tuple(shape)

    # -- layers of images

    def conv(self, x):
        n, c, h, w = x[1]
        kind = self.choose("1x1", "3x3", "3x3", "3x3", "strided", "depthwise", "groups", "dilated", "asymmetric")
        f, kernel, stride, pads, dilation, group = int(self.choose(*CHANNELS)), 3, 1, [1] * 4, 1, 1
        if kind == "1x1":
            kernel, pads, stride = 1, [0] * 4, int(self.choose(1, 1, 2))
        if kind == "strided":
            stride = 2
        if kind == "depthwise":
            f, group, stride = c, c, int(self.choose(1, 2))
        if kind == "groups" and c % 2 == 0:
            f, group = int(self.choose(8, 16)), 2
        if kind == "dilated":
            dilation, pads = 2, [2] * 4
        if kind == "asymmetric":
            pads = [0, 1, 1, 2]
        reach = dilation * (kernel - 1) + 1
        size = [(axis + pads[i] + pads[i + 2] - reach) // stride + 1 for i, axis in enumerate((h, w))]
        if min(size) < 1:
            return x
        weight = self.numbers(f, c // group, kernel, kernel, scale=(c // group * kernel * kernel) ** -0.5)
        inputs = [x[0], weight, *([self.numbers(f)] if self.choose(True, False) else [])]
        options = {"strides": [stride] * 2, "pads": pads, "dilations": [dilation] * 2, "group": group}
        return self.node("Conv", inputs, (n, f, *size), **options)

    def normalize(self, x):
        c = x[1][1]
        variance = self.constant(self.draw.uniform(0.5, 2, c).astype(np.float32))
        return self.node("BatchNormalization", [x[0], *(self.numbers(c) for _ in range(3)), variance], x[1])

    def residual(self, x):
        y = x
        for _ in range(int(self.choose(1, 2))):
            c = x[1][1]
            weight = self.numbers(c, c, 3, 3, scale=(9 * c) ** -0.5)
            y = self.node("Conv", [y[0], weight, self.numbers(c)], x[1], pads=[1] * 4)
            y = self.choose(self.activation, self.normalize)(y)
        y = self.node("Add", self.choose([x[0], y[0]], [y[0], x[0]]), x[1])
        return self.activation(y)

    def pool(self, x):
        n, c, h, w = x[1]
        if min(h, w) < 3:
            return self.node("GlobalAveragePool", [x[0]], (n, c, 1, 1))
        kernel, stride, pad = self.choose((2, 2, 0), (3, 2, 1), (3, 1, 1))
        size = [(axis + 2 * pad - kernel) // stride + 1 for axis in (h, w)]
        options = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        operator = self.choose("MaxPool", "AveragePool")
        if operator == "AveragePool":
            options["count_include_pad"] = int(self.choose(0, 1))
        return self.node(operator, [x[0]], (n, c, *size), **options)

    def gate(self, x):
        """Scale each channel, as a squeeze-and-excitation block does."""
        n, c = x[1][:2]
        y = self.node("GlobalAveragePool", [x[0]], (n, c, 1, 1))
        y = self.node("Conv", [y[0], self.numbers(c, c, 1, 1, scale=c**-0.5)], y[1])
        y = self.node("Sigmoid", [y[0]], y[1])
        return self.node("Mul", [x[0], y[0]], x[1])

    def branches(self, x):
        parts = [self.choose(self.pointwise, self.activation)(x) for _ in range(2)]
        shape = (x[1][0], sum(part[1][1] for part in parts), *x[1][2:])
        return self.node("Concat", [name for name, _ in parts], shape, axis=1)

    def pointwise(self, x):
        f, c = int(self.choose(*CHANNELS)), x[1][1]
        return self.node("Conv", [x[0], self.numbers(f, c, 1, 1, scale=c**-0.5)], (x[1][0], f, *x[1][2:]))

    # -- layers of any shape

    def activation(self, x):
        kind = self.choose(*_UNARY, "Clip", "HardSwish", "HardSigmoid", "PRelu")
        if kind == "Clip":
            low, high = (float(v) for v in self.choose((0, 6), (-1, 1), (0, 1)))
            if self.opset < 11:
                return self.node("Clip", [x[0]], x[1], min=low, max=high)
            limits = [self.constant(np.float32(v)) for v in (low, high)]
            return self.node("Clip", [x[0], *limits], x[1])
        if kind == "HardSwish" and self.opset < 14:
            kind = "HardSigmoid"
        if kind == "PRelu":
            slope = self.numbers(*((x[1][1], *(1,) * (len(x[1]) - 2)) if len(x[1]) > 2 else (x[1][-1],)))
            return self.node("PRelu", [x[0], slope], x[1])
        if kind == "Sqrt":  # of what is not negative, mostly
            x = self.node("Abs", [x[0]], x[1]) if self.draw.random() < 0.8 else x
        if kind == "Exp":
            x = self.node("Tanh", [x[0]], x[1])
        return self.node(kind, [x[0]], x[1])

    def arithmetic(self, x):
        shapes = [(), x[1][-1:], (1, *x[1][1:]), x[1][1:]]
        if len(x[1]) == 4:
            shapes.append((x[1][1], 1, 1))
        operator = self.choose("Add", "Sub", "Mul", "Div", "Max", "Min")
        other = self.numbers(*shapes[self.draw.integers(len(shapes))])
        if operator in ("Max", "Min") and self.opset < 8:
            operator = "Add"
        return self.node(
            operator, [x[0], other] if operator == "Div" else self.choose([x[0], other], [other, x[0]]), x[1]
        )

    def softmax(self, x):
        axis = len(x[1]) - 1 if self.opset < 13 else int(self.choose(1, len(x[1]) - 1))
        return self.node("Softmax", [x[0]], x[1], axis=axis)

    def dense(self, x):
        k, f = x[1][-1], int(self.choose(1, 10, 16, 33))
        y = self.node("MatMul", [x[0], self.numbers(k, f, scale=k**-0.5)], (*x[1][:-1], f))
        return self.node("Add", [y[0], self.numbers(f)], y[1]) if self.choose(True, False) else y

    def transpose(self, x):
        order = [0, *(1 + self.draw.permutation(len(x[1]) - 1)).tolist()]
        return self.node("Transpose", [x[0]], [x[1][i] for i in order], perm=order)

    def layer_norm(self, x):
        if self.opset < 17:
            return self.softmax(x)
        scales = [self.numbers(x[1][-1]) for _ in range(2)]
        return self.node("LayerNormalization", [x[0], *scales], x[1], axis=-1, epsilon=1e-5)

    def attention(self, x):
        """Multiply a matrix with its own transpose, normalise the rows, and multiply again."""
        rows, depth = x[1][1:]
        turned = self.node("Transpose", [x[0]], (x[1][0], depth, rows), perm=[0, 2, 1])
        scores = self.node("MatMul", [x[0], turned[0]], (x[1][0], rows, rows))
        scores = self.node("Mul", [scores[0], self.constant(np.float32(depth**-0.5))], scores[1])
        weights = self.node("Softmax", [scores[0]], scores[1], axis=2)
        return self.node("MatMul", [weights[0], x[0]], x[1])

    def flatten(self, x):
        return self.node("Flatten", [x[0]], (x[1][0], int(np.prod(x[1][1:]))))

    def to_tokens(self, x):
        n, c, h, w = x[1]
        y = self.node("Reshape", [x[0], self.constant(np.array([0, c, h * w], np.int64))], (n, c, h * w))
        return self.node("Transpose", [y[0]], (n, h * w, c), perm=[0, 2, 1])

    def build(self):
        """Return the model and an input for it."""
        shape = (self.batch, int(self.choose(1, 3, 8, 16)), int(self.choose(6, 9)), int(self.choose(6, 9)))
        values = [("x", shape)]
        for _ in range(int(self.draw.integers(1, 9))):
            x = values[-1] if self.draw.random() < 0.8 else values[self.draw.integers(len(values))]
            values.append(self._step(x))
        outputs = dict([values[-1], values[self.draw.integers(len(values))]])
        outputs.pop("x", None)
        if not outputs:
            outputs = dict([self.node("Relu", ["x"], shape)])
        return self._model(shape, outputs), {"x": self._input(shape)}

    def _step(self, x):
        anything = [self.activation, self.activation, self.arithmetic, self.softmax, self.dense, self.transpose]
        if len(x[1]) == 4:
            images = [self.conv, self.conv, self.conv, self.residual, self.pool, self.normalize, self.gate]
            steps = [*images, *images, self.branches, self.flatten, self.to_tokens, *anything[:4]]
        elif len(x[1]) == 3:
            steps = [*anything, self.layer_norm, self.attention, self.attention, self.flatten]
        else:
            steps = anything[:5]
        y = self.choose(*steps)(x)
        return y if np.prod(y[1]) < 20_000 else x

    def _input(self, shape):
        x = self.draw.standard_normal(shape).astype(np.float32)
        if self.draw.random() < 0.2:
            for value in (np.nan, np.inf, -np.inf):
                x.flat[self.draw.integers(x.size)] = value
        return x

    def _model(self, shape, outputs):
        first = "n" if self.is_open else shape[0]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, *shape[1:]])
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [first, *s[1:]]) for name, s in outputs.items()]
        graph = helper.make_graph(self.nodes, "random", [x], infos, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
