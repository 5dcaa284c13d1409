"""Typical wrong solutions of P2, each with what it must cost and what must be said."""

from __future__ import annotations

from gallery import Wrong
from p2_snippets import (
    BEST,
    CHOICE,
    CONV,
    GAIN,
    LAYER,
    POOL,
    WINDOWS,
    WORST,
    answers,
    before,
    conv_rule,
    fold,
    fuse,
    infer_conv,
    infer_pool,
    nest,
    parameters,
    pool_rule,
    ratio,
    relu_rule,
    rescale,
    row,
    sums,
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
ASYMMETRIC, SYMMETRIC, UNSIGNED, POWER = (
    "asymmetric_is_right",
    "symmetric_is_right",
    "symmetric_unsigned_is_right",
    "power_of_two_is_right",
)
SUMS, PADDED, WIDE, ROUNDED, SATURATED = (
    "sums_are_right",
    "padding_stands_for_zero",
    "sums_do_not_overflow",
    "rescale_rounds",
    "rescale_saturates",
)
RATIO_RIGHT, ROWS, ANSWERS = "sqnr_is_measured", "rows_are_measured", "answers_fit_the_table"

STEP = "total += x[i, k] * w[j, k]"
LONG = "acc.astype(np.int64) * multiplier"
HALF = "(1 << (shift - 1))"

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
    Wrong("the old convolution stays", "P2.4", fold(last="pass"), (FOLDED,), "take the old convolution out"),
    Wrong("nothing is said", "P2.4", fuse(answer="None"), (SAID,), "does not say"),
    Wrong("the relu is only dropped", "P2.4", fuse("conv.operator"), (FUSED, SAID), "activation=\\('Relu',\\)"),
    Wrong("always changed", "P2.4", fold(answer="True"), (SAID,), "says the wrong thing"),
    # P2.5
    Wrong(
        "the range is not widened",
        "P2.5",
        parameters(CHOICE.replace("low, high = min(low, 0), max(high, 0)", "")),
        (ASYMMETRIC, UNSIGNED),
        "a range must hold 0",
    ),
    Wrong(
        "256 steps",
        "P2.5",
        parameters(CHOICE.replace("255", "256")),
        (ASYMMETRIC, UNSIGNED),
        "/ 255",
    ),
    Wrong(
        "symmetric keeps the range's width",
        "P2.5",
        parameters(CHOICE.replace("max(low / -128, high / 127)", "(high - low) / 255")),
        (SYMMETRIC, UNSIGNED, POWER),
        "cut off first",
    ),
    Wrong(
        "the nearest power of two",
        "P2.5",
        parameters(CHOICE.replace("np.ceil(np.log2(scale))", "np.rint(np.log2(scale))")),
        (POWER,),
        "ceil",
    ),
    Wrong(
        "unsigned forgotten",
        "P2.5",
        parameters(
            CHOICE.replace(
                'schema == "asymmetric" or (schema == "symmetric_unsigned" and low == 0)', 'schema == "asymmetric"'
            )
        ),
        (UNSIGNED,),
        "all 256 integers",
    ),
    Wrong(
        "offset of the wrong sign",
        "P2.5",
        parameters(CHOICE.replace("-128 - low / scale", "-128 + low / scale")),
        (ASYMMETRIC,),
        "puts 0 on an integer",
    ),
    Wrong(
        "division by an empty range",
        "P2.5",
        parameters(CHOICE.replace("if scale == 0:\n    scale = 0.1", "")),
        (ASYMMETRIC, SYMMETRIC, UNSIGNED, POWER),
        "take 0.1|ZeroDivisionError|stops with an error",
    ),
    # P2.6
    Wrong(
        "padded with the integer 0",
        "P2.6",
        sums(x="np.pad(x, around).astype(np.int64) - x_offset"),
        (PADDED, WIDE),
        "pad x with x_offset",
    ),
    Wrong(
        "offset not subtracted",
        "P2.6",
        sums(x="np.pad(x.astype(np.int64), around, constant_values=x_offset)"),
        (SUMS, PADDED, WIDE),
        "subtract the offset",
    ),
    Wrong(
        "sums of sixteen bits",
        "P2.6",
        sums(
            x="np.pad(x.astype(np.int16) - np.int16(x_offset), around)",
            w="w.astype(np.int16)",
            bias="bias.astype(np.int16)[:, None, None]",
        ),
        (SUMS, PADDED, WIDE),
        "are wrong",
    ),
    Wrong(
        "the offset in int8",
        "P2.6",
        sums(x="np.pad((x - np.int8(x_offset)).astype(np.int64), around)"),
        (SUMS, PADDED, WIDE),
        "are wrong",
    ),
    Wrong(
        "no rounding",
        "P2.6",
        rescale(f"np.clip((({LONG}) >> shift) + offset, -128, 127).astype(np.int8)"),
        (ROUNDED, SATURATED),
        "half of the last place",
    ),
    Wrong(
        "wraps round",
        "P2.6",
        rescale(f"((({LONG} + {HALF}) >> shift) + offset).astype(np.int8)"),
        (SATURATED,),
        "np.clip",
    ),
    Wrong(
        "a product of 32 bits",
        "P2.6",
        rescale(f"np.clip(((acc * np.int32(multiplier) + {HALF}) >> shift) + offset, -128, 127).astype(np.int8)"),
        (SATURATED,),
        "64 bits|stops with an error",
    ),
    Wrong(
        "offset before the shift",
        "P2.6",
        rescale(f"np.clip((({LONG} + offset + {HALF}) >> shift), -128, 127).astype(np.int8)"),
        (SATURATED,),
        "np.clip",
    ),
    Wrong("bias forgotten", "P2.6", sums(bias="0"), (SUMS, PADDED, WIDE), "the bias is added once"),
    # P2.7
    Wrong(
        "natural logarithm",
        "P2.7",
        ratio("10 * np.log((reference**2).sum() / (noise**2).sum())"),
        (RATIO_RIGHT, ROWS),
        "base 10",
    ),
    Wrong(
        "variances",
        "P2.7",
        ratio("10 * np.log10(reference.var() / noise.var())"),
        (RATIO_RIGHT, ROWS),
        "a constant error is noise",
    ),
    Wrong(
        "upside down",
        "P2.7",
        ratio("10 * np.log10((noise**2).sum() / (reference**2).sum())"),
        (RATIO_RIGHT, ROWS),
        "signal stands above",
    ),
    Wrong(
        "agreement with the labels",
        "P2.7",
        row(agreement="(logits.argmax(1) == data.test_labels).mean()"),
        (ROWS,),
        "whatever the label",
    ),
    Wrong(
        "accuracy in percent",
        "P2.7",
        row(accuracy="100 * (logits.argmax(1) == data.test_labels).mean()"),
        (ROWS,),
        "from 0 to 1",
    ),
    Wrong(
        "bytes of the float graph",
        "P2.7",
        row(size="sum(value.data.nbytes for value in optimized.constants.values())"),
        (ROWS,),
        "of the quantised graph",
    ),
    Wrong("best and worst exchanged", "P2.7", answers(WORST, BEST, GAIN, LAYER), (ANSWERS,), "the highest SQNR"),
    Wrong(
        "the layer of the cumulative bars",
        "P2.7",
        answers(BEST, WORST, GAIN, "layers['sqnr'].idxmin() + '?'"),
        (ANSWERS,),
        "lowest diamond",
    ),
    Wrong("a gain written down from elsewhere", "P2.7", answers(BEST, WORST, "6.02", LAYER), (ANSWERS,), "gain"),
)
