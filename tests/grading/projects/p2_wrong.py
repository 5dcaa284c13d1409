"""Typical wrong solutions of P2, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, edited, mistakes

COMPUTES, ONCE, PREDICTED = "one_nest_computes_the_layer", "nothing_is_stored_in_between", "traffic_is_predicted"
RELU, POOLING, CONVOLUTION = "relu_is_imported", "max_pool_is_imported", "conv_is_imported"
SHAPE, KEPT, REFUSED = "convolution_has_its_shape", "batch_and_element_are_kept", "misfits_are_refused"
POOLED = "pooling_has_its_type"
FOLDED, FOLD_GUARD, FUSED = "batchnorm_is_folded", "folding_leaves_others_alone", "relu_is_fused"
FUSE_GUARD, CHANGED = "fusing_leaves_others_alone", "rewrites_say_what_they_did"
SHRUNK = ("half_of_it_goes", "most_of_it_goes", "all_of_it_goes")
ASYMMETRIC, SYMMETRIC, UNSIGNED = "asymmetric_is_right", "symmetric_is_right", "symmetric_unsigned_is_right"
POWER = "power_of_two_is_right"
SUMS, PADDED, WIDE = "sums_are_right", "padding_stands_for_zero", "sums_do_not_overflow"
ROUNDED, SATURATED = "rescale_rounds", "rescale_saturates"
RATIO, ROW, BUDGET = "sqnr_is_measured", "rows_are_measured", "noise_adds_up"
COMPUTED, HELD = "program_computes_both_nodes", "nothing_is_held_too_long"
PROGRAM = ("program_is_accepted", COMPUTED, HELD)
RANGES, VIEWS = "ranges_are_found", "views_keep_their_owner_alive"
APART, ALIGNED = "buffers_do_not_overlap", "offsets_are_aligned"
EFFICIENT = ("memory_is_used_again", "gaps_are_filled", "hardly_a_byte_is_wasted")
MEMORY, COMPARED, COSTS, FASTER = (
    "memory_is_counted",
    "rows_are_comparisons",
    "costs_are_counted",
    "optimised_is_faster",
)
HALO, BIAS, PARTIAL = "input_slices_have_a_halo", "weights_come_with_their_bias", "partial_sums_are_wide"
FITTING = ("slices_fit_their_blobs", "slices_are_not_tiny", "slices_move_few_bytes")
WEIGHT, INPUT, CYCLES = "weight_stationary_bytes", "input_stationary_bytes", "cycles_are_predicted"
ORDERS = ("output_stationary_bytes", WEIGHT, INPUT)
FASTEST = ("not_slower_than_greedy", "half_of_the_way", "close_to_the_search")

ANY_READER = """
def fuse(graph, conv, node, operator, *inputs):
    graph.replace(node, operator, *inputs)
    conv.outputs[0].users or graph.is_output(conv.outputs[0]) or graph.remove(conv)
"""
SEARCHED = """
from mlhood.compiler.backends.nmp.codegen.search import search as found
def fastest(layer):
    return asdict(found((convolution(**layer),), default_machine()).slicing)
"""
END = "    ### END SOLUTION"
DEALLOC = "        Dealloc(conv),\n"
ALL_SIDES = "race({name: partial(side, x) for name, side in sides.items()})"


def sizes(*changes: tuple[str, str]) -> dict[str, str]:
    """Wrong bytes, and cuts by right ones."""
    (right,) = edited("P2-12-solution", ("def slice_bytes", "def right_bytes")).values()
    (cuts,) = edited("P2-12-solution-2", ("slice_bytes(", "right_bytes(")).values()
    return edited("P2-12-solution", *changes) | {"P2-12-solution-2": f"{right}\n{cuts}"}


WRONG: tuple[Mistake, ...] = (
    *mistakes(
        "P2.1",
        ("no bias", (1, ("= b[j]", "= 0.0")), COMPUTES, "where does the bias enter"),
        ("sums accumulated in y", (1, ("total", "y[i, j]")), ONCE, "keep the sum in a variable"),
        ("bias not read", (2, ("2 * depth + 1", "2 * depth")), PREDICTED, "wrong for `fused`"),
        ("z is not read back", (2, ("+ 3", "+ 2")), PREDICTED, "wrong for `separate`"),
        (
            "a row's product by @",
            (1, ("= b[j]", "= b[j] + x[i] @ w[j]"), ("total + x[i, k] * w[j, k]", "total")),
            (COMPUTES, ONCE),
            "for @",
        ),
    ),
    *mistakes(
        "P2.2",
        ("relu left out", (1, ("source.add(Relu(), source.input(0))", "source.input(0)")), RELU, "adds other nodes"),
        (
            "strides of a pooling default to its kernel, as in torch",
            (2, ('"strides", (1, 1)', '"strides", kernel')),
            POOLING,
            "ONNX's defaults: strides 1",
        ),
        (
            "pads in torch's order",
            (3, ("Conv(strides, pads", "Conv(strides, tuple(pads[i] for i in (0, 2, 1, 3))")),
            CONVOLUTION,
            "wrong shape|wrong values",
        ),
        (
            "the package's own rule",
            (
                1,
                ("source.add(Relu(), source.input(0))", 'IMPORT_RULES["Relu"](source)'),
                ("\n\ndef", "\nfrom mlhood.compiler.operators import IMPORT_RULES\n\ndef"),
            ),
            RELU,
            "is not available where this is graded",
        ),
    ),
    *mistakes(
        "P2.3",
        ("a span of k d", (1, ("(kernel - 1) * dilation + 1", "kernel * dilation")), SHAPE, "it has gaps"),
        (
            "a depthwise convolution of any depth",
            edited("P2-3-solution-2", ("channels != depth * group", "channels not in (group, depth * group)")),
            REFUSED,
            "2 groups of 3",
        ),
        (
            "always float32, and a batch of 1 for a name",
            (2, ("(x.element, (batch,", '("float32", (1 if isinstance(batch, str) else batch,')),
            KEPT,
            "may be a name",
        ),
        (
            "pooling into w's channels",
            (3, ("(batch, channels, rows", "(batch, kernel[0], rows")),
            POOLED,
            "channels and element type stay",
        ),
    ),
    *mistakes(
        "P2.4",
        ("no epsilon", (2, (" + np.float32(norm.operator.epsilon)", "")), FOLDED, "each channel"),
        (
            "other readers are ignored",
            (1, ("None if others or graph.is_output(value) else", ""), (END, ANY_READER)),
            (FOLD_GUARD, FUSE_GUARD),
            "must stay",
        ),
        ("nothing is returned", (3, ("bool(pairs)", "None")), CHANGED, "does not return whether"),
        (
            "a fusion that asks for constants",
            (1, ("if others or", "if others or conv.inputs[1].name not in graph.constants or")),
            FUSED,
            "w is an input of the graph",
        ),
    ),
    *mistakes(
        "P2.5",
        (
            "the two rewrites alone",
            (3, ("        tidy(graph)\n        relus_first(graph)\n", "")),
            SHRUNK,
            "leaves too many nodes",
        ),
        (
            "no operators change places",
            {"P2-5-solution-2": "def relus_first(graph):\n    pass"},
            "all_of_it_goes",
            "change places",
        ),
        (
            "nodes of one operator are the same",
            (1, ("(node.operator, node.inputs)", "node.operator")),
            SHRUNK,
            "results of the graph after|stops with an error|not a valid graph",
        ),
    ),
    *mistakes(
        "P2.6",
        (
            "the range is not widened",
            (1, ("min(low, 0.0), max(high, 0.0)", "low, high")),
            (ASYMMETRIC, UNSIGNED),
            "0 is not between low and high",
        ),
        (
            "symmetric keeps the range's width",
            (1, ("max(low / -128, high / 127)", "(high - low) / 255")),
            (SYMMETRIC, UNSIGNED, POWER),
            "which scale does `low` alone need",
        ),
        ("the nearest power of two", (1, ("np.ceil", "np.rint")), POWER, "which powers of two"),
        (
            "unsigned forgotten",
            (1, (' or (schema == "symmetric_unsigned" and low == 0)', "")),
            UNSIGNED,
            "is anything of the widened range below 0",
        ),
        ("the offset truncated", (1, ("round(", "int(")), ASYMMETRIC, "the offset that"),
    ),
    *mistakes(
        "P2.7",
        (
            "padded with the integer 0",
            (
                1,
                ("    x = x.astype(np.int32) - x_offset\n", ""),
                ("    rows, columns =", "    x = x.astype(np.int32) - x_offset\n    rows, columns ="),
            ),
            PADDED,
            "which integer represents the real number 0",
        ),
        ("the offset is added", (1, ("- x_offset", "+ x_offset")), (SUMS, PADDED, WIDE), "belongs to x before"),
        ("wraps around", (2, (".clip(-128, 127)", "")), SATURATED, "clamp after"),
        (
            "real numbers of 64 bits",
            (
                2,
                (
                    "(acc.astype(np.int64) * multiplier + half) >> shift",
                    "np.floor(acc * (multiplier / 2**shift) + 0.5)",
                ),
            ),
            ROUNDED,
            "which numbers are exact",
        ),
        (
            "sums in float32",
            (
                1,
                ("np.int32", "np.float32"),
                ("+ bias[:, None, None]", "+ np.float32(bias[:, None, None])"),
                ("return acc", "return acc.astype(np.int32)"),
            ),
            WIDE,
            "how large do the sums become",
        ),
    ),
    *mistakes(
        "P2.8",
        ("natural logarithm", (1, ("np.log10", "np.log")), (RATIO, ROW), "base 10"),
        (
            "variances",
            (1, ("np.sum(reference**2)", "np.var(reference)"), ("np.sum(np.square(", "np.var((")),
            (RATIO, ROW),
            "a constant error is noise",
        ),
        ("agreement with the labels", (2, ("exact.argmax(1)", "data.test_labels")), ROW, "labels or with others"),
        ("amplitudes add up", (3, ("-ratio / 10", "-ratio / 20")), BUDGET, "energies do"),
    ),
    *mistakes(
        "P2.9",
        ("nothing is freed", (1, (DEALLOC, "")), PROGRAM, "never deallocated.*conv"),
        (
            "freed before it is pooled",
            (1, (DEALLOC, ""), ("        TensorView", f"{DEALLOC}        TensorView")),
            PROGRAM,
            "used after its memory was deallocated.*maxpool",
        ),
        ("the ReLU is forgotten", (1, (', 1, ("Relu",)', ", 1")), COMPUTED, "wrong values in y.*relu"),
        (
            "a buffer for every result",
            (
                1,
                ("    return", '    flat = Buffer("flat", y.type)\n    return'),
                ("TensorView(pooled, y)", "Alloc(pooled)"),
                (DEALLOC, f"{DEALLOC}TensorView(flat, pooled), Copy(y, flat), Dealloc(pooled),"),
            ),
            HELD,
            "more memory is live",
        ),
    ),
    *mistakes(
        "P2.10",
        (
            "views are buffers",
            (1, ("buffer = owner.get(buffer, buffer)", "pass")),
            VIEWS,
            "a view has no memory",
        ),
        (
            "one after another",
            {"P2-10-solution-2": "def allocate(lifetimes, alignment):\n    return bump(lifetimes, alignment)"},
            EFFICIENT,
            "which of the placed buffers",
        ),
        (
            "the smallest first",
            (2, ("-buffer.bytes", "buffer.bytes")),
            EFFICIENT[2],
            "the order in which buffers are placed",
        ),
        (
            "constants have a range",
            (1, ("isinstance(buffer, Weight)", 'getattr(buffer, "kind", "") in ("input", "output")')),
            RANGES,
            "weights are declared",
        ),
        ("not aligned", (2, (" // alignment) * alignment", ")")), ALIGNED, "where does a buffer end"),
        (
            "the lifetimes sorted in place",
            (2, ("    placed, ", "    lifetimes.sort(key=lambda b: -b.bytes)\n    placed, ")),
            (APART, ALIGNED, *EFFICIENT),
            "changes its arguments",
        ),
    ),
    *mistakes(
        "P2.11",
        (
            "without the arena",
            (1, (' + plan(lower(graph, {"batch": 1}).lifetimes()).bytes', "")),
            (MEMORY, COSTS),
            "the activations need memory",
        ),
        (
            "one comparison for both rows",
            (
                2,
                ("[:count]", "[:16]"),
                (
                    f"latency.fill(row, {ALL_SIDES})",
                    f"both = both if count > 1 else {ALL_SIDES}; latency.fill(row, both)",
                ),
            ),
            COMPARED,
            "several rows hold the same comparison",
        ),
        (
            "results that are not compared",
            (2, ("race(", "compare("), ("items()}", "items()}, threads=1, check=False")),
            FASTER,
            "never compared",
        ),
        ("digits in percent", (3, ("int((", "int(100 * ("), (".sum()", ".mean()")), COSTS, "the digits of"),
    ),
    *mistakes(
        "P2.12",
        ("a bias in elements", sizes(("filters * (4 +", "filters * (element +")), BIAS, "always int32"),
        ("larger than the output", (2, ('(size - layer["kernel"])', "size")), FITTING, "larger than its layer"),
        ("sums are elements", sizes(("wide = 4 if", "wide = 1 if")), PARTIAL, "sums are incomplete"),
        (
            "without a halo",
            sizes(
                ("(rows - 1) * stride + kernel", "rows * stride"),
                ("(columns - 1) * stride + kernel", "columns * stride"),
            ),
            HALO,
            "the windows of a slice span",
        ),
    ),
    *mistakes(
        "P2.13",
        (
            "the bias with every slice of channels",
            (1, ("channels * weights + bias", "channels * (weights + bias)")),
            ORDERS,
            "The bias comes once",
        ),
        (
            "accumulators go one way",
            (1, ("2 * (channels - 1)", "(channels - 1)")),
            (WEIGHT, INPUT),
            "how often do the accumulators",
        ),
        (
            "a last group of multipliers is left out",
            (2, ("-(-pixels // lanes)", "pixels // lanes"), ("-(-filters // lanes)", "filters // lanes")),
            CYCLES,
            "how many multipliers are idle",
        ),
    ),
    *mistakes(
        "P2.14",
        (
            "larger than a blob",
            {
                "P2-14-solution": "def fastest(layer):\n"
                "    return dict(rows=99, columns=99, filters=99, channels=999, order='output')"
            },
            FASTEST,
            "of `fastest` is invalid",
        ),
        ("the compiler's own search", {"P2-14-solution": SEARCHED}, FASTEST, "is not available where this is graded"),
    ),
)
