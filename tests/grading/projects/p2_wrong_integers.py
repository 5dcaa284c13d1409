"""Typical wrong solutions of P2.5 to P2.7, each with what it must cost and what must be said."""

from __future__ import annotations

from tests.grading.projects.gallery import Wrong
from tests.grading.projects.p2_snippets import (
    BEST,
    CHOICE,
    GAIN,
    LAYER,
    WORST,
    answers,
    parameters,
    ratio,
    rescale,
    row,
    sums,
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

LONG = "acc.astype(np.int64) * multiplier"
HALF = "(1 << (shift - 1))"

WRONG: tuple[Wrong, ...] = (
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
    Wrong(
        "always the next power of two",
        "P2.5",
        parameters(CHOICE.replace("np.ceil(np.log2(scale))", "np.floor(np.log2(scale)) + 1")),
        (POWER,),
        "ceil",
    ),
    Wrong(
        "the offset cut off",
        "P2.5",
        parameters(CHOICE.replace("int(np.rint(-128 - low / scale))", "int(-128 - low / scale)")),
        (ASYMMETRIC,),
        "round",
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
        (ROUNDED,),
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
    Wrong(
        "halves to even",
        "P2.6",
        rescale(f"np.clip(np.rint({LONG} / 2.0**shift) + offset, -128, 127).astype(np.int8)"),
        (ROUNDED,),
        "half of the last place",
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
        "accuracy of the real numbers",
        "P2.7",
        row(accuracy="(exact.argmax(1) == data.test_labels).mean()"),
        (ROWS,),
        "whose argmax is the label",
    ),
    Wrong("agreement taken for granted", "P2.7", row(agreement="1.0"), (ROWS,), "whatever the label"),
    Wrong(
        "reference and approximation exchanged", "P2.7", row(sqnr="sqnr(logits, exact)"), (ROWS,), "logits of optimized"
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
