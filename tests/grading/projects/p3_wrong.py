"""Typical wrong solutions of P3, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, changed, mistakes
from tests.grading.projects.p3_quick import BLOCKED as BLOCKS
from tests.grading.projects.p3_quick import DIRECT, MODELS_TABLE, PACK, TABLE
from tests.grading.projects.p3_wrong_gpu import GPU

COUNTED, LAST_STEP = "windows_are_counted", "the_last_step_must_fit"
MACS, BYTES, INTENSITY = "macs_are_counted", "bytes_are_counted", "intensity_is_flop_per_byte"
VALUES, STRIDE, PADDING = "values_are_right", "stride_is_taken", "padding_is_zero_all_around"
BIAS, SIZES, DIRECT_FLOAT32 = "bias_is_added", "any_sizes_will_do", "results_are_float32"
SHAPE, COLUMNS_FLOAT32, ROWS = "columns_have_their_shape", "columns_stay_float32", "rows_are_in_order"
COLUMNS, ZEROS = "columns_are_in_order", "padding_holds_zeros"
PRODUCT, OF_COLUMNS, BATCH = "product_is_right", "product_is_of_columns", "batches_are_kept_apart"
PRODUCT_BIAS, FLOAT32 = "product_gets_its_bias", "product_stays_float32"
HEADROOM = "idle_units_are_counted"
RATES, COMPARED, OPERATIONS = "rates_are_told", "rows_are_comparisons", "operations_are_told"
FASTER = "blas_is_faster_and_agrees"
REORDERED, ROW_ORDER, BLOCKED = "reordered_is_right", "reordered_walks_along_rows", "blocked_is_right"
REUSE, PANELS, PACKED = "blocked_uses_blocks_again", "panels_are_packed", "packed_is_right"
READS_PANELS = "packed_reads_panels"
LOWER, MANY, RIDGE = "the_lower_roof_counts", "roofs_of_many_at_once", "roofs_meet_at_the_ridge"
COLUMN_BYTES, GROWTH = "columns_are_counted", "growth_is_against_the_input"
DIVIDED, KEPT = "parts_are_divided_by_their_factors", "parts_not_named_keep_their_time"
CHOSEN, MODELS, FASTER_MODEL = (
    "convolutions_are_chosen_by_their_weights",
    "models_are_comparisons",
    "blas_speeds_up_the_model",
)
ANY_PRODUCT = "any_product_is_right"
STEPS = (
    "first_share_of_the_course",
    "second_share_of_the_course",
    "last_share_of_the_course",
)
LIMIT, NO_LIMIT = "the_rest_limits_the_speedup", "without_a_rest_there_is_no_limit"

WITHOUT_PANELS = {"P3-7-solution-4": "gemm_packed = lambda a, b: sum(map(np.outer, a.T, b))\n"}
WINDOWS = "(size + 2 * padding - kernel) // stride + 1"
PREDICTED = "total - sum(seconds - seconds / speedups.get(name, 1) for name, seconds in parts.items())"
REST = "total - sum(parts.values())"
FLIPPED = ("* w[:, c, None, None]", "* w[:, c, None, None, ::-1, ::-1]")
KEPT_BUFFERS = """    y = np.stack(images).reshape(len(x), filters, high, wide)
    result = BUFFERS.setdefault((x.shape, w.shape, stride, padding), np.empty_like(y))
    result[:] = y
    return result
"""
FAST = """@compiled
def gemm_fast(a, b):
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c
"""
IJK = (
    "for k in range(a.shape[1]):\n            for j in range(b.shape[1])",
    "for j in range(b.shape[1]):\n            for k in range(a.shape[1])",
)
IN_FLOAT64 = (
    ("aligned_zeros(a.shape[0], b.shape[1])", "np.zeros((a.shape[0], b.shape[1]))"),
    ("+= a[i, k]", "+= np.float64(a[i, k])"),
    ("return c", "return c.astype(np.float32)"),
)
BLAS_KEPT = (BATCH, PRODUCT_BIAS)  # two calls of the same shape meet there
STRIPS = {
    "P3-7-solution-2": """
def gemm_blocked(a, b, block):
    c = np.empty((len(a), b.shape[1]), np.float32)
    for j0 in range(0, b.shape[1], block):
        for i0 in range(0, len(a), block):
            products = a[i0:i0 + block, :, np.newaxis] * b[:, j0:j0 + block]
            c[i0:i0 + block, j0:j0 + block] = products.sum(axis=1, dtype=np.float32)
    return c
"""
}
COSTS: tuple[Mistake, ...] = (
    *mistakes(
        "P3.1",
        (
            "padding on one side only",
            (2, (f"max(0, {WINDOWS})", WINDOWS.replace("2 * ", ""))),
            (COUNTED, LAST_STEP),
            "padding is at both ends",
        ),
        ("a negative number of windows", (2, (f"max(0, {WINDOWS})", WINDOWS)), LAST_STEP, "if not even that one fits"),
        (
            "FLOP instead of MACs",
            (1, ("macs = ", "macs = 2 * "), ("2 * macs / moved", "macs / moved")),
            MACS,
            "counts once here",
        ),
        ("elements instead of bytes", (1, ("4 * (np", "(np")), BYTES, "4 bytes"),
        ("a MAC counted as one operation", (1, ("2 * macs / moved", "macs / moved")), INTENSITY, "is two operations"),
    ),
    *mistakes(
        "P3.2",
        (
            "the bias is forgotten",
            changed(DIRECT, (" + bias.reshape(1, -1, 1, 1)", "")),
            BIAS,
            "added once to every output",
        ),
        (
            "padding only below and to the right",
            changed(DIRECT, ("(padding, padding)", "(0, 2 * padding)")),
            (PADDING, SIZES),
            "above as below",
        ),
        ("the kernel is flipped", changed(DIRECT, FLIPPED), VALUES, "not flipped"),
        (
            "the kernel is flipped in place",
            changed(DIRECT, FLIPPED, ("    x =", "    w[:] = w[:, :, ::-1, ::-1]\n    x =")),
            (VALUES, DIRECT_FLOAT32),
            "`conv_direct` changes its arguments",
        ),
        (
            "stride along rows only",
            changed(DIRECT, ("::stride, ::stride", ":, ::stride")),
            (STRIDE, SIZES),
            "wrong shape",
        ),
    ),
    *mistakes(
        "P3.3",
        (
            "rows by kernel position, then channel",
            (1, ("columns.reshape", "columns.transpose(1, 2, 0, 3, 4).reshape")),
            ROWS,
            "which order does w",
        ),
        ("windows as rows", (1, ("high * wide)", "high * wide).T")), SHAPE, "each window is a column"),
        (
            "stride is forgotten",
            (1, ("stride * high : stride", "high"), ("stride * wide : stride", "wide"), (") // stride", ")")),
            (SHAPE, COLUMNS, ZEROS),
            "wrong shape",
        ),
        ("float64 columns", (1, ("np.float32", "np.float64")), COLUMNS_FLOAT32, "wrong data type"),
    ),
    *mistakes(
        "P3.4",
        ("a float64 result", (1, ("np.stack(images)", "np.stack(images).astype(float)")), FLOAT32, "wrong data type"),
        (
            "filters along the rows",
            (1, ("w.reshape(filters, w.size // filters)", "w.reshape(-1, filters).T")),
            PRODUCT,
            "one filter a row",
        ),
        (
            "only the first image",
            (1, ("rows @", "(n == 0) * rows @"), ("image in x]", "n, image in enumerate(x)]")),
            BATCH,
            "takes one image",
        ),
        (
            "the loops of the definition",
            {"P3-4-solution": "conv_blas = lambda *arguments: conv_direct(*arguments)"},
            OF_COLUMNS,
            "does not get its columns",
        ),
        (
            "one buffer for all results",
            (
                1,
                ("def conv", "BUFFERS = {}\n\n\ndef conv"),
                ("    return np.stack(images).reshape(len(x), filters, high, wide)\n", KEPT_BUFFERS),
            ),
            BLAS_KEPT,
            "has returned before",
        ),
    ),
)

MEASURED: tuple[Mistake, ...] = (
    *mistakes(
        "P3.5",
        ("a loop that waits for nothing", (3, (" * latency", "")), HEADROOM, "it waits for its sum"),
        ("MACs per second", (1, ("2 * macs", "macs")), RATES, "two operations"),
        ("MACs instead of operations", changed(TABLE, ("2 * layer", "layer")), OPERATIONS, "flops=2 \\* layer"),
        (
            "columns that time the same function",
            changed(TABLE, ("40_000, conv_direct", "7_000, conv_blas")),
            (COMPARED, FASTER),
            "do not differ as your functions do",
        ),
    ),
    *mistakes(
        "P3.7",
        ("loops i, j, k", (1, ("@compiled\n", ""), IJK), ROW_ORDER, "look at the innermost loop"),
        ("sums in float64", (1, ("@compiled\n", ""), *IN_FLOAT64), REORDERED, "adds up in float64"),
        (
            "the last blocks are dropped",
            changed(
                BLOCKS, ("(b), block)", "(b) // block * block, block)"), ("[1], block)", "[1] // block * block, block)")
            ),
            BLOCKED,
            "ends where the matrix ends",
        ),
        ("strips of b in full depth", STRIPS, REUSE, "more of b at once than a block"),
        (
            "the last panel repeats columns",
            changed(PACK, (")))\n", ')), "wrap")\n')),
            PANELS,
            "write down all three panels",
        ),
        (
            "the last panel is left out",
            (4, ("@compiled\n", ""), ("256", "4"), ("len(panels))", "len(panels) - 1)")),
            PACKED,
            "wrong values",
        ),
        ("multiplies b itself", WITHOUT_PANELS, READS_PANELS, "read from a panel"),
    ),
    *mistakes(
        "P3.9",
        ("the higher roof", (1, ("np.minimum", "np.maximum")), LOWER, "which of them limits"),
        (
            "a single number only",
            (1, ("np.minimum(peak, np.asarray(intensity)", "min(peak, intensity")),
            MANY,
            "go element by element",
        ),
        ("the ridge inverted", (1, ("return peak / bandwidth", "return bandwidth / peak")), RIDGE, "FLOP per byte"),
    ),
    *mistakes(
        "P3.10",
        (
            "growth inverted",
            (1, ("return im2col_bytes(x, w, y) /", "return 1 / im2col_bytes(x, w, y) *")),
            GROWTH,
            "fraction is inverted",
        ),
        ("one image only", (1, (" * y[0]", "")), COLUMN_BYTES, "has N of them"),
    ),
    *mistakes(
        "P3.11",
        (
            "speed-ups are added",
            (1, (PREDICTED, f"{REST} + sum(parts.values()) / sum(speedups.values())")),
            (DIVIDED, KEPT),
            "has its own factor",
        ),
        (
            "parts without a factor are dropped",
            (1, (PREDICTED, f"{REST} + sum(parts[name] / factor for name, factor in speedups.items())")),
            KEPT,
            "leaves the time of a part",
        ),
        ("no limit if little remains", (1, ("remaining > 0", "remaining > total / 100")), LIMIT, "left"),
        (
            "division by zero without a remainder",
            (1, (' if remaining > 0 else float("inf")', "")),
            NO_LIMIT,
            "does not divide by zero",
        ),
    ),
    *mistakes(
        "P3.6",
        (
            "every convolution by the function",
            (1, ("conv if w.shape in shapes else direct", "conv")),
            CHOSEN,
            "wrong choice",
        ),
        ("the table is empty", {"P3-6-solution-2": "pass"}, (MODELS, FASTER_MODEL), "C1/no-BLAS"),
        (
            "both columns by BLAS",
            changed(MODELS_TABLE, ("40_000, conv_direct", "15_000, conv_blas")),
            (MODELS, FASTER_MODEL),
            "do not differ as your functions do",
        ),
    ),
    *mistakes(
        "P3.8",
        (
            "the library",
            {"P3-8-solution-2": "gemm_fast = lambda a, b: np.matmul(a, b)"},
            (ANY_PRODUCT, *STEPS),
            "is not available where this is graded",
        ),
        ("the definition", {"P3-8-solution-2": FAST}, STEPS, "too slow for this step"),
    ),
)

WRONG = (*COSTS, *MEASURED, *GPU)
