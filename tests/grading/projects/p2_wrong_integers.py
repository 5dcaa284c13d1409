"""Typical wrong solutions of P2.6 to P2.8, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes
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
HALF = "((1 << shift) >> 1)"

WRONG: tuple[Mistake, ...] = (
    *mistakes(
        "P2.6",
        (
            "the range is not widened",
            parameters(CHOICE.replace("low, high = min(low, 0), max(high, 0)", "")),
            (ASYMMETRIC, UNSIGNED),
            "0 is not between low and high",
        ),
        (
            "symmetric keeps the range's width",
            parameters(CHOICE.replace("max(low / -128, high / 127)", "(high - low) / 255")),
            (SYMMETRIC, UNSIGNED, POWER),
            "which scale does `low` alone need",
        ),
        (
            "the nearest power of two",
            parameters(CHOICE.replace("np.ceil(np.log2(scale))", "np.rint(np.log2(scale))")),
            POWER,
            "which powers of two",
        ),
        (
            "unsigned forgotten",
            parameters(
                CHOICE.replace(
                    'schema == "asymmetric" or (schema == "symmetric_unsigned" and low == 0)', 'schema == "asymmetric"'
                )
            ),
            UNSIGNED,
            "is anything of the widened range below 0",
        ),
        (
            "the offset truncated",
            parameters(CHOICE.replace("int(np.rint(-128 - low / scale))", "int(-128 - low / scale)")),
            ASYMMETRIC,
            "the offset that",
        ),
    ),
    *mistakes(
        "P2.7",
        (
            "padded with the integer 0",
            sums(x="np.pad(x, widths).astype(np.int64) - x_offset"),
            (PADDED, WIDE),
            "which integer represents the real number 0",
        ),
        ("wraps around", rescale(f"((({LONG} + {HALF}) >> shift) + offset).astype(np.int8)"), SATURATED, "clamp after"),
        (
            "real numbers of 64 bits",
            rescale("np.clip(np.floor(acc * (multiplier / 2**shift) + 0.5) + offset, -128, 127).astype(np.int8)"),
            ROUNDED,
            "which numbers are exact",
        ),
        (
            "sums in float32",
            sums(
                x="np.pad(x.astype(np.float32) - x_offset, widths)",
                w="w.astype(np.float32)",
                bias="bias.astype(np.float32)[:, None, None]",
                then=".astype(np.int32)",
            ),
            WIDE,
            "how large do the sums become",
        ),
        (
            "another convolution of torch",
            {
                "P2-7-solution": "def integer_conv(x, w, bias, x_offset, padding):\n"
                "    x, w = (torch.tensor(a.astype(float))[:, :, None] for a in (x.astype(int) - x_offset, w))\n"
                "    sums = torch.conv3d(x, w, padding=(0, padding, padding))[:, :, 0]\n"
                "    return sums.numpy().astype(np.int64) + bias[:, None, None]"
            },
            (SUMS, PADDED, WIDE),
            "is not available where this is graded",
        ),
    ),
    *mistakes(
        "P2.8",
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
            "agreement with the labels",
            row(agreement="(logits.argmax(1) == data.test_labels).mean()"),
            ROWS,
            "whatever the label",
        ),
        (
            "typed in",
            answers("'asymmetric, per channel'", "'power_of_two'", GAIN, "'relu_3'"),
            ANSWERS,
            "of `answers` is wrong",
        ),
        ("a rounded gain", answers(BEST, WORST, f"round({GAIN}, 1)", LAYER), ANSWERS, "Not rounded"),
    ),
)
