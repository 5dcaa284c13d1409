"""Typical wrong solutions of P4, each with what it must cost and what must be said."""

from __future__ import annotations

from tests.grading.projects.gallery import Wrong
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

TILES, EDGE, SPLIT, BLOCKS = (
    "visits_go_tile_by_tile",
    "tiles_at_the_edge_are_smaller",
    "every_loop_is_split",
    "blocks_are_taken_together",
)
ONCE, IS, WS, PRODUCT, SLICES = (
    "every_step_is_there_once",
    "input_tiles_stay",
    "weight_tiles_stay",
    "product_is_right",
    "slices_add_up",
)
INTO_L1, INTO_L2, INTO_L3, LAST_GROUPS = "tiles_into_l1", "tiles_into_l2", "tiles_into_l3", "last_groups_count"
L1, L2, L3, EXCHANGED, HALVED, PAPER, NEVER = (
    "l1_holds_one_of_each",
    "l2_holds_passing_tiles",
    "l3_holds_staying_tiles",
    "orders_change_places",
    "tiles_are_halved_until_they_fit",
    "the_papers_example_comes_out",
    "what_never_fits_is_an_error",
)
ANALYSED, SMALL, LARGE, OWN, COMPARED, OPERATIONS, FASTER = (
    "analysed_is_taken_over",
    "too_small_is_legal",
    "too_large_breaks_a_cache",
    "my_own_is_another",
    "rows_are_comparisons",
    "operations_are_told",
    "orders_agree_and_analysed_is_faster",
)
WEIGHTS, INPUTS, OUTPUTS, FOLDS, BUSY = (
    "weights_stay",
    "inputs_stay",
    "outputs_stay",
    "last_folds_take_as_long",
    "utilisation_is_the_busy_part",
)
NAMED, QUOTED, ATTRIBUTES, FOUND, OPCODES, PARAMETERS = (
    "operations_are_counted",
    "quoted_operations_count",
    "attributes_are_no_operations",
    "fused_computations_are_found",
    "opcodes_are_listed",
    "parameters_are_left_out",
)

ROUND_ROBIN = "for i0 in range(tile_m) for j0 in range(tile_n)"
ONE_BY_ONE = """for name, call in alternatives.items():
        table[row, name] = timed({name: call})[name]"""
TURNED_ROUND = "{order: made['too small' if row == 'analysed' else 'analysed'][order] for order in table.columns}"

ORDERS: tuple[Wrong, ...] = (
    Wrong(
        "the space row by row",
        "P4.1",
        visiting("for i in range(m)", "for j in range(n)"),
        (TILES,),
        "for i in the tile",
    ),
    Wrong(
        "the last tiles reach beyond",
        "P4.1",
        visiting(inside="for i in range(i0, i0 + tile_m) for j in range(j0, j0 + tile_n)"),
        (EDGE,),
        "min\\(i0 \\+ tile_m, m\\)",
    ),
    Wrong(
        "whole tiles only",
        "P4.1",
        visiting("for i0 in range(0, m // tile_m * tile_m, tile_m) for j0 in range(0, n // tile_n * tile_n, tile_n)"),
        (EDGE,),
        "are missing",
    ),
    Wrong(
        "tiles down the columns",
        "P4.1",
        visiting("for j0 in range(0, n, tile_n) for i0 in range(0, m, tile_m)"),
        (TILES,),
        "at place",
    ),
    Wrong(
        "points of all tiles in turn",
        "P4.1",
        visiting(ROUND_ROBIN, "for i in range(i0, m, tile_m) for j in range(j0, n, tile_n)"),
        (TILES,),
        "another order",
    ),
    Wrong("k is not tiled", "P4.1", scheduling("nest.tile(i=4, j=4)"), (SPLIT, BLOCKS), "k is a loop as well"),
    Wrong(
        "split but not reordered",
        "P4.1",
        scheduling("nest.split('i', 4).split('j', 4).split('k', 4)"),
        (BLOCKS,),
        "reach beyond one block",
    ),
    Wrong(
        "tiles of another size",
        "P4.1",
        scheduling("nest.split('k', 2).split('j', 2).split('i', 2)"),
        (SPLIT, BLOCKS),
        "other loops",
    ),
    Wrong("the nest is printed", "P4.1", scheduling("print(nest.tile(i=4, j=4, k=4))"), (SPLIT, BLOCKS), "return the"),
    Wrong("the orders are exchanged", "P4.2", stepping(order="WS"), (IS, WS), "is the order"),
    Wrong(
        "k2 and k3 are exchanged",
        "P4.2",
        stepping(
            "for g3 in range(0, staying, k2) for g2 in range(0, passing, k3)",
            "for s in range(g3, min(g3 + k2, staying)) for p in range(g2, min(g2 + k3, passing))",
        ),
        (IS, WS),
        "changed places",
    ),
    Wrong(
        "the last group reaches beyond",
        "P4.2",
        stepping(tiles="for s in range(g3, g3 + k3) for p in range(g2, g2 + k2)"),
        (ONCE,),
        "tiles that are not there",
    ),
    Wrong(
        "only whole groups",
        "P4.2",
        stepping("for g3 in range(0, staying // k3 * k3, k3) for g2 in range(0, passing // k2 * k2, k2)"),
        (ONCE,),
        "steps are missing",
    ),
    Wrong(
        "passing groups outside",
        "P4.2",
        stepping("for g2 in range(0, passing, k2) for g3 in range(0, staying, k3)"),
        (IS, WS),
        "group of k3 staying tiles, group of k2",
    ),
    Wrong(
        "weights stay as inputs do",
        "P4.2",
        stepping(result="found if order == 'IS' else steps('IS', inputs, weights, slices, k2, k3)"),
        (WS,),
        "this is the order IS",
    ),
    Wrong(
        "slices innermost",
        "P4.2",
        stepping(
            result="sorted(found, key=lambda step: step[0] * 0) if order == 'WS' else sorted(found, key=lambda "
            "step: (step[1] // k3, step[2] // k2, step[1], step[2], step[0]))"
        ),
        (IS,),
        "For each slice",
    ),
    Wrong(
        "every slice overwrites",
        "P4.2",
        multiplying(add="y[g, p] = np.einsum('fct,ctp->fp', weights[g, d], columns[d][:, :, p])"),
        (SLICES,),
        "which starts at zero",
    ),
    Wrong(
        "the last tiles are dropped",
        "P4.2",
        multiplying("columns.shape[2] // window, len(weights) // filters"),
        (PRODUCT,),
        "ceil\\(size / tile\\)",
    ),
    Wrong("the last slice is dropped", "P4.2", multiplying(slices="len(columns) // k1"), (SLICES,), "ceil\\(C / k1\\)"),
    Wrong("L1 keeps its staying tile", "P4.3", loading(l1="(staying, staying * passing)"), (INTO_L1,), "comes anew"),
    Wrong("L2 keeps passing tiles", "P4.3", loading(l2="(staying * g2, passing)"), (INTO_L2,), "fetched when it"),
    Wrong("L3 keeps all", "P4.3", loading(l3="(staying, passing)"), (INTO_L3,), "all passing tiles come by"),
    Wrong("whole groups only", "P4.3", loading(groups="passing // k2, staying // k3"), (LAST_GROUPS,), "ceil\\(tiles"),
    Wrong("passing tiles first", "P4.3", loading(l3="(passing * g3, staying)"), (INTO_L3,), "staying tiles come first"),
)

ANALYSIS: tuple[Wrong, ...] = (
    Wrong("L1 without the output tile", "P4.4", needing(l1="stay + go"), (L1,), "one output tile"),
    Wrong("one output tile in L2", "P4.4", needing(l2="stay + k2 * go + out"), (L2,), "k2 times"),
    Wrong(
        "output tiles of one row in L3",
        "P4.4",
        needing(l3="k3 * stay + k2 * go + k2 * out"),
        (L3,),
        "k2 \\* k3 output tiles",
    ),
    Wrong("WS like IS", "P4.4", needing(exchanged="False"), (EXCHANGED,), "the weight tile stays"),
    Wrong("the output has channels", "P4.4", needing(out="k1 * sizes['output']"), (L1, L2, L3), "no channels"),
    Wrong("one less each time", "P4.4", halving(smaller="found[level] -= 1"), (HALVED, PAPER), "// 2 each time"),
    Wrong(
        "the rooms in the wrong order",
        "P4.4",
        halving(fits="needs(order, *found, sizes)[level] <= rooms[-1 - level]"),
        (HALVED, PAPER, NEVER),
        "refuses what fits",
    ),
    Wrong("nothing fits, so nothing", "P4.4", halving(nothing="return None"), (NEVER,), "halving 1 gives 0"),
    Wrong(
        "halved once",
        "P4.4",
        halving(fits="(found[level] < most or needs(order, *found, sizes)[level] <= rooms[level])"),
        (HALVED, PAPER, NEVER),
        "other tiles",
    ),
    Wrong("too small for no cache", "P4.5", choosing(small="(k1, k2, k3)"), (SMALL,), "k1 = 1 or 2"),
    Wrong(
        "too small in channels, too large in tiles",
        "P4.5",
        choosing(small="(1, passing, staying)"),
        (SMALL,),
        "breaks a cache",
    ),
    Wrong("too large is what was analysed", "P4.5", choosing(large="(k1, k2, k3)"), (LARGE,), "breaks no cache"),
    Wrong(
        "too large counts passing tiles for staying ones",
        "P4.5",
        choosing(large="(problem.channels, staying, passing)"),
        (LARGE,),
        "tiles that are not there",
    ),
    Wrong("my own is the analysis'", "P4.5", choosing(own="(k1, k2, k3)"), (OWN,), "another row"),
    Wrong(
        "one order for both",
        "P4.5",
        choosing(analysed="{order: analysed['WS'] for order in analysed}"),
        (ANALYSED,),
        "analysed\\[order\\]",
    ),
    Wrong("one column after the other", "P4.5", filling(fill=ONE_BY_ONE), (COMPARED,), "side by side"),
    Wrong("a row is missing", "P4.5", filling(rows="table.rows[:3]"), (COMPARED,), "my own/WS, my own/IS"),
    Wrong("MACs for operations", "P4.5", filling(options=", flops=layer.macs"), (OPERATIONS,), "flops=2 \\* layer"),
    Wrong(
        "results not compared",
        "P4.5",
        filling(options=", flops=2 * layer.macs, check=False"),
        (FASTER,),
        "never compared",
    ),
    Wrong("rows changed places", "P4.5", filling(alternatives=TURNED_ROUND), (FASTER,), "not faster"),
)

MACHINES: tuple[Wrong, ...] = (
    Wrong(
        "weights are there at once", "P4.6", counting(ws="(rows + columns + m - 2) * folds(k, n)"), (WEIGHTS,), "load"
    ),
    Wrong(
        "one cycle less", "P4.6", counting(is_="(2 * rows + columns + n - 2) * folds(k, m) - 1"), (INPUTS,), "too few"
    ),
    Wrong(
        "outputs are loaded",
        "P4.6",
        counting(os="(2 * rows + columns + k - 2) * folds(m, n)"),
        (OUTPUTS,),
        "nothing is loaded|each of the folds takes rows \\+ columns",
    ),
    Wrong("whole folds only", "P4.6", counting(folds="(down // rows) * (across // columns)"), (FOLDS,), "not full"),
    Wrong(
        "M and N changed places",
        "P4.6",
        counting(is_="(2 * rows + columns + m - 2) * folds(k, n)"),
        (INPUTS,),
        "M along",
    ),
    Wrong(
        "in percent",
        "P4.6",
        using("100 * m * n * k / (cycles(dataflow, rows, columns, m, n, k) * rows * columns)"),
        (BUSY,),
        "a fraction of 1",
    ),
    Wrong(
        "MACs in a cycle",
        "P4.6",
        using("m * n * k / cycles(dataflow, rows, columns, m, n, k)"),
        (BUSY,),
        "cycles \\* rows",
    ),
    Wrong(
        "with the prefix",
        "P4.7",
        naming(r"(?<!#)(stablehlo\.\w+)"),
        (NAMED, QUOTED, ATTRIBUTES),
        "the name alone",
    ),
    Wrong("without quotes only", "P4.7", naming(r"= stablehlo\.(\w+)"), (QUOTED,), "the quotes do not belong"),
    Wrong("attributes as well", "P4.7", naming(r"stablehlo\.(\w+)"), (ATTRIBUTES,), "is one operation"),
    Wrong("each operation once", "P4.7", naming(result="dict.fromkeys(found, 1)"), (NAMED, QUOTED), "of `"),
    Wrong("the main computation, too", "P4.7", fusing(begin=r"(?:ENTRY )?%(\S+) .*\{$"), (FOUND,), "no fused"),
    Wrong("only numbered ones", "P4.7", fusing(begin=r"%(fused_computation\.\d[0-4]) .*\{$"), (FOUND,), "are missing"),
    Wrong("names for opcodes", "P4.7", fusing(opcode=r"%([a-z_-]+)\S* = "), (OPCODES,), "is a broadcast"),
    Wrong("no hyphens", "P4.7", fusing(opcode=r" = \S+ (\w+)\("), (OPCODES,), "dynamic-slice"),
    Wrong("parameters as well", "P4.7", fusing(kept="one"), (PARAMETERS,), "parameters are listed"),
)

WRONG = (*ORDERS, *ANALYSIS, *MACHINES)
