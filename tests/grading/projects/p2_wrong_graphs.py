"""Typical wrong solutions of P2.1 to P2.4, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes
from tests.grading.projects.p2_snippets import (
    CONV,
    IMPORTS,
    POOL,
    TIDY,
    WINDOWS,
    conv_before,
    conv_rule,
    fold,
    fuse,
    infer_conv,
    infer_pool,
    nest,
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

STEP = "total += x[i, k] * w[j, k]"

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
        ("a zero first", nest("y[i, j] = 0; total = b[j]", STEP, "y[i, j] = max(total, 0)"), ONCE, "more than once"),
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
            "the operator's own inference",
            infer_conv("return Conv(strides, pads, dilations, group).infer(x, w)"),
            (SHAPE, KEPT, REFUSED),
            "is not available where this is graded",
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
        ("nothing is returned", fuse(returned="None"), CHANGED, "does not return whether"),
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
    ),
)
