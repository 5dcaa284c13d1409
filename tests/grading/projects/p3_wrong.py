"""Typical wrong solutions of P3, each with what it must cost and what must be said."""

from __future__ import annotations

from tests.grading.projects.gallery import Wrong
from tests.grading.projects.p3_snippets import (
    blas,
    blocked,
    columns,
    costs,
    direct,
    filling,
    memory,
    packing,
    rate,
    reordered,
    roofs,
    size,
    worth,
)

WINDOWS, LAST_STEP = "windows_are_counted", "the_last_step_must_fit"
MACS, BYTES, INTENSITY = "macs_are_counted", "bytes_are_counted", "intensity_is_flop_per_byte"
VALUES, STRIDE, PADDING, BIAS, SIZES, INPUTS = (
    "values_are_right",
    "stride_is_taken",
    "padding_is_zero_all_around",
    "bias_is_added",
    "any_sizes_will_do",
    "inputs_are_left_alone",
)
SHAPE, COLUMNS_FLOAT32, ROWS, COLUMNS, ZEROS = (
    "columns_have_their_shape",
    "columns_stay_float32",
    "rows_are_in_order",
    "columns_are_in_order",
    "padding_holds_zeros",
)
PRODUCT, OF_COLUMNS, BATCH, PRODUCT_BIAS, FLOAT32 = (
    "product_is_right",
    "product_is_of_columns",
    "batches_are_kept_apart",
    "product_gets_its_bias",
    "product_stays_float32",
)
RATES, COMPARED, OPERATIONS, FASTER = (
    "rates_are_told",
    "rows_are_comparisons",
    "operations_are_told",
    "blas_is_faster_and_agrees",
)
REORDERED, WALKS, BLOCKED, AGAIN, PANELS, PACKED, READS_PANELS = (
    "reordered_is_right",
    "reordered_walks_along_rows",
    "blocked_is_right",
    "blocked_uses_blocks_again",
    "panels_are_packed",
    "packed_is_right",
    "packed_reads_panels",
)
LOWER, MANY, RIDGE = "the_lower_roof_counts", "roofs_of_many_at_once", "roofs_meet_at_the_ridge"
COLUMN_BYTES, GROWTH = "columns_are_counted", "growth_is_against_the_input"
DIVIDED, KEPT, LIMIT, NO_LIMIT = (
    "parts_are_divided_by_their_factors",
    "parts_not_named_keep_their_time",
    "the_rest_limits_the_speedup",
    "without_a_rest_there_is_no_limit",
)

ONE_TIMING = """for name, call in alternatives.items():
        start = time.perf_counter()
        call()
        table[row, name] = Measurement((time.perf_counter() - start,), 2 * layer.macs)"""
ONE_BY_ONE = """for name, call in alternatives.items():
        table[row, name] = timed({name: call})[name]"""
FORGED = """table.fill(row, timed(alternatives))
    one = table[row, "no-BLAS"]
    table[row, "no-BLAS"] = Measurement(tuple(1000 * s for s in one.seconds), one.flops, one.run, one.agreed)"""
ONCE_FOR_ALL = """one = timed(alternatives) if row == "C1" else one
    table.fill(row, one)"""
PARTS_CHANGED = worth()
PARTS_CHANGED["P3-9-solution"] += """
def predict(total, parts, speedups):
    rest = total - sum(parts.values())
    for name in parts:
        parts[name] /= speedups.get(name, 1)
    return rest + sum(parts.values())
"""
SQUARE_WINDOWS = columns("np.pad(x, ((0, 0), (padding, padding), (padding, padding))); kernel = kernel[:1] * 2")
B_ITSELF = {**packing(), "P3-6-solution-4": "gemm_packed = lambda a, b: a @ b\n"}
FLIPPED_IN_PLACE = "w[:] = w[:, :, ::-1, ::-1]"

COSTS: tuple[Wrong, ...] = (
    Wrong(
        "one window too few", "P3.1", size("(size + 2 * padding - kernel) // stride"), (WINDOWS, LAST_STEP), "both ends"
    ),
    Wrong(
        "padding on one side only",
        "P3.1",
        size("(size + padding - kernel) // stride + 1"),
        (WINDOWS,),
        "2 \\* padding",
    ),
    Wrong("rounded up", "P3.1", size("-(-(size + 2 * padding - kernel) // stride) + 1"), (LAST_STEP,), "rounded down"),
    Wrong(
        "FLOP for MACs",
        "P3.1",
        costs(macs="2 * math.prod(y) * math.prod(w[1:])", intensity="macs / moved"),
        (MACS,),
        "counts once here",
    ),
    Wrong("elements for bytes", "P3.1", costs(moved="math.prod(x) + math.prod(w) + math.prod(y)"), (BYTES,), "4 bytes"),
    Wrong("a MAC is one operation", "P3.1", costs(intensity="macs / moved"), (INTENSITY,), "is two operations"),
    Wrong("the bias is forgotten", "P3.2", direct(bias="0"), (BIAS,), "added once to every output"),
    Wrong(
        "padding only below and to the right", "P3.2", direct(around="(0, 2 * padding)"), (PADDING,), "left and right"
    ),
    Wrong("the kernel is flipped", "P3.2", direct(w="w[:, :, ::-1, ::-1]"), (VALUES,), "not flipped"),
    Wrong("stride along rows only", "P3.2", direct(steps=":, ::stride"), (STRIDE,), "wrong shape"),
    Wrong("square kernels only", "P3.2", direct(window="2 * w.shape[2:3]"), (SIZES,), "each have their own size"),
    Wrong(
        "the kernel is turned round in place",
        "P3.2",
        direct(before=FLIPPED_IN_PLACE, w="w[:, :, ::-1, ::-1]"),
        (INPUTS,),
        "changes w",
    ),
    Wrong(
        "only the first channel",
        "P3.2",
        direct(spec="nhwij,fij->nfhw", steps="::stride, ::stride][:, 0", w="w[:, 0]"),
        (VALUES, STRIDE, PADDING, SIZES),
        "sum over c, i, j",
    ),
    Wrong("rows by place, then channel", "P3.3", columns(order="3, 4, 0, 1, 2"), (ROWS,), "\\(c \\* KH \\+ i\\)"),
    Wrong(
        "windows lie in rows",
        "P3.3",
        columns(order="1, 2, 0, 3, 4", result="laid.reshape(laid.shape[0] * laid.shape[1], -1)"),
        (SHAPE,),
        "stands upright",
    ),
    Wrong("columns down the output", "P3.3", columns(order="0, 3, 4, 2, 1"), (COLUMNS,), "oh \\* OW \\+ ow"),
    Wrong("padding is forgotten", "P3.3", columns(padded="x"), (ZEROS,), "beyond every edge"),
    Wrong("stride is forgotten", "P3.3", columns(steps=":, :"), (SHAPE, COLUMNS), "wrong shape"),
    Wrong(
        "the edge goes on in the padding",
        "P3.3",
        columns(padded="np.pad(x, ((0, 0), (padding, padding), (padding, padding)), mode='edge')"),
        (ZEROS,),
        "other numbers",
    ),
    Wrong("kernel columns before rows", "P3.3", columns(order="0, 4, 3, 1, 2"), (ROWS,), "numbers of another place"),
    Wrong(
        "columns of float64",
        "P3.3",
        columns(result="laid.reshape(len(x) * kernel[0] * kernel[1], -1).astype(float)"),
        (COLUMNS_FLOAT32,),
        "float64 unless you say so",
    ),
    Wrong("windows are square", "P3.3", SQUARE_WINDOWS, (SHAPE, ROWS), "wrong shape"),
    Wrong("float64 comes out", "P3.4", blas(kind="np.float64"), (FLOAT32,), "np.zeros"),
    Wrong("filters along the rows", "P3.4", blas(flat="w.reshape(-1, len(w)).T"), (PRODUCT,), "w.reshape\\(F"),
    Wrong("only the first image", "P3.4", blas(images="x[:1]"), (BATCH,), "takes one image"),
    Wrong(
        "the definition again",
        "P3.4",
        {"P3-4-solution": "conv_blas = lambda *arguments: conv_direct(*arguments)"},
        (OF_COLUMNS,),
        "does not take its columns",
    ),
    Wrong(
        "the bias again for each image",
        "P3.4",
        blas(after="y += bias[:, None, None]", bias="np.float32(0)"),
        (PRODUCT_BIAS,),
        "added once to every output",
    ),
    Wrong("the bias is left out", "P3.4", blas(bias="np.float32(0)"), (PRODUCT_BIAS,), "added once to every output"),
)

MEASURED: tuple[Wrong, ...] = (
    Wrong("MACs a second", "P3.5", rate("macs / seconds / 1e9"), (RATES,), "two operations"),
    Wrong("timed by hand", "P3.5", filling(fill=ONE_TIMING), (COMPARED,), "not by `compare`"),
    Wrong(
        "columns swapped",
        "P3.5",
        filling(alternatives='{"no-BLAS": fast, "BLAS": slow}'),
        (FASTER,),
        "BLAS is not faster",
    ),
    Wrong("a row is missing", "P3.5", filling(rows="list(layers.items())[:3]"), (COMPARED,), "C4/no-BLAS, C4/BLAS"),
    Wrong("one comparison for all rows", "P3.5", filling(fill=ONCE_FOR_ALL), (COMPARED,), "hold the same comparison"),
    Wrong("one column after the other", "P3.5", filling(fill=ONE_BY_ONE), (COMPARED,), "side by side"),
    Wrong("MACs for operations", "P3.5", filling(options=", flops=layer.macs"), (OPERATIONS,), "flops=2 \\* layer"),
    Wrong(
        "results not compared",
        "P3.5",
        filling(options=", flops=2 * layer.macs, check=False"),
        (FASTER,),
        "never compared",
    ),
    Wrong("a column times a thousand", "P3.5", filling(fill=FORGED), (FASTER,), "as the table has it.*is needed"),
    Wrong("still down the columns", "P3.6", reordered("ijk"), (WALKS,), "innermost loop goes over j"),
    Wrong(
        "each k overwrites the one before", "P3.6", reordered(step="c[i, j] = a[i, k] * b[k, j]"), (REORDERED,), "adds"
    ),
    Wrong(
        "the last blocks are dropped",
        "P3.6",
        blocked(stop="m // block * block, depth // block * block, n // block * block"),
        (BLOCKED,),
        "ends at the matrix's edge",
    ),
    Wrong(
        "blocks overwrite",
        "P3.6",
        blocked(update="c[i0:i1, j0:j1] = a[i0:i1, k0:k1] @ b[k0:k1, j0:j1]"),
        (BLOCKED,),
        "add to what c already holds",
    ),
    Wrong("blocks of one row", "P3.6", blocked(blocks="1, block, block"), (AGAIN,), "three loops over blocks outside"),
    Wrong(
        "the last panel repeats columns",
        "P3.6",
        packing(fill="panels[p] = np.resize(part.T, (width, len(b))).T"),
        (PANELS,),
        "panels\\[p, k, j\\]",
    ),
    Wrong("the last panel is left out", "P3.6", packing(used="panels[:-1]"), (PACKED,), "wrong values"),
    Wrong("b itself is multiplied", "P3.6", B_ITSELF, (READS_PANELS,), "and b no more"),
    Wrong(
        "the higher roof", "P3.7", roofs("np.maximum(peak, intensity * bandwidth)"), (LOWER,), "never more than peak"
    ),
    Wrong(
        "one number at a time", "P3.7", roofs("min(peak, intensity * bandwidth)"), (MANY,), "np.minimum takes arrays"
    ),
    Wrong("the ridge upside down", "P3.7", roofs(meeting="bandwidth / peak"), (RIDGE,), "FLOP per byte"),
    Wrong(
        "divided by the bandwidth", "P3.7", roofs("np.minimum(peak, intensity / bandwidth)"), (LOWER,), "from memory"
    ),
    Wrong(
        "growth upside down", "P3.8", memory(ratio="4 * math.prod(x) / im2col_bytes(x, w, y)"), (GROWTH,), "way round"
    ),
    Wrong(
        "one image only", "P3.8", memory(moved="4 * math.prod(w[1:]) * y[2] * y[3]"), (COLUMN_BYTES,), "has N of them"
    ),
    Wrong(
        "speed-ups are added",
        "P3.9",
        worth(predicted="rest + sum(parts.values()) / sum(speedups.values())"),
        (DIVIDED, KEPT),
        "seconds / factor",
    ),
    Wrong(
        "parts without a factor vanish",
        "P3.9",
        worth(predicted="rest + sum(parts[name] / factor for name, factor in speedups.items())"),
        (KEPT,),
        "as fast as before",
    ),
    Wrong(
        "factors in the order of the parts",
        "P3.9",
        worth(predicted="rest + sum(s / f for s, f in zip(parts.values(), [*speedups.values(), 1, 1, 1]))"),
        (DIVIDED,),
        "seconds / factor",
    ),
    Wrong("parts are changed", "P3.9", PARTS_CHANGED, (KEPT,), "changes `parts`"),
    Wrong("the rest is forgotten", "P3.9", worth(best="total / sum(parts.values())"), (LIMIT, NO_LIMIT), "left"),
    Wrong("no rest is an error", "P3.9", worth(best="total / rest"), (NO_LIMIT,), "float\\('inf'\\)"),
)

WRONG = (*COSTS, *MEASURED)
