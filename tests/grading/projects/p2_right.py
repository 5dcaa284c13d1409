"""Right solutions of P2 in styles other than the source notebook's."""

from __future__ import annotations

ARRAY_OPERATIONS = {
    # b stays in a register: the traffic is that of this nest
    "P2-1-solution": """
def linear_relu(x, w, b, y):
    for j in range(w.shape[0]):
        start = b[j]
        for i in range(x.shape[0]):
            total = start
            for k in range(x.shape[1]):
                total = total + x[i, k] * w[j, k]
            y[i, j] = np.maximum(total, 0)
""",
    "P2-1-solution-2": """
def traffic(rows, depth, outputs):
    n = rows * outputs
    return dict(fused=outputs + n * (2 * depth + 1), separate=n * (2 * depth + 4), saved=3 * n - outputs)
""",
    "P2-3-solution": """
def windows(size, kernel, stride, before, after, dilation=1):
    starts = range(-before, size + after - dilation * (kernel - 1), stride)
    if not starts:
        raise ArithmeticError("no window fits")
    return len(starts)
""",
    "P2-7-solution": """
def integer_conv(x, w, bias, x_offset, padding):
    widths = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    x = np.pad(x, widths, constant_values=x_offset).astype(np.int64) - x_offset
    views = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    sums = np.tensordot(views, w.astype(np.int64), axes=((1, 4, 5), (1, 2, 3)))
    return sums.transpose(0, 3, 1, 2) + bias.reshape(1, -1, 1, 1)
""",
    "P2-7-solution-2": """
def rescale(acc, multiplier, shift, offset):
    product = np.array([int(a) * int(multiplier) for a in acc.ravel()], dtype=object)
    rounded = (2 * product + 2**shift) // 2 ** (shift + 1) + offset
    return np.array([max(-128, min(127, r)) for r in rounded], np.int8).reshape(acc.shape)
""",
    "P2-9-solution": """
from mlhood.compiler.operators.elementwise import Relu
def by_hand(x, w, b, y, pads, kernel):
    conv = Buffer("a", infer_conv(x.type, w.type, (1, 1), pads, (1, 1), 1))
    image = Buffer("image", infer_pool(conv.type, kernel, kernel, (0, 0, 0, 0)))
    steps = [TensorView(image, y), Alloc(conv)]
    steps.append(Compute(Conv((1, 1), pads, (1, 1)), (conv,), (x, w, b)))
    steps.append(Compute(Relu(), (conv,), (conv,)))  # in place
    steps.append(Compute(MaxPool(kernel, kernel, (0, 0, 0, 0), (1, 1)), (image,), (conv,)))
    return [*steps, Dealloc(conv)]
""",
    "P2-10-solution": """
def live_ranges(instructions):
    owner, uses = {}, {}
    for number, step in enumerate(instructions):
        for buffer in step.buffers:
            owner.setdefault(buffer, buffer)
        if isinstance(step, TensorView):
            owner[step.buffer] = owner[step.source]
        for buffer in step.reads + step.writes:
            uses.setdefault(owner[buffer], []).append(number)
    return {b.name: (np.min(n), np.max(n)) for b, n in uses.items() if not isinstance(b, Weight)}
""",
    "P2-10-solution-2": """
def allocate(lifetimes, alignment):
    spans = np.array([(b.bytes, b.first, b.last) for b in lifetimes])
    size = -(-spans[:, 0] // alignment) * alignment
    offset = np.full(len(size), -1)
    for i in np.argsort(-spans[:, 0], kind="stable"):
        live = (offset >= 0) & (spans[:, 1] <= spans[i, 2]) & (spans[i, 1] <= spans[:, 2])
        starts, ends = offset[live], offset[live] + size[live]
        candidates = np.append(0, ends)
        free = [((at + size[i] <= starts) | (ends <= at)).all() for at in candidates]
        offset[i] = candidates[free].min()
    return {b.name: at for b, at in zip(lifetimes, offset)}
""",
    "P2-11-solution-2": """
for row, count in IMAGES.items():
    x = data.test_images[:count]
    made = compare({side: lambda call=call: call(x) for side, call in sides.items()}, atol=0.1, threads=1, rounds=25)
    for column in latency.columns:
        latency[row, column] = made[column]
""",
    "P2-13-solution": """
def bytes_moved(layer, cut, order):
    k, s = layer["kernel"], layer["stride"]
    rows, width = (layer["height"] - k) // s + 1, (layer["width"] - k) // s + 1
    p, f, c = rows // cut["rows"], layer["filters"] // cut["filters"], layer["channels"] // cut["channels"]
    x = cut["channels"] * layer["width"] * ((cut["rows"] - 1) * s + k)
    w, b = cut["filters"] * cut["channels"] * k * k, 4 * cut["filters"]
    y = cut["filters"] * cut["rows"] * width
    times = {"output": (p * f * c, p, 0), "weight": (p * f * c, 1, 1), "input": (p * c, p, 1)}[order]
    return int(np.dot([times[0], times[1] * f, times[2] * p * f * (c - 1), p * f], [x, c * w + b, 8 * y, y]))
""",
}

LOOPS = {
    "P2-6-solution": """
import math
def choose_parameters(low, high, schema):
    if low > 0: low = 0
    if high < 0: high = 0
    def asymmetric():
        s = (high - low) / 255
        if s == 0: return 0.1, -128
        return s, math.floor(127 - high / s + 0.5)
    def symmetric():
        s = -low / 128 if -low / 128 > high / 127 else high / 127
        return (s, 0) if s else (0.1, 0)
    def power():
        s, exponent = symmetric()[0], -149
        while 2.0 ** exponent < s: exponent += 1
        return 2.0 ** exponent, 0
    rules = {"asymmetric": asymmetric, "symmetric": symmetric, "power_of_two": power,
             "symmetric_unsigned": asymmetric if low == 0 else symmetric}
    return rules[schema]()
""",
    "P2-8-solution-2": """
def measured(recipe):
    quantized = quantize(optimized, seen, recipe)
    want, got = (run(g, image=images)["logits"] for g in (optimized, quantized))
    right = [int(np.argmax(row)) == int(label) for row, label in zip(got, data.test_labels)]
    same = [int(np.argmax(a)) == int(np.argmax(b)) for a, b in zip(want, got)]
    size = 0
    for constant in quantized.constants.values():
        size += constant.data.size * constant.data.itemsize
    return {"nodes": len(quantized.topological()), "bytes": size, "sqnr": float(sqnr(want, got)),
            "agreement": sum(same) / len(same), "accuracy": sum(right) / len(right), "extra": "fine"}
""",
    "P2-11-solution-3": """
for name, graph in stages.items():
    right = 0
    for image, digit in zip(data.test_images, data.test_labels):
        right += int(sides[name](image[None])[0].argmax() == digit)
    costs["digits", name] = Count(right)
    costs["bytes", name] = Count(memory(graph))
""",
    "P2-14-solution": """
def fastest(layer):
    stage, machine, found = convolution(**layer), default_machine(), []
    for groups in ((4, 8), (1, 8), (2, 8), (4, 4), (1, 2), (1, 1)):
        share = max(1, layer["filters"] // (groups[0] * groups[1]))
        for rows in (stage.out_height, -(-stage.out_height // 2), -(-stage.out_height // 4), 2, 1):
            for channels in {layer["channels"], layer["channels"] // 2, 16, 8, 4}:
                for twice in (False, True):
                    slicing = Slicing(rows, stage.out_width, share, channels, "output", *groups, twice)
                    if first_misfit(stage, slicing, machine) is None:
                        cycles = time_program(convolution_program(stage, slicing, machine)).cycles
                        found.append((cycles, len(found), asdict(slicing)))
    return min(found)[2]
""",
}

ONE_LINERS = {
    "P2-2-solution": """
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.pooling import MaxPool

DEFAULTS = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}

def common(source):
    return {name: tuple(source.attribute(name, default)) for name, default in DEFAULTS.items()}

relu = lambda source: source.add(Relu(), *source.inputs)
""",
    "P2-2-solution-2": """
def max_pool(source):
    kernel = source.attribute("kernel_shape")
    return (source.add(MaxPool(kernel=kernel, **common(source)), source.input(0)),)
""",
    "P2-2-solution-3": """
def conv(source):
    group = source.attribute("group", 1)
    return [source.add(Conv(group=group, **common(source)), *source.inputs)]
""",
    "P2-3-solution-2": """
from mlhood.errors import CompilerError

def infer_conv(x, w, strides, pads, dilations, group):
    fits = x.element == w.element and x.shape[1] == w.shape[1] * group and w.shape[0] % group == 0
    if not fits:
        raise CompilerError("x and w do not match", got=f"{x.shape} and {w.shape}")
    shape = [x.shape[0], w.shape[0]]
    for axis in (0, 1):
        span = dilations[axis] * (w.shape[2 + axis] - 1) + 1
        margin = x.shape[2 + axis] + pads[axis] + pads[axis + 2] - span
        if margin < 0:
            raise CompilerError("the kernel is too large")
        shape.append(int(np.floor(margin / strides[axis])) + 1)
    return TensorType(x.element, tuple(shape))
""",
    "P2-4-solution-2": """
def fold_batchnorm(graph):
    for bn in [n for n in graph.topological() if n.operator.name == "BatchNormalization"]:
        conv = conv_before(bn, graph)
        if conv and all(v.name in graph.constants for v in (*conv.inputs[1:], *bn.inputs[1:])):
            scale, shift, mean, var = (v.data.astype(np.float64) for v in bn.inputs[1:])
            a = scale / np.sqrt(var + bn.operator.epsilon)
            old = conv.inputs[2].data if len(conv.inputs) > 2 and conv.inputs[2] is not None else np.zeros(len(a))
            w = np.einsum("fcij,f->fcij", conv.inputs[1].data, a).astype(np.float32)
            b = (shift + (old - mean) * a).astype(np.float32)
            new = graph.add(conv.operator, conv.inputs[0], graph.constant("w", w), graph.constant("b", b))
            graph.replace_all_uses(bn.outputs[0], new.outputs[0])
            graph.remove(bn)
            graph.remove(conv)
            return True  # one a call
    return False
""",
    "P2-8-solution-3": """
import pandas as pd
def budget(alone):
    noise = 10 ** (pd.Series(alone) / -10)
    return {"share": (noise / noise.sum()).to_dict(), "sqnr": np.float64(10) * np.log10(1 / noise.sum())}
""",
}

RIGHT: dict[str, dict[str, str]] = {
    "array operations": ARRAY_OPERATIONS,
    "plain loops": LOOPS,
    "lambdas, new nodes and other exceptions": ONE_LINERS,
}
