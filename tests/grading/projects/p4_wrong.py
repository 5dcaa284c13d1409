"""Typical wrong solutions of P4, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes
from tests.grading.projects.p4_snippets import (
    choosing,
    counting,
    filling,
    fusing,
    halving,
    loading,
    moving,
    multiplying,
    needing,
    network_filling,
    preparing,
    scheduling,
    searching,
    stepping,
    using,
    visiting,
)

TILES, EDGE, SPLIT = "visits_go_tile_by_tile", "tiles_at_the_edge_are_smaller", "every_loop_is_split"
BLOCKS = "blocks_are_taken_together"
ONCE, IS, WS = "every_step_is_there_once", "input_tiles_stay", "weight_tiles_stay"
PRODUCT, SLICES = "product_is_right", "slices_add_up"
INTO_L1, INTO_L2, INTO_L3, LAST_GROUPS = "tiles_into_l1", "tiles_into_l2", "tiles_into_l3", "last_groups_count"
L1, L2, L3 = "l1_holds_one_of_each", "l2_holds_passing_tiles", "l3_holds_staying_tiles"
SWAPPED, HALVED, PAPER = "orders_change_places", "tiles_are_halved_until_they_fit", "the_papers_example_comes_out"
NEVER, EXACT = "what_never_fits_is_an_error", "an_exact_fit_fits"
STILL = "what_is_still_there_is_loaded"
CONVOLVED, SLICED = "convolutions_are_right", "three_by_three_layers_are_sliced"
PACKED = "weights_are_packed_once"
NETWORKS, NETWORK_SAME = "network_rows_are_comparisons", "network_is_the_same_in_both_orders"
POSSIBLE, LESS = "slicings_are_possible", "traffic_is_less_than_the_analysis"
HALF, SEARCHED = "half_of_the_gain_is_reached", "courses_search_is_reached"
ANALYSED, SMALL, LARGE = "analysed_is_taken_over", "too_small_is_one_of_each", "too_large_breaks_a_cache"
OWN, COMPARED, OPERATIONS = "my_own_is_another", "rows_are_comparisons", "operations_are_told"
FASTER = "orders_agree_and_analysed_is_faster"
WEIGHTS, INPUTS, OUTPUTS = "weights_stay", "inputs_stay", "outputs_stay"
FOLDS, BUSY = "last_folds_take_as_long", "utilisation_is_the_busy_part"
COMPUTATIONS, OPCODES, PARAMETERS = "fused_computations_are_found", "opcodes_are_listed", "parameters_are_left_out"
READ, WRITTEN = "bytes_read_are_counted", "bytes_written_are_counted"


ORDERS: tuple[Mistake, ...] = (
    *mistakes(
        "P4.1",
        (
            "the space row by row",
            visiting("for i in range(m)", "for j in range(n)"),
            TILES,
            "the items are in the wrong order in what `visits`",
        ),
        (
            "the last tiles exceed the space",
            visiting(inside="for i in range(i0, i0 + tile_m) for j in range(j0, j0 + tile_n)"),
            EDGE,
            "where the space ends",
        ),
        ("k is not tiled", scheduling("nest.tile(i=4, j=4)"), (SPLIT, BLOCKS), "k is a loop as well"),
        (
            "split but not reordered",
            scheduling("nest.split('i', 4).split('j', 4).split('k', 4)"),
            BLOCKS,
            "extend beyond one block",
        ),
        (
            "the tiled nest of an earlier call",
            {
                "P4-1-solution-2": "first = []\n\ndef schedule(nest):\n"
                "    first.append(nest.tile(i=4, j=4, k=4))\n    return first[0]\n"
            },
            SPLIT,
            "`schedule` has the wrong loops|its last point",
        ),
    ),
    *mistakes(
        "P4.2",
        ("the orders are swapped", stepping(order="WS"), (IS, WS), "is the order of the other kind"),
        (
            "the last group exceeds the tiles",
            stepping(tiles="for s in range(g3, g3 + k3) for p in range(g2, g2 + k2)"),
            ONCE,
            "items that do not exist",
        ),
        (
            "inputs stay in both orders",
            stepping(result="triples if order == 'IS' else steps('IS', inputs, weights, slices, k2, k3)"),
            WS,
            "this is the order of the other kind",
        ),
        (
            "slices innermost",
            stepping(
                result="sorted(triples, key=lambda step: step[0] * 0) if order == 'WS' else sorted(triples, key=lambda "
                "step: (step[1] // k3, step[2] // k2, step[1], step[2], step[0]))"
            ),
            IS,
            "changes faster",
        ),
        (
            "each slice overwrites y",
            multiplying(add="y[g, p] = np.einsum('fct,ctp->fp', weights[g, d], columns[d][:, :, p])"),
            (PRODUCT, SLICES),
            "starts at zero",
        ),
    ),
    *mistakes(
        "P4.3",
        (
            "L1 keeps its stationary tile",
            loading(l1="(staying, staying * passing)"),
            INTO_L1,
            "brings another tile",
        ),
        ("L2 keeps its streamed tiles", loading(l2="(staying * g2, passing)"), INTO_L2, "meet before the next"),
        ("L3 keeps everything", loading(l3="(staying, passing)"), INTO_L3, "streamed tiles pass it"),
        ("full groups only", loading(groups="passing // k2, staying // k3"), (LAST_GROUPS, STILL), "with fewer tiles"),
        (
            "floats for integers",
            loading(groups="np.ceil(passing / k2), np.ceil(staying / k3)"),
            (INTO_L1, INTO_L2, INTO_L3, LAST_GROUPS, STILL),
            "no integer in what `loads`",
        ),
    ),
)

ANALYSIS: tuple[Mistake, ...] = (
    *mistakes(
        "P4.4",
        ("L1 without the output tile", needing(l1="stay + go"), L1, "each of the three kinds"),
        ("one output tile in L2", needing(l2="stay + k2 * go + out"), L2, "innermost loop"),
        (
            "the capacities in the wrong order",
            halving(fits="needs(order, *tiles, sizes)[level] <= rooms[-1 - level]"),
            (HALVED, EXACT, PAPER, NEVER),
            "ValueError: nothing fits",
        ),
        (
            "an exact fit does not fit",
            halving(fits="needs(order, *tiles, sizes)[level] < rooms[level]"),
            EXACT,
            "when does it not fit",
        ),
        ("floats for integers", needing(l1="1.0 * (stay + go + out)"), (L1, L2, L3, SWAPPED), "no integer in what"),
    ),
    *mistakes(
        "P4.5",
        (
            "too small is the analysed row",
            choosing(small="(k1, k2, k3)"),
            (SMALL, COMPARED, FASTER),
            "not one of each",
        ),
        ("too large is the analysed row", choosing(large="(k1, k2, k3)"), LARGE, "exceeds no cache"),
        (
            "my own has more channels than there are",
            choosing(own="(26, k2, k3 - 1 or 2)"),
            OWN,
            "more tiles than there",
        ),
        (
            "what is analysed is changed",
            choosing("{**analysed}", own="analysed.__setitem__(order, (1, 1, 1)) or (k1, k2, 1 + k3 // 2)"),
            (ANALYSED, SMALL, LARGE, OWN, COMPARED, FASTER),
            "`triples` changes its arguments",
        ),
        ("MACs instead of operations", filling(options=", flops=layer.macs"), OPERATIONS, "two operations"),
    ),
    *mistakes(
        "P4.6",
        ("packed at every call", preparing(known="False"), PACKED, "packs weights again"),
        ("every layer in slices", preparing(sliced="True"), SLICED, "a direct convolution"),
        ("the bias is lost", preparing(bias="0 * bias"), CONVOLVED, "wrong values in what the function"),
        (
            "float64",
            preparing(result="prepared[key][0](x).astype(float)"),
            (CONVOLVED, NETWORKS, NETWORK_SAME),
            "wrong data type",
        ),
        ("a missing row", network_filling(rows="network_times.rows[1:]"), (NETWORKS, NETWORK_SAME), "analysed/WS"),
    ),
    *mistakes(
        "P4.7",
        (
            "the analysis",
            {
                "P4-7-solution-2": "def choose(problem, caches):\n    best = analyse(problem, caches).slicing\n"
                "    return best.order, *best.tiles\n"
            },
            (LESS, HALF, SEARCHED),
            "no less traffic",
        ),
        ("a list", searching(result="list(best[1:])"), (POSSIBLE, LESS, HALF, SEARCHED), "no tuple in what `choose`"),
        (
            "more tiles than there are",
            searching(result="(*best[1:4], 10**6)"),
            (POSSIBLE, LESS, HALF, SEARCHED),
            "more tiles than there are",
        ),
        (
            "tiles first",
            searching(result="(*best[2:], best[1])"),
            (POSSIBLE, LESS, HALF, SEARCHED),
            "returns no order",
        ),
        (
            "one channel at a time",
            searching(result="(best[1], 1, 1, 1)"),
            (LESS, HALF, SEARCHED),
            "no less traffic",
        ),
    ),
)

MACHINES: tuple[Mistake, ...] = (
    *mistakes(
        "P4.8",
        ("weights loaded in no time", counting(ws="(rows + columns + m - 2) * folds(k, n)"), WEIGHTS, "load"),
        ("one cycle too few", counting(is_="(2 * rows + columns + n - 2) * folds(k, m) - 1"), INPUTS, "too few"),
        (
            "outputs are loaded",
            counting(os="(2 * rows + columns + k - 2) * folds(m, n)"),
            OUTPUTS,
            "nothing is loaded|each fold takes rows \\+ columns",
        ),
        (
            "in percent",
            using("100 * m * n * k / (cycles(dataflow, rows, columns, m, n, k) * rows * columns)"),
            BUSY,
            "a fraction of 1",
        ),
        (
            "floats for integers",
            counting(folds="-(-down // rows) * -(-across // columns) * 1.0"),
            (WEIGHTS, INPUTS, OUTPUTS, FOLDS),
            "no integer in what `cycles`",
        ),
    ),
    *mistakes(
        "P4.9",
        ("the main computation, too", fusing(begin=r"(?:ENTRY )?%(\S+) .*\{$"), COMPUTATIONS, "not fused"),
        ("names instead of opcodes", fusing(opcode=r"%([a-z_-]+)\S* = "), OPCODES, "is a broadcast"),
        ("parameters listed as well", fusing(kept="match"), PARAMETERS, "`fused` lists parameters"),
        ("types without spaces only", fusing(opcode=r" = \S+ ([\w-]+)\("), OPCODES, "wrong operations of"),
        (
            "only the last parameter",
            moving(read="if code == 'parameter':\n            read[name] = size"),
            READ,
            "each of",
        ),
        ("what is computed is read, too", moving(read="read[name] += size"), READ, "reads each of its parameters once"),
        (
            "what reads nothing is left out",
            moving(result="{'read': {name: size for name, size in read.items() if size}, 'written': written}"),
            READ,
            "missing in `read` of `moved`",
        ),
        ("every line is written", moving(written="written[name] += size"), WRITTEN, "nothing of what it computes"),
        (
            "read and written exchanged",
            moving(result="{'read': written, 'written': read}"),
            (READ, WRITTEN),
            "is wrong",
        ),
    ),
)

WRONG = (*ORDERS, *ANALYSIS, *MACHINES)
