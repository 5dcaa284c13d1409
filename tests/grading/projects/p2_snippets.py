"""Building blocks of P2's examples of solutions: each function returns new source by cell id."""

from __future__ import annotations

from textwrap import indent

IMPORTS = """
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.pooling import MaxPool
"""


def nest(
    start: str, step: str, end: str, *, before: str = "pass", steps: str = "range(x.shape[1])", then: str = ""
) -> dict[str, str]:
    return {
        "P2-1-solution": f"""
def linear_relu(x, w, b, y):
    {before}
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            {start}
            for k in {steps}:
                {step}
            {end}
    {then}
"""
    }


def traffic(separate: str, fused: str) -> dict[str, str]:
    return {
        "P2-1-solution-2": f"""
def traffic(rows, depth, outputs):
    n = rows * outputs
    return {{"separate": {separate}, "fused": {fused}}}
"""
    }


def relu_rule(body: str) -> dict[str, str]:
    return {"P2-2-solution": f"{IMPORTS}\ndef relu(source):\n    {body}"}


def pool_rule(
    strides: str = "source.attribute('strides', (1, 1))",
    pads: str = "source.attribute('pads', (0, 0, 0, 0))",
    dilations: str = "source.attribute('dilations', (1, 1))",
) -> dict[str, str]:
    return {
        "P2-2-solution-2": f"""
def max_pool(source):
    kernel = source.attribute("kernel_shape", None)
    return source.add(MaxPool(kernel, {strides}, {pads}, {dilations}), source.input(0))
"""
    }


def conv_rule(
    pads: str = "source.attribute('pads', (0, 0, 0, 0))",
    strides: str = "source.attribute('strides', (1, 1))",
    group: str = "source.attribute('group', 1)",
    bias: str = "source.optional(2)",
) -> dict[str, str]:
    return {
        "P2-2-solution-3": f"""
def conv(source):
    pads = {pads}
    operator = Conv({strides}, pads, source.attribute("dilations", (1, 1)), {group})
    return source.add(operator, source.input(0), source.input(1), {bias})
"""
    }


WINDOWS = """
span = (kernel - 1) * dilation + 1
if size + before + after < span:
    raise ValueError("too large")
return (size + before + after - span) // stride + 1
"""
CONV = """
n, c, h, width = x.shape
f, d, kh, kw = w.shape
if x.element != w.element or c != d * group or f % group:
    raise ValueError("x and w do not match")
rows = windows(h, kh, strides[0], pads[0], pads[2], dilations[0])
columns = windows(width, kw, strides[1], pads[1], pads[3], dilations[1])
return TensorType(x.element, (n, f, rows, columns))
"""
POOL = """
rows = windows(x.shape[2], kernel[0], strides[0], pads[0], pads[2])
columns = windows(x.shape[3], kernel[1], strides[1], pads[1], pads[3])
return TensorType(x.element, (x.shape[0], x.shape[1], rows, columns))
"""


def windows(body: str) -> dict[str, str]:
    head = "def windows(size, kernel, stride, before, after, dilation=1):\n"
    return {"P2-3-solution": head + indent(body.strip(), "    ")}


def infer_conv(body: str) -> dict[str, str]:
    head = "def infer_conv(x, w, strides, pads, dilations, group):\n"
    return {"P2-3-solution-2": head + indent(body.strip(), "    ")}


def infer_pool(body: str) -> dict[str, str]:
    return {"P2-3-solution-3": "def infer_pool(x, kernel, strides, pads):\n" + indent(body.strip(), "    ")}


def conv_before(condition: str, *, without_activation: bool = True, name: str = "conv_before") -> dict[str, str]:
    guard = " or conv.operator.activation" if without_activation else ""
    return {
        "P2-4-solution": f"""
from mlhood.compiler.operators.normalization import BatchNormalization

def {name}(node, graph):
    value = node.inputs[0]
    conv = value.producer
    if conv is None or not isinstance(conv.operator, Conv){guard}:
        return None
    return conv if {condition} else None
"""
    }


def fold(
    factor: str = "gamma / np.sqrt(var + np.float32(node.operator.epsilon))",
    weight: str = "w.data * factor[:, None, None, None]",
    shift: str = "((rest[0].data if rest else 0) - mean) * factor + beta",
    cleanup: str = "graph.remove(conv)",
    returned: str = "changed",
    unknown: str = "any(v.name not in graph.constants for v in (*conv.inputs[1:], *node.inputs[1:]))",
) -> dict[str, str]:
    return {
        "P2-4-solution-2": f"""
def fold_batchnorm(graph):
    changed = False
    for node in list(graph.nodes.values()):
        if not isinstance(node.operator, BatchNormalization):
            continue
        conv = conv_before(node, graph)
        if conv is None or {unknown}:
            continue
        x, w, *rest = conv.inputs
        gamma, beta, mean, var = [value.data for value in node.inputs[1:]]
        factor = {factor}
        weight = graph.constant("folded", {weight})
        graph.replace(node, conv.operator, x, weight, graph.constant("folded.bias", {shift}))
        {cleanup}
        changed = True
    return {returned}
"""
    }


def fuse(operator: str = "replace(conv.operator, activation=('Relu',))", returned: str = "changed") -> dict[str, str]:
    return {
        "P2-4-solution-3": f"""
def fuse_relu(graph):
    changed = False
    for node in list(graph.nodes.values()):
        if not isinstance(node.operator, Relu):
            continue
        conv = conv_before(node, graph)
        if conv is None:
            continue
        graph.replace(node, {operator}, *conv.inputs)
        graph.remove(conv)
        changed = True
    return {returned}
"""
    }


TIDY = """
def tidy(graph):
    for node in reversed(graph.topological()):
        if not (node.outputs[0].users or graph.is_output(node.outputs[0])):
            graph.remove(node)
    known = {}
    for node in graph.topological():
        first = known.setdefault((node.operator, node.inputs), node)
        before = node.inputs[0].producer
        if isinstance(node.operator, Relu) and before and isinstance(before.operator, Relu):
            first = before
        if first is not node:
            graph.replace_all_uses(node.outputs[0], first.outputs[0])
            graph.remove(node)
"""


def shrink(body: str) -> dict[str, str]:
    return {"P2-5-solution-3": f"def shrink(graph):\n    {body}"}


def parameters(body: str) -> dict[str, str]:
    return {"P2-6-solution": "def choose_parameters(low, high, schema):\n" + indent(body.strip(), "    ")}


CHOICE = """
low, high = min(low, 0), max(high, 0)
unsigned = schema == "asymmetric" or (schema == "symmetric_unsigned" and low == 0)
scale = (high - low) / 255 if unsigned else max(low / -128, high / 127)
if scale == 0:
    scale = 0.1
if schema == "power_of_two":
    scale = 2 ** int(np.ceil(np.log2(scale)))
return scale, int(np.rint(-128 - low / scale)) if unsigned else 0
"""


def sums(
    x: str = "np.pad(x.astype(np.int64) - x_offset, widths)",
    w: str = "w.astype(np.int64)",
    bias: str = "bias.astype(np.int64)[:, None, None]",
    then: str = "",
) -> dict[str, str]:
    return {
        "P2-7-solution": f"""
def integer_conv(x, w, bias, x_offset, padding):
    widths = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    x, w = {x}, {w}
    views = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return (np.einsum("nchwij,fcij->nfhw", views, w) + {bias}){then}
"""
    }


def rescale(result: str) -> dict[str, str]:
    return {"P2-7-solution-2": f"def rescale(acc, multiplier, shift, offset):\n    return {result}"}


def ratio(result: str) -> dict[str, str]:
    return {
        "P2-8-solution": f"""
def sqnr(reference, approximation):
    reference = np.asarray(reference, np.float64)
    noise = reference - approximation
    return {result}
"""
    }


def row(
    accuracy: str = "(logits.argmax(1) == data.test_labels).mean()",
    agreement: str = "(logits.argmax(1) == exact.argmax(1)).mean()",
    sqnr: str = "sqnr(exact, logits)",
    size: str = "sum(value.data.nbytes for value in graph.constants.values())",
    nodes: str = "len(graph.nodes)",
) -> dict[str, str]:
    return {
        "P2-8-solution-2": f"""
def measured(recipe):
    graph = quantize(optimized, seen, recipe)
    exact = run(optimized, image=data.test_images)["logits"]
    logits = run(graph, image=data.test_images)["logits"]
    return dict(accuracy={accuracy}, agreement={agreement}, sqnr={sqnr}, bytes={size}, nodes={nodes})
"""
    }


def answers(best: str, worst: str, gain: str, layer: str) -> dict[str, str]:
    return {
        "P2-8-solution-3": f"""
def answers(results, layers):
    ratio = results.set_index("recipe")["sqnr"]
    eight = ratio[[name for name in ratio.index if "int16" not in name]]
    return {{"best": {best}, "worst": {worst}, "gain": {gain}, "layer": {layer}}}
"""
    }


BEST, WORST, LAYER = "eight.idxmax()", "eight.idxmin()", "layers['alone'].idxmin()"
GAIN = "ratio['power_of_two, int16'] - ratio['power_of_two']"
