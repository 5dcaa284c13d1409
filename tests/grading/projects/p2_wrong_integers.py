"""Typical wrong solutions of P2.5 to P2.7, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.gallery import Mistake, mistakes
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

ASYMMETRIC, SYMMETRIC, UNSIGNED = "asymmetric_is_right", "symmetric_is_right", "symmetric_unsigned_is_right"
POWER = "power_of_two_is_right"
SUMS, PADDED, WIDE = "sums_are_right", "padding_stands_for_zero", "sums_do_not_overflow"
ROUNDED, SATURATED = "rescale_rounds", "rescale_saturates"
RATIO_RIGHT, ROWS, ANSWERS = "sqnr_is_measured", "rows_are_measured", "answers_fit_the_table"

LONG = "acc.astype(np.int64) * multiplier"
HALF = "(1 << (shift - 1))"

WRONG: tuple[Mistake, ...] = (
    *mistakes(
        "P2.5",
        (
            "the range is not widened",
            parameters(CHOICE.replace("low, high = min(low, 0), max(high, 0)", "")),
            (ASYMMETRIC, UNSIGNED),
            "widen the range to include 0",
        ),
        ("256 steps instead of 255", parameters(CHOICE.replace("255", "256")), (ASYMMETRIC, UNSIGNED), "/ 255"),
        (
            "symmetric keeps the range's width",
            parameters(CHOICE.replace("max(low / -128, high / 127)", "(high - low) / 255")),
            (SYMMETRIC, UNSIGNED, POWER),
            "larger scale decides",
        ),
        (
            "the nearest power of two",
            parameters(CHOICE.replace("np.ceil(np.log2(scale))", "np.rint(np.log2(scale))")),
            POWER,
            "ceil",
        ),
        (
            "unsigned forgotten",
            parameters(
                CHOICE.replace(
                    'schema == "asymmetric" or (schema == "symmetric_unsigned" and low == 0)', 'schema == "asymmetric"'
                )
            ),
            UNSIGNED,
            "all 256 integers",
        ),
        (
            "offset of the wrong sign",
            parameters(CHOICE.replace("-128 - low / scale", "-128 + low / scale")),
            ASYMMETRIC,
            "maps 0 to an integer",
        ),
        (
            "division by an empty range",
            parameters(CHOICE.replace("if scale == 0:\n    scale = 0.1", "")),
            (ASYMMETRIC, SYMMETRIC, UNSIGNED, POWER),
            "take 0.1|ZeroDivisionError|stops with an error",
        ),
        (
            "always the next power of two",
            parameters(CHOICE.replace("np.ceil(np.log2(scale))", "np.floor(np.log2(scale)) + 1")),
            POWER,
            "ceil",
        ),
        (
            "the offset truncated",
            parameters(CHOICE.replace("int(np.rint(-128 - low / scale))", "int(-128 - low / scale)")),
            ASYMMETRIC,
            "round",
        ),
    ),
    *mistakes(
        "P2.6",
        (
            "padded with the integer 0",
            sums(x="np.pad(x, widths).astype(np.int64) - x_offset"),
            (PADDED, WIDE),
            "pad x with x_offset",
        ),
        (
            "offset not subtracted",
            sums(x="np.pad(x.astype(np.int64), widths, constant_values=x_offset)"),
            (SUMS, PADDED, WIDE),
            "subtract the offset",
        ),
        (
            "sums of sixteen bits",
            sums(
                x="np.pad(x.astype(np.int16) - np.int16(x_offset), widths)",
                w="w.astype(np.int16)",
                bias="bias.astype(np.int16)[:, None, None]",
            ),
            (SUMS, PADDED, WIDE),
            "are wrong",
        ),
        (
            "the offset in int8",
            sums(x="np.pad((x - np.int8(x_offset)).astype(np.int64), widths)"),
            (SUMS, PADDED, WIDE),
            "are wrong",
        ),
        (
            "no rounding",
            rescale(f"np.clip((({LONG}) >> shift) + offset, -128, 127).astype(np.int8)"),
            ROUNDED,
            "half of the last place",
        ),
        ("wraps around", rescale(f"((({LONG} + {HALF}) >> shift) + offset).astype(np.int8)"), SATURATED, "np.clip"),
        (
            "a product of 32 bits",
            rescale(f"np.clip(((acc * np.int32(multiplier) + {HALF}) >> shift) + offset, -128, 127).astype(np.int8)"),
            SATURATED,
            "64 bits|stops with an error",
        ),
        (
            "offset before the shift",
            rescale(f"np.clip((({LONG} + offset + {HALF}) >> shift), -128, 127).astype(np.int8)"),
            SATURATED,
            "np.clip",
        ),
        (
            "ties to even",
            rescale(f"np.clip(np.rint({LONG} / 2.0**shift) + offset, -128, 127).astype(np.int8)"),
            ROUNDED,
            "half of the last place",
        ),
        ("bias forgotten", sums(bias="0"), (SUMS, PADDED, WIDE), "the bias is added once"),
    ),
    *mistakes(
        "P2.7",
        (
            "natural logarithm",
            ratio("10 * np.log((reference**2).sum() / (noise**2).sum())"),
            (RATIO_RIGHT, ROWS),
            "base 10",
        ),
        (
            "variances",
            ratio("10 * np.log10(reference.var() / noise.var())"),
            (RATIO_RIGHT, ROWS),
            "a constant error is noise",
        ),
        (
            "noise over signal",
            ratio("10 * np.log10((noise**2).sum() / (reference**2).sum())"),
            (RATIO_RIGHT, ROWS),
            "signal belongs in the numerator",
        ),
        (
            "agreement with the labels",
            row(agreement="(logits.argmax(1) == data.test_labels).mean()"),
            ROWS,
            "whatever the label",
        ),
        (
            "accuracy of the float graph",
            row(accuracy="(exact.argmax(1) == data.test_labels).mean()"),
            ROWS,
            "whose argmax is the label",
        ),
        ("agreement taken for granted", row(agreement="1.0"), ROWS, "whatever the label"),
        ("reference and approximation swapped", row(sqnr="sqnr(logits, exact)"), ROWS, "logits of `optimized`"),
        (
            "accuracy in percent",
            row(accuracy="100 * (logits.argmax(1) == data.test_labels).mean()"),
            ROWS,
            "from 0 to 1",
        ),
        (
            "bytes of the float graph",
            row(size="sum(value.data.nbytes for value in optimized.constants.values())"),
            ROWS,
            "of the quantised graph",
        ),
        ("best and worst swapped", answers(WORST, BEST, GAIN, LAYER), ANSWERS, "the highest SQNR"),
        (
            "the layer with the lowest cumulative bar",
            answers(BEST, WORST, GAIN, "layers['sqnr'].idxmin() + '?'"),
            ANSWERS,
            "lowest diamond",
        ),
        ("a gain copied from elsewhere", answers(BEST, WORST, "6.02", LAYER), ANSWERS, "gain"),
    ),
)
