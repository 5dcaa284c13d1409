"""Typical wrong solutions of P2.1 to P2.4, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes
from tests.grading.projects.p2_snippets import (
    CONV,
    COUNT_DILATED,
    IMPORTS,
    POOL,
    RELUS_FIRST,
    TIDY,
    WINDOWS,
    conv_before,
    conv_rule,
    fold,
    fuse,
    infer_conv,
    infer_pool,
    nest,
    own_pool,
    pool_rule,
    relu_rule,
    shrink,
    traffic,
    windows,
)

COMPUTES, ONCE, PREDICTED = "one_nest_computes_the_layer", "nothing_is_stored_in_between", "traffic_is_predicted"
RELU, POOLING, CONVOLUTION = "relu_is_imported", "max_pool_is_imported", "conv_is_imported"
SHAPE, KEPT, REFUSED = "convolution_has_its_shape", "batch_and_element_are_kept", "misfits_are_refused"
POOLED = "pooling_has_its_type"
FOLDED, FOLD_GUARD, FUSED = "batchnorm_is_folded", "folding_leaves_others_alone", "relu_is_fused"
FUSE_GUARD, CHANGED = "fusing_leaves_others_alone", "rewrites_say_what_they_did"

HALF, MOST, ALL = "half_of_it_goes", "most_of_it_goes", "all_of_it_goes"

RELU_NEST = "for i in range(len(x)):\n        for j in range(len(w)):\n            y[i, j] = max(y[i, j], 0)"
STEP = "total += x[i, k] * w[j, k]"
PADDED = ("(x.shape[2] + pads[0] + pads[2])", "(x.shape[3] + pads[1] + pads[3])")
ALONE = "list(value.users) == [node] and not graph.is_output(value)"

WRONG: tuple[Mistake, ...] = (
    *mistakes(
        "P2.1",
        ("no bias", nest("total = 0.0", STEP, "y[i, j] = max(total, 0)"), COMPUTES, "where does the bias enter"),
        (
            "sums accumulated in y",
            nest("y[i, j] = b[j]", "y[i, j] += x[i, k] * w[j, k]", "y[i, j] = max(y[i, j], 0)"),
            ONCE,
            "keep the sum in a variable",
        ),
        ("bias not read", traffic("n * (2 * depth + 3)", "n * (2 * depth + 1)"), PREDICTED, "wrong for `fused`"),
        (
            "z is not read back",
            traffic("n * (2 * depth + 3)", "n * (2 * depth + 2)"),
            PREDICTED,
            "which accesses to z",
        ),
    ),
    *mistakes(
        "P2.1",
        (
            "a row's product by @",
            nest("total = b[j] + x[i] @ w[j]", "pass", "y[i, j] = max(total, 0)"),
            (COMPUTES, ONCE),
            "for @",
        ),
        ("floats", traffic("n * (2.0 * depth + 4)", "n * (2 * depth + 2)"), PREDICTED, "no integer"),
        (
            "the traffic of another nest",
            {
                "P2-1-solution": """
def linear_relu(x, w, b, y):
    for j in range(w.shape[0]):
        start = b[j]
        for i in range(x.shape[0]):
            y[i, j] = max(sum((x[i, k] * w[j, k] for k in range(x.shape[1])), start), 0)
"""
            },
            PREDICTED,
            "wrong for `fused`",
        ),
        (
            "two nests, and a z of its own",
            nest(
                "total = b[j]",
                STEP,
                "z[i, j] = total",
                before="z = np.zeros(y.shape)",
                then=RELU_NEST.replace("y[i, j], 0", "z[i, j], 0"),
            ),
            ONCE,
            "stored somewhere else first",
        ),
        (
            "two products at a time, and none for what is left",
            nest(
                "total = b[j]",
                f"{STEP} + x[i, k + 1] * w[j, k + 1]",
                "y[i, j] = max(total, 0)",
                steps="range(0, x.shape[1] - 1, 2)",
            ),
            COMPUTES,
            "wrong values in y",
        ),
    ),
    *mistakes(
        "P2.2",
        ("relu left out", relu_rule("return source.input(0)"), RELU, "adds other nodes"),
        (
            "strides of a pooling default to its kernel, as in torch",
            pool_rule(strides="source.attribute('strides', kernel)"),
            POOLING,
            "ONNX's defaults: strides 1",
        ),
        (
            "pads in torch's order",
            conv_rule(pads="tuple(source.attribute('pads', (0, 0, 0, 0))[i] for i in (0, 2, 1, 3))"),
            CONVOLUTION,
            "wrong shape|wrong values",
        ),
        ("bias required", conv_rule(bias="source.input(2)"), CONVOLUTION, "an input is missing"),
        ("groups forgotten", conv_rule(group="1"), CONVOLUTION, "group=2|channels do not match"),
        (
            "the package's own rule",
            {
                "P2-2-solution": f"{IMPORTS}\nfrom mlhood.compiler.operators import IMPORT_RULES\n"
                "def relu(source):\n    return IMPORT_RULES['Relu'](source)"
            },
            RELU,
            "is not available where this is graded",
        ),
        (
            "dilations without strides only",
            pool_rule(dilations="(1, 1) if source.attribute('strides') else source.attribute('dilations', (1, 1))"),
            POOLING,
            "each attribute is read for itself",
        ),
        (
            "a third input is a bias",
            conv_rule(bias="source.input(2) if len(source.inputs) == 3 else None"),
            CONVOLUTION,
            "an input whose name is empty",
        ),
    ),
    *mistakes(
        "P2.3",
        (
            "a span of k d",
            windows(WINDOWS.replace("(kernel - 1) * dilation + 1", "kernel * dilation")),
            SHAPE,
            "it has gaps",
        ),
        (
            "rounded up",
            windows(
                WINDOWS.replace(
                    "return (size + before + after - span) // stride",
                    "return -((span - size - before - after) // stride)",
                )
            ),
            (SHAPE, POOLED),
            "must end within the padded image",
        ),
        (
            "nothing is rejected",
            infer_conv(CONV.replace("if x.element != w.element or c != d * group or f % group:", "if False:")),
            REFUSED,
            "accepts invalid arguments",
        ),
        (
            "strides across, then down",
            infer_conv(CONV.replace("strides[0]", "strides[-1]").replace("strides[1]", "strides[0]")),
            SHAPE,
            r"strides, dilations and kernels are \(down, across\)",
        ),
        (
            "int8 with any other element",
            infer_conv(CONV.replace("if x.element != w.element", "if x.element not in ('int8', w.element)")),
            REFUSED,
            "x is int8 and w is",
        ),
        (
            "always float32, and a batch of 1 for a name",
            infer_conv(
                CONV.replace("TensorType(x.element, (n,", "TensorType('float32', (1 if isinstance(n, str) else n,")
            ),
            KEPT,
            "may be a name",
        ),
        (
            "pooling into w's channels",
            infer_pool(POOL.replace("x.shape[1]", "kernel[0]")),
            POOLED,
            "channels and element type stay",
        ),
        (
            "an exact fit is rejected",
            windows(WINDOWS.replace("after < span", "after <= span")),
            (SHAPE, POOLED),
            "padding allows larger",
        ),
        (
            "the size test ignores the padding",
            windows(WINDOWS.replace("if size + before + after < span", "if size < span")),
            (SHAPE, POOLED),
            "padding allows larger",
        ),
        (
            "an error by accident",
            infer_conv(CONV.replace("raise ValueError", "raise ValueEror")),
            REFUSED,
            "by accident",
        ),
        (
            "sizes as floats",
            windows(WINDOWS.replace("- span) // stride", "- span) / stride // 1")),
            (SHAPE, KEPT, POOLED),
            "each axis of a shape is a name or an integer",
        ),
        (
            "the operator's own inference",
            infer_conv("return Conv(strides, pads, dilations, group).infer(x, w)"),
            (SHAPE, KEPT, REFUSED),
            "is not available where this is graded",
        ),
        (
            "a pooling that accepts what is too large by less than a stride",
            own_pool(f"kernel[0] - {PADDED[0]} >= strides[0] or kernel[1] - {PADDED[1]} >= strides[1]"),
            POOLED,
            "larger than the padded image",
        ),
        (
            "a list for a shape",
            infer_conv(CONV.replace("(n, f, rows, columns)", "[n, f, rows, columns]")),
            SHAPE,
            "is not a tuple",
        ),
        (
            "the dilation of one axis is left out of the size test",
            infer_conv(COUNT_DILATED + CONV.replace("columns = windows(", "columns = count(")),
            REFUSED,
            "on 9 columns",
        ),
    ),
    *mistakes(
        "P2.4",
        ("no epsilon", fold(factor="gamma / np.sqrt(var)"), FOLDED, "each channel"),
        (
            "other readers are ignored",
            conv_before("True")
            | fold(cleanup="conv.outputs[0].users or conv.outputs[0] in graph.outputs.values() or graph.remove(conv)")
            | {
                "P2-4-solution-3": fuse()["P2-4-solution-3"].replace(
                    "graph.remove(conv)",
                    "conv.outputs[0].users or conv.outputs[0] in graph.outputs.values() or graph.remove(conv)",
                )
            },
            (FOLD_GUARD, FUSE_GUARD),
            "must stay",
        ),
        ("the old convolution stays", fold(cleanup="pass"), FOLDED, "the old convolution has to go"),
        ("nothing is returned", fuse(returned="None"), CHANGED, "does not return whether"),
        ("the relu is dropped", fuse("conv.operator"), (FUSED, CHANGED), "differs from the old one in its activation"),
        ("always changed", fold(returned="True"), CHANGED, "returns the wrong value"),
        (
            "a fused activation is ignored",
            conv_before("list(value.users) == [node] and not graph.is_output(value)", without_activation=False),
            (FOLD_GUARD, FUSE_GUARD),
            "has an activation already",
        ),
        ("weights that are not constant", fold(unknown="False"), FOLD_GUARD, "is an input of the graph"),
        (
            "a fusion that asks for constants",
            conv_before(
                "list(value.users) == [node] and not graph.is_output(value) and conv.inputs[1].name in graph.constants"
            ),
            FUSED,
            "w is an input of the graph",
        ),
        (
            "the package's own guard",
            {
                "P2-4-solution": conv_before("has_one_use(graph, value)")["P2-4-solution"]
                + "from mlhood.compiler.passes.rewriting import has_one_use\n"
            },
            (FOLDED, FOLD_GUARD, FUSED, FUSE_GUARD, CHANGED),
            "is not available where this is graded",
        ),
        (
            "strides and groups are lost",
            fuse("Conv((1, 1), conv.operator.pads, (1, 1), activation=('Relu',))"),
            FUSED,
            "the new node's output has another type|do not match",
        ),
        (
            "what is no input is taken for a constant",
            fold(unknown="any(v.name in graph.placeholders for v in (*conv.inputs[1:], *node.inputs[1:]))"),
            FOLD_GUARD,
            "is computed",
        ),
        (
            "an output is what has the name of one",
            conv_before("list(value.users) == [node] and value.name not in graph.outputs"),
            (FOLD_GUARD, FUSE_GUARD),
            "outputs as `features`",
        ),
        (
            "a copy is changed",
            {
                "P2-4-solution-2": fold(returned="graph, changed")["P2-4-solution-2"].replace(
                    "changed = False", "graph, changed = graph.copy(), False"
                )
            },
            (FOLDED, FOLD_GUARD, CHANGED),
            "returns a new graph",
        ),
        (
            "shared weights are removed",
            fold(cleanup="graph.remove(conv)\n        graph.remove_constant(w)"),
            FOLDED,
            "another conv with the same weights",
        ),
    ),
    *mistakes(
        "P2.5",
        (
            "the two rewrites alone",
            shrink("while fold_batchnorm(graph) or fuse_relu(graph):\n        pass"),
            (HALF, MOST, ALL),
            "leaves too many nodes",
        ),
        (
            "without what is computed twice",
            {"P2-5-solution": TIDY.replace("known.setdefault((node.operator, node.inputs), node)", "node")},
            ALL,
            "leaves too many nodes",
        ),
        ("no operators change places", {"P2-5-solution-2": "def relus_first(graph):\n    pass"}, ALL, "change places"),
        (
            "nodes of one operator are the same",
            {"P2-5-solution": TIDY.replace("(node.operator, node.inputs)", "node.operator")},
            (HALF, MOST, ALL),
            "results of the graph after|stops with an error|not a valid graph",
        ),
        (
            "a pooled value that others read",
            {"P2-5-solution-2": RELUS_FIRST.replace("len(pool.outputs[0].users) == 1 and ", "")},
            (HALF, MOST, ALL),
            "a node whose output is used cannot be removed",
        ),
        (
            "operators are the same if their names are",
            {"P2-5-solution": TIDY.replace("(node.operator, node.inputs)", "(node.operator.name, node.inputs)")},
            (HALF, MOST, ALL),
            "results of the graph after",
        ),
        (
            "a pooling of single elements is none, whatever its strides",
            {
                "P2-5-solution": TIDY.replace(
                    "        if first is not node",
                    "        if isinstance(node.operator, MaxPool) and tuple(node.operator.kernel) == (1, 1):\n"
                    "            first = before\n        if first is not node",
                )
            },
            (HALF, MOST, ALL),
            "not a valid graph|stops with an error|results of the graph after",
        ),
        (
            "a sum is taken to be positive",
            {
                "P2-5-solution": TIDY.replace(
                    "isinstance(before.operator, Relu)", "before.operator.name in ('Relu', 'Add')"
                )
            },
            (HALF, MOST, ALL),
            "results of the graph after",
        ),
        (
            "normalisations move in front of a pooling, too",
            {
                "P2-5-solution-2": RELUS_FIRST.replace(
                    "isinstance(node.operator, Relu)", "isinstance(node.operator, (Relu, BatchNormalization))"
                ).replace("pool.inputs[0])", "pool.inputs[0], *node.inputs[1:])")
            },
            (HALF, MOST, ALL),
            "results of the graph after",
        ),
        (
            "a new graph",
            shrink("graph = graph.copy()\n    tidy(graph)\n    return graph"),
            (HALF, MOST, ALL),
            "returns a new graph",
        ),
        (
            "another pass of the package",
            {
                "P2-5-solution-3": "from mlhood.compiler.passes.residual import fuse_residual\n"
                "def shrink(graph):\n    tidy(graph)\n    fuse_residual(graph)"
            },
            (HALF, MOST, ALL),
            "is not available where this is graded",
        ),
    ),
)
