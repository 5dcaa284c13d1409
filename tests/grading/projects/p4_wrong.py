"""Typical wrong solutions of P4, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes
from tests.grading.projects.p4_snippets import (
    NAMES,
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
NETWORKS, NETWORK_FASTER = "network_rows_are_comparisons", "network_is_faster_as_analysed"
POSSIBLE, LESS = "slicings_are_possible", "traffic_is_less_than_the_analysis"
HALF, SEARCHED = "half_of_the_gain_is_reached", "courses_search_is_reached"
ANALYSED, SMALL, LARGE = "analysed_is_taken_over", "too_small_is_one_of_each", "too_large_breaks_a_cache"
OWN, COMPARED, OPERATIONS = "my_own_is_another", "rows_are_comparisons", "operations_are_told"
FASTER = "orders_agree_and_analysed_is_faster"
WEIGHTS, INPUTS, OUTPUTS = "weights_stay", "inputs_stay", "outputs_stay"
FOLDS, BUSY = "last_folds_take_as_long", "utilisation_is_the_busy_part"
COMPUTATIONS, OPCODES, PARAMETERS = "fused_computations_are_found", "opcodes_are_listed", "parameters_are_left_out"
READ, WRITTEN = "bytes_read_are_counted", "bytes_written_are_counted"

ROW_BY_ROW = f"""names = {NAMES}
    table.fill(row, timed({{name: calls[name] for name in names.values()}}), names)"""
SWAPPED_ROWS = """swap = {"analysed": "too small", "too small": "analysed"}
    table.fill(row, measured, {order: f"{swap.get(row, row)}, {order}" for order in table.columns})"""

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
        (
            "full tiles only",
            visiting(
                "for i0 in range(0, m // tile_m * tile_m, tile_m) for j0 in range(0, n // tile_n * tile_n, tile_n)"
            ),
            EDGE,
            "are missing",
        ),
        ("k is not tiled", scheduling("nest.tile(i=4, j=4)"), (SPLIT, BLOCKS), "k is a loop as well"),
        (
            "split but not reordered",
            scheduling("nest.split('i', 4).split('j', 4).split('k', 4)"),
            BLOCKS,
            "extend beyond one block",
        ),
        (
            "the nest is printed, not returned",
            scheduling("print(nest.tile(i=4, j=4, k=4))"),
            (SPLIT, BLOCKS),
            "return the",
        ),
        (
            "points as lists",
            visiting("for i0 in range(0, m, tile_m) for j0 in range(0, n, tile_n)", point="[i, j]"),
            (TILES, EDGE),
            "a tuple of 2 integers",
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
        (
            "tiles of whole rows column by column",
            visiting(
                result="[{}] if tile_n < n else [(i, j) for i0 in range(0, m, tile_m) for j in range(n) "
                "for i in range(i0, min(m, i0 + tile_m))]"
            ),
            TILES,
            "wrong order",
        ),
    ),
    *mistakes(
        "P4.2",
        ("the orders are swapped", stepping(order="WS"), (IS, WS), "is the order of the other kind"),
        (
            "k2 and k3 are swapped",
            stepping(
                "for g3 in range(0, staying, k2) for g2 in range(0, passing, k3)",
                "for s in range(g3, min(g3 + k2, staying)) for p in range(g2, min(g2 + k3, passing))",
            ),
            (IS, WS),
            "k2 and k3 are swapped",
        ),
        (
            "the last group exceeds the tiles",
            stepping(tiles="for s in range(g3, g3 + k3) for p in range(g2, g2 + k2)"),
            ONCE,
            "items that do not exist",
        ),
        (
            "full groups only",
            stepping("for g3 in range(0, staying // k3 * k3, k3) for g2 in range(0, passing // k2 * k2, k2)"),
            ONCE,
            "items are missing in what `steps`",
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
        (
            "the last tiles are dropped",
            multiplying("columns.shape[2] // window, len(weights) // filters"),
            PRODUCT,
            "count the tiles",
        ),
        ("the last slice is dropped", multiplying(slices="len(columns) // k1"), SLICES, "last slice may have"),
        (
            "`steps` called and thrown away",
            multiplying(
                add="pass\n    y = np.einsum('fct,ctp->fp', weights, columns)",
            ),
            PRODUCT,
            "computes from the steps",
        ),
        ("the last step first", multiplying(taken="[::-1]"), SLICES, "one after another"),
        (
            "all channels at the first slice",
            multiplying(add="y[g, p] += (c == 0) * np.einsum('fct,ctp->fp', weights[g], columns[:, :, p])"),
            SLICES,
            "compute the steps that",
        ),
        (
            "groups larger than all tiles",
            stepping(slices="for c in range(slices // (k2 <= passing and k3 <= staying))"),
            (ONCE, IS, WS),
            "ZeroDivisionError",
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
        ("streamed tiles first", loading(l3="(passing * g3, staying)"), INTO_L3, "stationary tiles come first"),
        (
            "L1 does not load what it still has",
            loading(l1="(staying * (1 if min(k3, staying) == 1 else g2), staying * passing)"),
            STILL,
            "whatever was loaded last",
        ),
        (
            "L1 does not load a group's only streamed tile again",
            loading(l1="(staying * g2, passing * g3 if k2 == 1 else staying * passing)"),
            STILL,
            "whatever was loaded last",
        ),
        (
            "L2 does not load what it still has",
            loading(l2="(staying * g2, passing * (1 if g2 == 1 else g3))"),
            STILL,
            "whatever was loaded last",
        ),
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
        ("output tiles of one row in L3", needing(l3="k3 * stay + k2 * go + k2 * out"), L3, "sums of its own"),
        ("WS like IS", needing(swapped="False"), SWAPPED, "which kind of tile does k2 count"),
        ("one fewer each time", halving(smaller="tiles[level] -= 1"), (HALVED, EXACT, PAPER), "halving rounds down"),
        (
            "the capacities in the wrong order",
            halving(fits="needs(order, *tiles, sizes)[level] <= rooms[-1 - level]"),
            (HALVED, EXACT, PAPER, NEVER),
            "ValueError: nothing fits",
        ),
        ("None if nothing fits", halving(nothing="return None"), NEVER, "no tile at all"),
        (
            "halved once",
            halving(fits="(tiles[level] < most or needs(order, *tiles, sizes)[level] <= rooms[level])"),
            (HALVED, EXACT, PAPER, NEVER),
            "`largest` returns is wrong",
        ),
        (
            "an exact fit does not fit",
            halving(fits="needs(order, *tiles, sizes)[level] < rooms[level]"),
            EXACT,
            "when does it not fit",
        ),
        (
            "a byte has to be left",
            halving(fits="needs(order, *tiles, sizes)[level] <= rooms[level] - 1"),
            EXACT,
            "when does it not fit",
        ),
        ("a list for a tuple", halving(result="tiles"), (HALVED, EXACT, PAPER), "no tuple in what `largest`"),
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
            "too large swaps streamed and stationary tiles",
            choosing(large="(problem.channels, staying, passing)"),
            LARGE,
            "more tiles than there are",
        ),
        ("my own is the analysed row", choosing(own="(k1, k2, k3)"), OWN, "in another row"),
        (
            "my own has more channels than there are",
            choosing(own="(26, k2, k3 - 1 or 2)"),
            OWN,
            "more tiles than there",
        ),
        ("my own has a single stationary tile", choosing(own="(k1, k2, 1)"), OWN, "in another row"),
        (
            "the same tiles in both orders",
            choosing(analysed="{order: analysed['WS'] for order in analysed}"),
            (ANALYSED, COMPARED, FASTER),
            "this row is an argument",
        ),
        (
            "what is analysed is changed",
            choosing("{**analysed}", own="analysed.__setitem__(order, (1, 1, 1)) or (k1, k2, 1 + k3 // 2)"),
            (ANALYSED, SMALL, LARGE, OWN, COMPARED, FASTER),
            "`triples` changes its arguments",
        ),
        ("one row after the other", filling(fill=ROW_BY_ROW), COMPARED, "side by side"),
        ("a missing row", filling(rows="table.rows[:3]"), (COMPARED, OPERATIONS, FASTER), "my own/WS, my own/IS"),
        ("MACs instead of operations", filling(options=", flops=layer.macs"), OPERATIONS, "two operations"),
        ("results not compared", filling(options=", flops=2 * layer.macs, check=False"), FASTER, "never compared"),
        (
            "two rows swapped",
            filling(fill=SWAPPED_ROWS, small="90_000"),
            (COMPARED, FASTER),
            "do not differ as your functions do",
        ),
    ),
    *mistakes(
        "P4.6",
        ("packed at every call", preparing(known="False"), PACKED, "packs weights again"),
        (
            "one kernel for all layers of a shape",
            preparing(key="w.shape, x.shape, stride"),
            (CONVOLVED, PACKED),
            "two layers of the same shapes",
        ),
        ("stride 1 only", preparing(sliced="w.shape[2:] == (3, 3) and stride == 1"), SLICED, "runs other slices"),
        ("every layer in slices", preparing(sliced="True"), SLICED, "a direct convolution"),
        (
            "one order for both columns",
            preparing(slicing="possible(sliced_problem(g), 'WS', tiles)"),
            SLICED,
            "expected.*IS|runs other slices",
        ),
        ("the bias is lost", preparing(bias="0 * bias"), CONVOLVED, "wrong values in what the function"),
        (
            "float64",
            preparing(result="prepared[key][0](x).astype(float)"),
            (CONVOLVED, NETWORKS, NETWORK_FASTER),
            "wrong data type",
        ),
        ("a missing row", network_filling(rows="network_times.rows[1:]"), (NETWORKS, NETWORK_FASTER), "analysed/WS"),
        ("results not compared", network_filling(options=", check=False"), NETWORK_FASTER, "never compared"),
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
            "rows without weights need no loading",
            counting(ws="(rows + min(rows, k) + columns + m - 2) * folds(k, n)"),
            FOLDS,
            "not full",
        ),
        ("full folds only", counting(folds="(down // rows) * (across // columns)"), FOLDS, "not full"),
        ("M and N swapped", counting(is_="(2 * rows + columns + m - 2) * folds(k, n)"), INPUTS, "M to the columns"),
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
        (
            "numbered computations only",
            fusing(begin=r"%(fused_computation\.\d[0-8]) .*\{$"),
            COMPUTATIONS,
            "are missing",
        ),
        ("opcodes end at a digit", fusing(opcode=r" = (?:\(.*?\)|\S+) ([a-z-]+)\("), OPCODES, "atan2"),
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
