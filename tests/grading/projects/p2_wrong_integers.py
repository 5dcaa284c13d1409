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
        ("256 steps instead of 255", parameters(CHOICE.replace("255", "256")), (ASYMMETRIC, UNSIGNED), "255 steps"),
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
            "division by an empty range",
            parameters(CHOICE.replace("if scale == 0:\n    scale = 0.1", "")),
            (ASYMMETRIC, SYMMETRIC, UNSIGNED, POWER),
            "take 0.1|ZeroDivisionError|stops with an error",
        ),
        (
            "always the next power of two",
            parameters(CHOICE.replace("np.ceil(np.log2(scale))", "np.floor(np.log2(scale)) + 1")),
            POWER,
            "which powers of two",
        ),
        (
            "the offset truncated",
            parameters(CHOICE.replace("int(np.rint(-128 - low / scale))", "int(-128 - low / scale)")),
            ASYMMETRIC,
            "the offset that",
        ),
        (
            "the offset as a float",
            parameters(CHOICE.replace("int(np.rint(-128 - low / scale))", "np.rint(-128 - low / scale)")),
            (ASYMMETRIC, UNSIGNED),
            "no integer in the offset",
        ),
        (
            "a small range is empty",
            parameters(CHOICE.replace("if scale == 0:", "if high - low < 1e-6:")),
            (ASYMMETRIC, SYMMETRIC, UNSIGNED, POWER),
            "the scale that",
        ),
        (
            "a logarithm that is not exact",
            parameters("import math\n" + CHOICE.replace("np.ceil(np.log2(scale))", "math.ceil(math.log(scale, 2))")),
            POWER,
            "which powers of two",
        ),
        (
            "the offset of an empty range is no integer of eight bits",
            parameters(CHOICE.replace("    scale = 0.1", "    scale, low = 0.1, -140.8")),
            (ASYMMETRIC, UNSIGNED),
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
        (
            "offset not subtracted",
            sums(x="np.pad(x.astype(np.int64), widths, constant_values=x_offset)"),
            (SUMS, PADDED, WIDE),
            "the offset belongs to x",
        ),
        (
            "the offset in int8",
            sums(x="np.pad((x - np.int8(x_offset)).astype(np.int64), widths)"),
            (SUMS, PADDED, WIDE),
            "wrong values",
        ),
        (
            "no rounding",
            rescale(f"np.clip((({LONG}) >> shift) + offset, -128, 127).astype(np.int8)"),
            ROUNDED,
            "half of the last place",
        ),
        ("wraps around", rescale(f"((({LONG} + {HALF}) >> shift) + offset).astype(np.int8)"), SATURATED, "clamp after"),
        (
            "a product of 32 bits",
            rescale(f"np.clip(((acc * np.int32(multiplier) + {HALF}) >> shift) + offset, -128, 127).astype(np.int8)"),
            SATURATED,
            "how many bits|stops with an error",
        ),
        (
            "ties to even",
            rescale(f"np.clip(np.rint({LONG} / 2.0**shift) + offset, -128, 127).astype(np.int8)"),
            ROUNDED,
            "half of the last place",
        ),
        (
            "a shift of 0 is forgotten",
            rescale(f"np.clip((({LONG} + (1 << (shift - 1))) >> shift) + offset, -128, 127).astype(np.int8)"),
            ROUNDED,
            "nothing is shifted out",
        ),
        (
            "accumulators as real numbers",
            sums(bias="bias.astype(np.float64)[:, None, None]"),
            (SUMS, PADDED, WIDE),
            "wrong data type",
        ),
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
            "reference and approximation swapped",
            row(sqnr="sqnr(logits, exact)"),
            ROWS,
            "which logits are the reference",
        ),
        (
            "bytes of the float graph",
            row(size="sum(value.data.nbytes for value in optimized.constants.values())"),
            ROWS,
            "of which graph are the constants",
        ),
        ("best and worst swapped", answers(WORST, BEST, GAIN, LAYER), ANSWERS, "`best` of `answers`"),
        (
            "the layer with the lowest cumulative bar",
            answers(BEST, WORST, GAIN, "layers['sqnr'].idxmin()"),
            ANSWERS,
            "diamonds are the column `alone`",
        ),
        (
            "typed in",
            answers("'asymmetric, per channel'", "'power_of_two'", GAIN, "'relu_3'"),
            ANSWERS,
            "of `answers` is wrong",
        ),
        (
            "sixteen bits among eight",
            answers("ratio.idxmax()", WORST, GAIN, LAYER),
            ANSWERS,
            "which rows have eight bits",
        ),
        (
            "bytes as a float",
            row(size="float(sum(v.data.nbytes for v in graph.constants.values()))"),
            ROWS,
            "no integer",
        ),
        (
            "a table changed in place",
            {
                "P2-8-solution-3": "def answers(results, layers):\n"
                "    results.set_index('recipe', inplace=True)\n"
                "    ratio, eight = results['sqnr'], results['sqnr'].filter(regex='(?<!int16)$')\n"
                f"    return {{'best': {BEST}, 'worst': {WORST}, 'gain': {GAIN}, 'layer': {LAYER}}}"
            },
            ANSWERS,
            "changes its arguments",
        ),
        (
            "eight bits are what is below 50 dB",
            answers("ratio[ratio < 50].idxmax()", "ratio[ratio < 50].idxmin()", GAIN, LAYER),
            ANSWERS,
            "which rows have eight bits",
        ),
        ("a rounded gain", answers(BEST, WORST, f"round({GAIN}, 1)", LAYER), ANSWERS, "Not rounded"),
        ("a gain is positive", answers(BEST, WORST, f"abs({GAIN})", LAYER), ANSWERS, "which of them minus which"),
        (
            "a maximum that begins at 0",
            answers("max([('', 0), *eight.items()], key=lambda pair: pair[1])[0]", WORST, GAIN, LAYER),
            ANSWERS,
            "`best` of `answers`",
        ),
    ),
)
