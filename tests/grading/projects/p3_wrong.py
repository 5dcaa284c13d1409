"""Typical wrong solutions of P3, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes
from tests.grading.projects.p3_snippets import (
    blas,
    blocked,
    columns,
    costs,
    direct,
    fast,
    filling,
    kept,
    memory,
    mixing,
    model_filling,
    packing,
    rate,
    reordered,
    roofs,
    size,
    worth,
)
from tests.grading.projects.p3_wrong_gpu import GPU

WINDOWS, LAST_STEP = "windows_are_counted", "the_last_step_must_fit"
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
    "three_tenths_of_the_course",
    "six_tenths_of_the_course",
    "eight_tenths_of_the_course",
    "as_fast_as_the_course",
)
LIMIT, NO_LIMIT = "the_rest_limits_the_speedup", "without_a_rest_there_is_no_limit"

WITHOUT_PANELS = {**packing(), "P3-7-solution-4": "gemm_packed = lambda a, b: sum(map(np.outer, a.T, b))\n"}
VIEW = (
    "np.pad(x, ((0, 0), (padding, padding), (padding, padding)))\n"
    "if kernel == (1, 1) and stride == 1 and padding == 0:\n    return original.reshape(len(original), -1)"
)
IN_FLOAT64 = {
    "P3-7-solution": """
def gemm_reordered(a, b):
    c = np.zeros((len(a), b.shape[1]), np.float64)
    for i in range(len(a)):
        for k in range(len(b)):
            c[i] += np.float64(a[i, k]) * b[k]
    return c.astype(np.float32)
"""
}
LOOPS_IJK = """
for i in range(a.shape[0]):
    for j in range(b.shape[1]):
        for k in range(a.shape[1]):
            c[i, j] += a[i, k] * b[k, j]
"""
FOUR_ROWS_ONLY = """
for i in range(a.shape[0] // 4 * 4):
    for k in range(a.shape[1]):
        for j in range(b.shape[1]):
            c[i, j] += a[i, k] * b[k, j]
"""
BLAS_KEPT = (BATCH, PRODUCT_BIAS)  # two calls of the same shape meet there
FLIPPED_IN_PLACE = "w[:] = w[:, :, ::-1, ::-1]"
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
            size("(size + padding - kernel) // stride + 1"),
            (WINDOWS, LAST_STEP),
            "padding is at both ends",
        ),
        (
            "a kernel that only the padding makes room for",
            size("0 if size < kernel else max(0, (size + 2 * padding - kernel) // stride + 1)"),
            WINDOWS,
            "padding is at both ends",
        ),
        (
            "a negative number of windows",
            size("(size + 2 * padding - kernel) // stride + 1"),
            LAST_STEP,
            "if not even that one fits",
        ),
        (
            "FLOP instead of MACs",
            costs(macs="2 * math.prod(y) * math.prod(w[1:])", intensity="macs / moved"),
            MACS,
            "counts once here",
        ),
        ("elements instead of bytes", costs(moved="math.prod(x) + math.prod(w) + math.prod(y)"), BYTES, "4 bytes"),
        ("a MAC counted as one operation", costs(intensity="macs / moved"), INTENSITY, "is two operations"),
    ),
    *mistakes(
        "P3.2",
        ("the bias is forgotten", direct(bias="0"), BIAS, "added once to every output"),
        ("padding only below and to the right", direct(widths="(0, 2 * padding)"), (PADDING, SIZES), "above as below"),
        ("the kernel is flipped", direct(w="w[:, :, ::-1, ::-1]"), VALUES, "not flipped"),
        ("stride along rows only", direct(steps=":, ::stride"), (STRIDE, SIZES), "wrong shape"),
        (
            "the kernel is flipped in place",
            direct(before=FLIPPED_IN_PLACE, w="w[:, :, ::-1, ::-1]"),
            (VALUES, DIRECT_FLOAT32),
            "`conv_direct` changes its arguments",
        ),
    ),
    *mistakes(
        "P3.3",
        ("rows by kernel position, then channel", columns(order="3, 4, 0, 1, 2"), ROWS, "which order does w"),
        (
            "windows as rows",
            columns(order="1, 2, 0, 3, 4", result="ordered.reshape(ordered.shape[0] * ordered.shape[1], -1)"),
            SHAPE,
            "each window is a column",
        ),
        ("stride is forgotten", columns(steps=":, :"), (SHAPE, COLUMNS, ZEROS), "wrong shape"),
        (
            "float64 columns",
            columns(result="ordered.reshape(len(x) * kernel[0] * kernel[1], -1).astype(float)"),
            COLUMNS_FLOAT32,
            "wrong data type",
        ),
        ("the image itself for 1 x 1", columns(padded=VIEW), COLUMNS_FLOAT32, "returns its argument or a part of it"),
    ),
    *mistakes(
        "P3.4",
        ("a float64 result", blas(dtype="np.float64"), FLOAT32, "wrong data type"),
        ("filters along the rows", blas(flat="w.reshape(-1, len(w)).T"), PRODUCT, "one filter a row"),
        ("only the first image", blas(images="x[:1]"), BATCH, "takes one image"),
        (
            "the loops of the definition",
            {"P3-4-solution": "conv_blas = lambda *arguments: conv_direct(*arguments)"},
            OF_COLUMNS,
            "does not get its columns",
        ),
        ("one buffer for all results", kept(blas(), "conv_blas"), BLAS_KEPT, "has returned before"),
    ),
)

MEASURED: tuple[Mistake, ...] = (
    *mistakes(
        "P3.5",
        (
            "a loop that waits for nothing",
            {"P3-5-solution-3": "def headroom(lanes, units, latency):\n    return lanes * units"},
            HEADROOM,
            "it waits for its sum",
        ),
        ("MACs per second", rate("macs / seconds / 1e9"), RATES, "two operations"),
        (
            "a missing row",
            filling(rows="list(layers.items())[:3]"),
            (COMPARED, OPERATIONS, FASTER),
            "C4/no-BLAS, C4/BLAS",
        ),
        ("MACs instead of operations", filling(options=", flops=layer.macs"), OPERATIONS, "flops=2 \\* layer"),
        (
            "columns that time the same function",
            filling(alternatives='{"no-BLAS": fast, "BLAS": fast}'),
            (COMPARED, FASTER),
            "do not differ as your functions do",
        ),
        (
            "a result that was computed before",
            filling(alternatives='{"no-BLAS": slow, "BLAS": lambda known=fast(): known}'),
            (COMPARED, FASTER),
            "as the table claims",
        ),
    ),
    *mistakes(
        "P3.7",
        ("loops i, j, k", reordered("ijk"), ROW_ORDER, "look at the innermost loop"),
        ("sums in float64", IN_FLOAT64, REORDERED, "adds up in float64"),
        (
            "the last blocks are dropped",
            blocked(stop="m // block * block, depth // block * block, n // block * block"),
            BLOCKED,
            "ends where the matrix ends",
        ),
        ("strips of b in full depth", STRIPS, REUSE, "more of b at once than a block"),
        (
            "the last panel repeats columns",
            packing(fill="panels[p] = np.resize(part.T, (width, len(b))).T"),
            PANELS,
            "write down all three panels",
        ),
        ("the last panel is left out", packing(used="panels[:-1]"), PACKED, "wrong values"),
        ("multiplies b itself", WITHOUT_PANELS, READS_PANELS, "read from a panel"),
    ),
    *mistakes(
        "P3.9",
        ("the higher roof", roofs("np.maximum(peak, intensity * bandwidth)"), LOWER, "which of them limits"),
        ("a single number only", roofs("min(peak, intensity * bandwidth)"), MANY, "go element by element"),
        ("the ridge inverted", roofs(meeting="bandwidth / peak"), RIDGE, "FLOP per byte"),
        (
            "one and two axes only",
            roofs("np.minimum(peak, intensity * bandwidth) if np.ndim(intensity) < 3 else 2 * intensity[:1]"),
            MANY,
            "whatever the shape",
        ),
        (
            "an array that is not empty",
            roofs("np.minimum(peak, intensity * bandwidth) + 0 * np.max(intensity)"),
            MANY,
            "dtype=float64",
        ),
    ),
    *mistakes(
        "P3.10",
        ("growth inverted", memory(ratio="4 * math.prod(x) / im2col_bytes(x, w, y)"), GROWTH, "fraction is inverted"),
        ("one image only", memory(moved="4 * math.prod(w[1:]) * y[2] * y[3]"), COLUMN_BYTES, "has N of them"),
    ),
    *mistakes(
        "P3.11",
        (
            "speed-ups are added",
            worth(predicted="rest + sum(parts.values()) / sum(speedups.values())"),
            (DIVIDED, KEPT),
            "has its own factor",
        ),
        (
            "parts without a factor are dropped",
            worth(predicted="rest + sum(parts[name] / factor for name, factor in speedups.items())"),
            KEPT,
            "leaves the time of a part",
        ),
        (
            "factors below one are ignored",
            worth(predicted="rest + sum(parts[name] / max(1, speedups.get(name, 1)) for name in parts)"),
            DIVIDED,
            "below 1",
        ),
        (
            "no limit if little remains",
            worth(best="total / rest if rest > total / 100 else float('inf')"),
            LIMIT,
            "left",
        ),
        ("division by zero without a remainder", worth(best="total / rest"), NO_LIMIT, "so there is no limit"),
    ),
    *mistakes(
        "P3.6",
        ("every convolution by the function", mixing("conv"), CHOSEN, "wrong choice"),
        (
            "the function only with a stride of one",
            mixing("conv if w.shape in shapes and stride == 1 else direct"),
            CHOSEN,
            "stride 2",
        ),
        ("float64 results", mixing(result=".astype(np.float64)"), CHOSEN, "wrong data type"),
        ("the table is empty", {"P3-6-solution-2": "pass"}, (MODELS, FASTER_MODEL), "C1/no-BLAS"),
        (
            "both columns by BLAS",
            model_filling(no_blas="15_000, conv_blas"),
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
        ("the definition", fast(LOOPS_IJK), STEPS, "too slow for this step"),
        ("rows that are left over", fast(FOUR_ROWS_ONLY), (ANY_PRODUCT, *STEPS), "wrong values"),
        ("sums that are kept", fast("c += np.float32(1)"), (ANY_PRODUCT, *STEPS), "wrong values"),
    ),
)

WRONG = (*COSTS, *MEASURED, *GPU)
