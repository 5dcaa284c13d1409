"""Typical wrong solutions of P4, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.gallery import Mistake, mistakes
from tests.grading.projects.p4_snippets import (
    choosing,
    counting,
    filling,
    fusing,
    halving,
    loading,
    multiplying,
    naming,
    needing,
    scheduling,
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
NEVER = "what_never_fits_is_an_error"
ANALYSED, SMALL, LARGE = "analysed_is_taken_over", "too_small_is_legal", "too_large_breaks_a_cache"
OWN, COMPARED, OPERATIONS = "my_own_is_another", "rows_are_comparisons", "operations_are_told"
FASTER = "orders_agree_and_analysed_is_faster"
WEIGHTS, INPUTS, OUTPUTS = "weights_stay", "inputs_stay", "outputs_stay"
FOLDS, BUSY = "last_folds_take_as_long", "utilisation_is_the_busy_part"
NAMED, QUOTED, ATTRIBUTES = "operations_are_counted", "quoted_operations_count", "attributes_are_no_operations"
COMPUTATIONS, OPCODES, PARAMETERS = "fused_computations_are_found", "opcodes_are_listed", "parameters_are_left_out"

INTERLEAVED_TILES = "for i0 in range(tile_m) for j0 in range(tile_n)"
COLUMN_BY_COLUMN = """for name, call in alternatives.items():
        table[row, name] = timed({name: call})[name]"""
SWAPPED_ROWS = "{order: made['too small' if row == 'analysed' else 'analysed'][order] for order in table.columns}"

ORDERS: tuple[Mistake, ...] = (
    *mistakes(
        "P4.1",
        ("the space row by row", visiting("for i in range(m)", "for j in range(n)"), TILES, "for i in the tile"),
        (
            "the last tiles exceed the space",
            visiting(inside="for i in range(i0, i0 + tile_m) for j in range(j0, j0 + tile_n)"),
            EDGE,
            "min\\(i0 \\+ tile_m, m\\)",
        ),
        (
            "full tiles only",
            visiting(
                "for i0 in range(0, m // tile_m * tile_m, tile_m) for j0 in range(0, n // tile_n * tile_n, tile_n)"
            ),
            EDGE,
            "are missing",
        ),
        (
            "tiles down the columns",
            visiting("for j0 in range(0, n, tile_n) for i0 in range(0, m, tile_m)"),
            TILES,
            "at position",
        ),
        (
            "points of all tiles interleaved",
            visiting(INTERLEAVED_TILES, "for i in range(i0, m, tile_m) for j in range(j0, n, tile_n)"),
            TILES,
            "wrong order",
        ),
        ("k is not tiled", scheduling("nest.tile(i=4, j=4)"), (SPLIT, BLOCKS), "k is a loop as well"),
        (
            "split but not reordered",
            scheduling("nest.split('i', 4).split('j', 4).split('k', 4)"),
            BLOCKS,
            "extend beyond one block",
        ),
        (
            "tiles of size 2",
            scheduling("nest.split('k', 2).split('j', 2).split('i', 2)"),
            (SPLIT, BLOCKS),
            "wrong loops",
        ),
        (
            "the nest is printed, not returned",
            scheduling("print(nest.tile(i=4, j=4, k=4))"),
            (SPLIT, BLOCKS),
            "return the",
        ),
    ),
    *mistakes(
        "P4.2",
        ("the orders are swapped", stepping(order="WS"), (IS, WS), "is the order"),
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
            "tiles that do not exist",
        ),
        (
            "full groups only",
            stepping("for g3 in range(0, staying // k3 * k3, k3) for g2 in range(0, passing // k2 * k2, k2)"),
            ONCE,
            "steps are missing",
        ),
        (
            "streamed groups outermost",
            stepping("for g2 in range(0, passing, k2) for g3 in range(0, staying, k3)"),
            (IS, WS),
            "group of k3 stationary tiles, group of k2",
        ),
        (
            "inputs stay in both orders",
            stepping(result="triples if order == 'IS' else steps('IS', inputs, weights, slices, k2, k3)"),
            WS,
            "this is the order IS",
        ),
        (
            "slices innermost",
            stepping(
                result="sorted(triples, key=lambda step: step[0] * 0) if order == 'WS' else sorted(triples, key=lambda "
                "step: (step[1] // k3, step[2] // k2, step[1], step[2], step[0]))"
            ),
            IS,
            "For each slice",
        ),
        (
            "each slice overwrites y",
            multiplying(add="y[g, p] = np.einsum('fct,ctp->fp', weights[g, d], columns[d][:, :, p])"),
            (PRODUCT, SLICES),
            "which starts at zero",
        ),
        (
            "the last tiles are dropped",
            multiplying("columns.shape[2] // window, len(weights) // filters"),
            PRODUCT,
            "ceil\\(size / tile\\)",
        ),
        ("the last slice is dropped", multiplying(slices="len(columns) // k1"), SLICES, "ceil\\(C / k1\\)"),
    ),
    *mistakes(
        "P4.3",
        (
            "L1 keeps its stationary tile",
            loading(l1="(staying, staying * passing)"),
            INTO_L1,
            "a stationary tile again",
        ),
        ("L2 keeps its streamed tiles", loading(l2="(staying * g2, passing)"), INTO_L2, "loaded when it"),
        ("L3 keeps everything", loading(l3="(staying, passing)"), INTO_L3, "all streamed tiles are loaded"),
        ("full groups only", loading(groups="passing // k2, staying // k3"), LAST_GROUPS, "ceil\\(tiles"),
        ("streamed tiles first", loading(l3="(passing * g3, staying)"), INTO_L3, "stationary tiles come first"),
    ),
)

ANALYSIS: tuple[Mistake, ...] = (
    *mistakes(
        "P4.4",
        ("L1 without the output tile", needing(l1="stay + go"), L1, "one output tile"),
        ("one output tile in L2", needing(l2="stay + k2 * go + out"), L2, "k2 times"),
        ("output tiles of one row in L3", needing(l3="k3 * stay + k2 * go + k2 * out"), L3, "k2 \\* k3 output tiles"),
        ("WS like IS", needing(swapped="False"), SWAPPED, "the weight tile stays"),
        ("the output has channels", needing(out="k1 * sizes['output']"), (L1, L2, L3), "no channels"),
        ("one fewer each time", halving(smaller="tiles[level] -= 1"), (HALVED, PAPER), "// 2 each time"),
        (
            "the capacities in the wrong order",
            halving(fits="needs(order, *tiles, sizes)[level] <= rooms[-1 - level]"),
            (HALVED, PAPER, NEVER),
            "rejects a case that fits",
        ),
        ("None if nothing fits", halving(nothing="return None"), NEVER, "halving 1 gives 0"),
        (
            "halved once",
            halving(fits="(tiles[level] < most or needs(order, *tiles, sizes)[level] <= rooms[level])"),
            (HALVED, PAPER, NEVER),
            "wrong tiles",
        ),
    ),
    *mistakes(
        "P4.5",
        ("too small is the analysed row", choosing(small="(k1, k2, k3)"), (SMALL, FASTER), "k1 = 1 or 2"),
        (
            "too small in channels, too large in tiles",
            choosing(small="(1, passing, staying)"),
            SMALL,
            "does not fit into a cache",
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
            "the same tiles in both orders",
            choosing(analysed="{order: analysed['WS'] for order in analysed}"),
            (ANALYSED, FASTER),
            "analysed\\[order\\]",
        ),
        ("one column after the other", filling(fill=COLUMN_BY_COLUMN), COMPARED, "side by side"),
        ("a missing row", filling(rows="table.rows[:3]"), (COMPARED, OPERATIONS, FASTER), "my own/WS, my own/IS"),
        ("MACs instead of operations", filling(options=", flops=layer.macs"), OPERATIONS, "flops=2 \\* layer"),
        ("results not compared", filling(options=", flops=2 * layer.macs, check=False"), FASTER, "never compared"),
        ("two rows swapped", filling(alternatives=SWAPPED_ROWS, small="90_000"), FASTER, "not faster"),
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
        ("full folds only", counting(folds="(down // rows) * (across // columns)"), FOLDS, "not full"),
        ("M and N swapped", counting(is_="(2 * rows + columns + m - 2) * folds(k, n)"), INPUTS, "M to the columns"),
        (
            "in percent",
            using("100 * m * n * k / (cycles(dataflow, rows, columns, m, n, k) * rows * columns)"),
            BUSY,
            "a fraction of 1",
        ),
        ("MACs per cycle", using("m * n * k / cycles(dataflow, rows, columns, m, n, k)"), BUSY, "cycles \\* rows"),
    ),
    *mistakes(
        "P4.9",
        ("names with their prefix", naming(r"(?<!#)(stablehlo\.\w+)"), (NAMED, QUOTED, ATTRIBUTES), "the name alone"),
        ("unquoted operations only", naming(r"= stablehlo\.(\w+)"), QUOTED, "the quotes are not part"),
        ("attributes counted as well", naming(r"stablehlo\.(\w+)"), ATTRIBUTES, "is one operation"),
        ("each operation once", naming(result="dict.fromkeys(names, 1)"), (NAMED, QUOTED), "of `"),
        ("the main computation, too", fusing(begin=r"(?:ENTRY )?%(\S+) .*\{$"), COMPUTATIONS, "not fused"),
        (
            "numbered computations only",
            fusing(begin=r"%(fused_computation\.\d[0-4]) .*\{$"),
            COMPUTATIONS,
            "are missing",
        ),
        ("names instead of opcodes", fusing(opcode=r"%([a-z_-]+)\S* = "), OPCODES, "is a broadcast"),
        ("opcodes without hyphens", fusing(opcode=r" = \S+ (\w+)\("), OPCODES, "dynamic-slice"),
        ("parameters listed as well", fusing(kept="match"), PARAMETERS, "parameters are listed"),
    ),
)

WRONG = (*ORDERS, *ANALYSIS, *MACHINES)
