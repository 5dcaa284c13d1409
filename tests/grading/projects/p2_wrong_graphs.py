"""Typical wrong solutions of P2.1 to P2.4, each with what it must cost and what must be said."""

from __future__ import annotations

from tests.grading.projects.gallery import Wrong
from tests.grading.projects.p2_snippets import (
    CONV,
    COUNT,
    POOL,
    WINDOWS,
    before,
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
SHAPE, KEPT, REFUSED, POOLED = (
    "convolution_has_its_shape",
    "batch_and_element_are_kept",
    "misfits_are_refused",
    "pooling_has_its_type",
)
FOLDED, FOLD_GUARD, FUSED, FUSE_GUARD, SAID = (
    "batchnorm_is_folded",
    "folding_leaves_others_alone",
    "relu_is_fused",
    "fusing_leaves_others_alone",
    "rewrites_say_what_they_did",
)

STEP = "total += x[i, k] * w[j, k]"

WRONG: tuple[Wrong, ...] = (
    # P2.1
    Wrong("no bias", "P2.1", nest("total = 0.0", STEP, "y[i, j] = max(total, 0)"), (COMPUTES,), "the bias belongs"),
    Wrong(
        "bias after the relu",
        "P2.1",
        nest("total = 0.0", STEP, "y[i, j] = max(total, 0) + b[j]"),
        (COMPUTES,),
        "the bias belongs inside the max",
    ),
    Wrong(
        "sums kept in y",
        "P2.1",
        nest("y[i, j] = b[j]", "y[i, j] += x[i, k] * w[j, k]", "y[i, j] = max(y[i, j], 0)"),
        (ONCE,),
        "keep the sum in a variable",
    ),
    Wrong(
        "transposed weights",
        "P2.1",
        nest("total = b[j]", "total += x[i, k] * w[k, j]", "y[i, j] = max(total, 0)"),
        (COMPUTES, ONCE),
        "IndexError",
    ),
    Wrong(
        "bias not read", "P2.1", traffic("n * (2 * depth + 3)", "n * (2 * depth + 1)"), (PREDICTED,), r"reads b\[j\]"
    ),
    Wrong(
        "z is not read back",
        "P2.1",
        traffic("n * (2 * depth + 3)", "n * (2 * depth + 2)"),
        (PREDICTED,),
        "z is written, read again",
    ),
    Wrong(
        "a second nest for the relu",
        "P2.1",
        nest("total = b[j]", STEP, "y[i, j] = total", then="y[:] = np.maximum(y, 0)"),
        (ONCE,),
        "keep the sum in a variable",
    ),
    Wrong(
        "every input read once",
        "P2.1",
        traffic("(rows + outputs) * depth + outputs + 3 * n", "(rows + outputs) * depth + outputs + n"),
        (PREDICTED,),
        r"reads b\[j\]",
    ),
    # P2.2
    Wrong("relu left out", "P2.2", relu_rule("return source.input(0)"), (RELU,), "adds other nodes"),
    Wrong(
        "strides of a pooling default to its kernel, as in torch",
        "P2.2",
        pool_rule(strides="source.attribute('strides', kernel)"),
        (POOLING,),
        "where ONNX gives no strides, they are 1",
    ),
    Wrong(
        "pads in torch's order",
        "P2.2",
        conv_rule(pads="tuple(source.attribute('pads', (0, 0, 0, 0))[i] for i in (0, 2, 1, 3))"),
        (CONVOLUTION,),
        "another shape|wrong values",
    ),
    Wrong("bias dropped", "P2.2", conv_rule(bias="None"), (CONVOLUTION,), "wrong values"),
    Wrong("bias demanded", "P2.2", conv_rule(bias="source.input(2)"), (CONVOLUTION,), "an input is missing"),
    Wrong("groups forgotten", "P2.2", conv_rule(group="1"), (CONVOLUTION,), "group=2|channels do not fit"),
    Wrong(
        "a rule that returns nothing",
        "P2.2",
        relu_rule("source.add(Relu(), source.input(0))"),
        (RELU,),
        "does not return",
    ),
    Wrong(
        "dilations forgotten",
        "P2.2",
        pool_rule(dilations="(1, 1)"),
        (POOLING,),
        r"source.attribute\('dilations', \(1, 1\)\)",
    ),
    Wrong("LeNet's strides", "P2.2", pool_rule(strides="(2, 2)"), (POOLING,), "another shape"),
    # P2.3
    Wrong(
        "a span of k d",
        "P2.3",
        windows(WINDOWS.replace("(kernel - 1) * dilation + 1", "kernel * dilation")),
        (SHAPE,),
        r"\(k - 1\) \* d \+ 1",
    ),
    Wrong(
        "one pad for both ends",
        "P2.3",
        infer_conv(CONV.replace("pads[2]", "pads[0]").replace("pads[3]", "pads[1]")),
        (SHAPE,),
        "wrong shape",
    ),
    Wrong(
        "rounded up",
        "P2.3",
        windows(
            WINDOWS.replace(
                "return (size + before + after - span) // stride", "return -((span - size - before - after) // stride)"
            )
        ),
        (SHAPE, POOLED),
        "floor",
    ),
    Wrong(
        "nothing is refused",
        "P2.3",
        infer_conv(CONV.replace("if x.element != w.element or c != d * group or f % group:", "if False:")),
        (REFUSED,),
        "accepts what does not fit",
    ),
    Wrong(
        "float32 and no names",
        "P2.3",
        infer_conv(CONV.replace("TensorType(x.element, (n,", "TensorType('float32', (1 if isinstance(n, str) else n,")),
        (KEPT,),
        "may be a name",
    ),
    Wrong(
        "pooling into w's channels",
        "P2.3",
        infer_pool(POOL.replace("x.shape[1]", "kernel[0]")),
        (POOLED,),
        "the channels stay",
    ),
    Wrong(
        "an exact fit is refused",
        "P2.3",
        windows(WINDOWS.replace("after < span", "after <= span")),
        (SHAPE,),
        "larger a kernel may be",
    ),
    Wrong(
        "the padding does not count for what fits",
        "P2.3",
        windows(WINDOWS.replace("if size + before + after < span", "if size < span")),
        (SHAPE,),
        "larger a kernel may be",
    ),
    Wrong(
        "what fits is asked without dilation",
        "P2.3",
        windows(WINDOWS.replace("after < span", "after < kernel")),
        (REFUSED,),
        "a kernel of 5 that spans 13",
    ),
    Wrong(
        "pooling refuses nothing",
        "P2.3",
        infer_pool(COUNT + POOL.replace("windows(", "count(")),
        (POOLED,),
        "accepts a window larger",
    ),
    Wrong(
        "pads of a pooling in pairs of an axis",
        "P2.3",
        infer_pool(
            POOL.replace("pads[0], pads[2]", "pads[0], pads[1]").replace("pads[1], pads[3]", "pads[2], pads[3]")
        ),
        (POOLED,),
        "top, left, bottom, right|as in a convolution",
    ),
    # P2.4
    Wrong("no epsilon", "P2.4", fold(factor="gamma / np.sqrt(var)"), (FOLDED,), "epsilon"),
    Wrong(
        "no square root",
        "P2.4",
        fold(factor="gamma / (var + np.float32(node.operator.epsilon))"),
        (FOLDED, SAID),
        "sqrt",
    ),
    Wrong(
        "factor along the input channels",
        "P2.4",
        fold(weight="w.data * factor[: w.data.shape[1]].reshape(1, -1, 1, 1)"),
        (FOLDED, SAID),
        "one factor for each output channel|stops with an error",
    ),
    Wrong("the old bias is lost", "P2.4", fold(shift="beta - mean * factor"), (FOLDED, SAID), "b' ="),
    Wrong(
        "other readers are not asked for",
        "P2.4",
        before("True")
        | fold(last="conv.outputs[0].users or conv.outputs[0] in graph.outputs.values() or graph.remove(conv)")
        | {
            "P2-4-solution-3": fuse()["P2-4-solution-3"].replace(
                "graph.remove(conv)",
                "conv.outputs[0].users or conv.outputs[0] in graph.outputs.values() or graph.remove(conv)",
            )
        },
        (FOLD_GUARD, FUSE_GUARD),
        "had to stay",
    ),
    Wrong(
        "the graph's outputs are forgotten",
        "P2.4",
        before("list(value.users) == [node]"),
        (FOLD_GUARD, FUSE_GUARD),
        "cannot be removed|had to stay",
    ),
    Wrong("the old convolution stays", "P2.4", fold(last="pass"), (FOLDED,), "the old convolution must be gone"),
    Wrong("nothing is said", "P2.4", fuse(answer="None"), (SAID,), "does not say"),
    Wrong("the relu is only dropped", "P2.4", fuse("conv.operator"), (FUSED, SAID), "activation=\\('Relu',\\)"),
    Wrong("always changed", "P2.4", fold(answer="True"), (SAID,), "says the wrong thing"),
    Wrong(
        "a fused activation is not asked for",
        "P2.4",
        before("list(value.users) == [node] and not graph.is_output(value)", plain=False),
        (FOLD_GUARD,),
        "operator.activation",
    ),
    Wrong(
        "strides and groups are lost",
        "P2.4",
        fuse("Conv((1, 1), conv.operator.pads, (1, 1), activation=('Relu',))"),
        (FUSED,),
        "the new node gives another type|do not fit",
    ),
)
