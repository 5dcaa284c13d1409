"""Typical wrong solutions of P2.1 to P2.4, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.gallery import Mistake, mistakes
from tests.grading.projects.p2_snippets import (
    CONV,
    COUNT,
    POOL,
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
    traffic,
    windows,
)

COMPUTES, ONCE, PREDICTED = "one_nest_computes_the_layer", "nothing_is_stored_in_between", "traffic_is_predicted"
RELU, POOLING, CONVOLUTION = "relu_is_imported", "max_pool_is_imported", "conv_is_imported"
SHAPE, KEPT, REFUSED = "convolution_has_its_shape", "batch_and_element_are_kept", "misfits_are_refused"
POOLED = "pooling_has_its_type"
FOLDED, FOLD_GUARD, FUSED = "batchnorm_is_folded", "folding_leaves_others_alone", "relu_is_fused"
FUSE_GUARD, CHANGED = "fusing_leaves_others_alone", "rewrites_say_what_they_did"

STEP = "total += x[i, k] * w[j, k]"

WRONG: tuple[Mistake, ...] = (
    *mistakes(
        "P2.1",
        ("no bias", nest("total = 0.0", STEP, "y[i, j] = max(total, 0)"), COMPUTES, "the bias belongs"),
        (
            "bias after the relu",
            nest("total = 0.0", STEP, "y[i, j] = max(total, 0) + b[j]"),
            COMPUTES,
            "the bias belongs inside the max",
        ),
        (
            "sums accumulated in y",
            nest("y[i, j] = b[j]", "y[i, j] += x[i, k] * w[j, k]", "y[i, j] = max(y[i, j], 0)"),
            ONCE,
            "keep the sum in a variable",
        ),
        (
            "transposed weights",
            nest("total = b[j]", "total += x[i, k] * w[k, j]", "y[i, j] = max(total, 0)"),
            (COMPUTES, ONCE),
            "IndexError",
        ),
        ("bias not read", traffic("n * (2 * depth + 3)", "n * (2 * depth + 1)"), PREDICTED, r"reads b\[j\]"),
        (
            "z is not read back",
            traffic("n * (2 * depth + 3)", "n * (2 * depth + 2)"),
            PREDICTED,
            "z is written and read again",
        ),
        (
            "a second nest for the relu",
            nest("total = b[j]", STEP, "y[i, j] = total", then="y[:] = np.maximum(y, 0)"),
            ONCE,
            "keep the sum in a variable",
        ),
        (
            "every input counted once",
            traffic("(rows + outputs) * depth + outputs + 3 * n", "(rows + outputs) * depth + outputs + n"),
            PREDICTED,
            r"reads b\[j\]",
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
        ("bias dropped", conv_rule(bias="None"), CONVOLUTION, "wrong values"),
        ("bias required", conv_rule(bias="source.input(2)"), CONVOLUTION, "an input is missing"),
        ("groups forgotten", conv_rule(group="1"), CONVOLUTION, "group=2|channels do not match"),
        ("a rule that returns nothing", relu_rule("source.add(Relu(), source.input(0))"), RELU, "does not return"),
        ("dilations forgotten", pool_rule(dilations="(1, 1)"), POOLING, r"source.attribute\('dilations', \(1, 1\)\)"),
        ("LeNet's strides", pool_rule(strides="(2, 2)"), POOLING, "wrong shape"),
    ),
    *mistakes(
        "P2.3",
        (
            "a span of k d",
            windows(WINDOWS.replace("(kernel - 1) * dilation + 1", "kernel * dilation")),
            SHAPE,
            r"\(k - 1\) \* d \+ 1",
        ),
        (
            "the same padding at both ends",
            infer_conv(CONV.replace("pads[2]", "pads[0]").replace("pads[3]", "pads[1]")),
            SHAPE,
            "wrong shape",
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
            "floor",
        ),
        (
            "nothing is rejected",
            infer_conv(CONV.replace("if x.element != w.element or c != d * group or f % group:", "if False:")),
            REFUSED,
            "accepts invalid arguments",
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
            SHAPE,
            "padding allows larger kernels",
        ),
        (
            "the size test ignores the padding",
            windows(WINDOWS.replace("if size + before + after < span", "if size < span")),
            SHAPE,
            "padding allows larger kernels",
        ),
        (
            "the size test ignores the dilation",
            windows(WINDOWS.replace("after < span", "after < kernel")),
            REFUSED,
            "a kernel of 5 that spans 13",
        ),
        (
            "pooling rejects nothing",
            infer_pool(COUNT + POOL.replace("windows(", "count(")),
            POOLED,
            "larger than the padded image",
        ),
        (
            "pads of a pooling grouped by axis",
            infer_pool(
                POOL.replace("pads[0], pads[2]", "pads[0], pads[1]").replace("pads[1], pads[3]", "pads[2], pads[3]")
            ),
            POOLED,
            "top, left, bottom, right|as for a convolution",
        ),
    ),
    *mistakes(
        "P2.4",
        ("no epsilon", fold(factor="gamma / np.sqrt(var)"), FOLDED, "epsilon"),
        ("no square root", fold(factor="gamma / (var + np.float32(node.operator.epsilon))"), (FOLDED, CHANGED), "sqrt"),
        (
            "factor along the input channels",
            fold(weight="w.data * factor[: w.data.shape[1]].reshape(1, -1, 1, 1)"),
            (FOLDED, CHANGED),
            "one per output channel|stops with an error",
        ),
        ("the old bias is lost", fold(shift="beta - mean * factor"), (FOLDED, CHANGED), "b' ="),
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
        (
            "the graph's outputs are ignored",
            conv_before("list(value.users) == [node]"),
            (FOLD_GUARD, FUSE_GUARD),
            "cannot be removed|must stay",
        ),
        ("the old convolution stays", fold(cleanup="pass"), FOLDED, "remove the old convolution"),
        ("nothing is returned", fuse(returned="None"), CHANGED, "does not return whether"),
        ("the relu is dropped", fuse("conv.operator"), (FUSED, CHANGED), "activation=\\('Relu',\\)"),
        ("always changed", fold(returned="True"), CHANGED, "returns the wrong value"),
        (
            "a fused activation is ignored",
            conv_before("list(value.users) == [node] and not graph.is_output(value)", without_activation=False),
            FOLD_GUARD,
            "operator.activation",
        ),
        (
            "strides and groups are lost",
            fuse("Conv((1, 1), conv.operator.pads, (1, 1), activation=('Relu',))"),
            FUSED,
            "the new node's output has another type|do not match",
        ),
    ),
)
