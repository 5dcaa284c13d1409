"""Typical wrong solutions of P4, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, changed, mistakes
from tests.grading.projects.p4_quick import CHOICE, NETWORK_TABLE, TABLE

TILES, EDGE, SPLIT = "visits_go_tile_by_tile", "tiles_at_the_edge_are_smaller", "every_loop_is_split"
BLOCKS = "blocks_are_taken_together"
ONCE, IS, WS = "every_step_is_there_once", "input_tiles_stay", "weight_tiles_stay"
PRODUCT, SLICES = "product_is_right", "slices_add_up"
INTO_L1, INTO_L2, INTO_L3, LAST_GROUPS = "tiles_into_l1", "tiles_into_l2", "tiles_into_l3", "last_groups_count"
L1, L2, L3 = "l1_holds_one_of_each", "l2_holds_passing_tiles", "l3_holds_staying_tiles"
SWAPPED, HALVED, PAPER = "orders_change_places", "tiles_are_halved_until_they_fit", "the_papers_example_comes_out"
NEVER, EXACT = "what_never_fits_is_an_error", "an_exact_fit_fits"
STILL, BOUNDS = "what_is_still_there_is_loaded", "time_is_between_the_bounds"
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
TILED = 'nest.tile(i=4, j=4, k=4).reorder("i_o", "j_o", "k_o", "k_i", "i_i", "j_i")'
GROUPS, OPCODE = "-(-streamed // k2), -(-stationary // k3)", "code, _ = instruction(line)"
CHOSEN = "(best[1], *best[2])"


ORDERS: tuple[Mistake, ...] = (
    *mistakes(
        "P4.1",
        (
            "the space row by row",
            (1, ("return [", "return sorted(["), ("    ]", "    ])")),
            TILES,
            "the items are in the wrong order in what `visits`",
        ),
        (
            "the last tiles exceed the space",
            (1, ("(m)[i0 : i0 + tile_m]", "(i0, i0 + tile_m)"), ("(n)[j0 : j0 + tile_n]", "(j0, j0 + tile_n)")),
            EDGE,
            "where the space ends",
        ),
        ("k is not tiled", (2, (TILED, "nest.tile(i=4, j=4)")), (SPLIT, BLOCKS), "k is a loop as well"),
        (
            "split but not reordered",
            (2, (TILED, "nest.split('i', 4).split('j', 4).split('k', 4)")),
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
        ("the orders are swapped", (1, ('"IS"', '"WS"')), (IS, WS), "changes faster"),
        (
            "the last group exceeds the tiles",
            (1, ("(stationary)[s0 : s0 + k3]", "(s0, s0 + k3)"), ("(streamed)[p0 : p0 + k2]", "(p0, p0 + k2)")),
            ONCE,
            "items that do not exist",
        ),
        ("two slices at least", (1, ("range(slices)", "range(max(slices, 2))")), ONCE, "items that do not exist"),
        (
            "slices innermost",
            (1, ("for c in range(slices) for s, p in pairs", "for s, p in pairs for c in range(slices)")),
            (IS, WS),
            "changes faster",
        ),
        ("each slice overwrites y", (2, ("+= np", "= np")), (PRODUCT, SLICES), "starts at zero"),
    ),
    *mistakes(
        "P4.3",
        (
            "L1 keeps its stationary tile",
            (1, ('"L1": (stationary * groups', '"L1": (stationary')),
            INTO_L1,
            "brings another tile",
        ),
        (
            "L2 keeps its streamed tiles",
            (1, ("groups, streamed * rounds", "groups, streamed")),
            INTO_L2,
            "meet before the next",
        ),
        (
            "L3 keeps everything",
            (1, ("(stationary, streamed * rounds)", "(stationary, streamed)")),
            INTO_L3,
            "streamed tiles pass it",
        ),
        (
            "full groups only",
            (1, (GROUPS, "streamed // k2, stationary // k3")),
            (LAST_GROUPS, STILL),
            "with fewer tiles",
        ),
        (
            "a single streamed tile stays",
            (1, ("stationary * streamed)", "stationary * streamed if streamed > 1 else 1)")),
            STILL,
            "even if it is the only one there is",
        ),
        (
            "reading never takes longer",
            (2, ("max(reads * reading, multiplying)", "multiplying")),
            BOUNDS,
            "the longer of two times",
        ),
        ("always waiting", (2, ("never + waiting * (always - never)", "always")), BOUNDS, "where between them"),
    ),
)

ANALYSIS: tuple[Mistake, ...] = (
    *mistakes(
        "P4.4",
        (
            "L1 without the output tile",
            (1, ("held + streamed + out", "held + streamed")),
            L1,
            "each of the three kinds",
        ),
        ("one output tile in L2", (1, ("k2 * (streamed + out)", "k2 * streamed + out")), L2, "innermost loop"),
        (
            "the capacities in the wrong order",
            (2, ("rooms[level]", "rooms[-1 - level]")),
            (HALVED, EXACT, PAPER),
            "ValueError",
        ),
        ("no tile at all", (2, ('raise ValueError("not even one tile fits")', "break")), NEVER, "is no answer"),
        ("an exact fit does not fit", (2, ("> rooms", ">= rooms")), EXACT, "when does it not fit"),
        (
            "floats for integers",
            (1, ("held + streamed + out", "1.0 * (held + streamed + out)")),
            (L1, L2, L3, SWAPPED),
            "no integer in what",
        ),
    ),
    *mistakes(
        "P4.5",
        (
            "too small is the analysed row",
            (1, ("dict.fromkeys(analysed, (1, 1, 1))", "analysed")),
            (SMALL, COMPARED, FASTER),
            "not one of each",
        ),
        (
            "too large is the analysed row",
            (1, ('"too large": most', '"too large": analysed')),
            LARGE,
            "exceeds no cache",
        ),
        (
            "my own has more channels than there are",
            (1, ("else (k1, 2, 2)", "else (26, 2, 2)")),
            OWN,
            "out of range",
        ),
        ("my own may have no channel", (1, ("else (k1, 2, 2)", "else (k1 // 2, 2, 2)")), OWN, "from 1 to"),
        (
            "what is analysed is changed",
            (1, ("    small =", "    analysed['IS'] = (1, 1, 1)\n    small =")),
            (ANALYSED, SMALL, LARGE, OWN, COMPARED, FASTER),
            "`triples` changes its arguments",
        ),
        ("MACs instead of operations", changed(TABLE, ("2 * layer.macs", "layer.macs")), OPERATIONS, "two operations"),
    ),
    *mistakes(
        "P4.6",
        ("packed at every call", (1, ("not in prepared", "not in ()")), PACKED, "packs weights again"),
        (
            "prepared for the size of the first image",
            (1, ("(key := (id(w), x.shape))", "(key := id(w))")),
            CONVOLVED,
            "prepared for images of one size",
        ),
        ("every layer in slices", (1, ("w.shape[2:] == (3, 3)", "True")), SLICED, "a direct convolution"),
        (
            "the bias is lost",
            (1, ("g, w, bias, s", "g, w, 0 * bias, s"), ("Direct(g, w, bias", "Direct(g, w, 0 * bias")),
            CONVOLVED,
            "wrong values in what the function",
        ),
        ("float64", (1, ("[0](x)", "[0](x).astype(float)")), (CONVOLVED, NETWORKS, NETWORK_SAME), "wrong data type"),
        ("a missing row", changed(NETWORK_TABLE, ("rows:", "rows[1:]:")), (NETWORKS, NETWORK_SAME), "analysed/WS"),
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
        (
            "a list",
            changed(CHOICE, (CHOSEN, "[best[1], *best[2]]")),
            (POSSIBLE, LESS, HALF, SEARCHED),
            "no tuple in what `choose`",
        ),
        (
            "more tiles than there are",
            changed(CHOICE, (CHOSEN, "(best[1], *best[2][:2], 10**6)")),
            (POSSIBLE, LESS, HALF, SEARCHED),
            "more tiles than there are",
        ),
    ),
)

MACHINES: tuple[Mistake, ...] = (
    *mistakes(
        "P4.8",
        ("weights loaded in no time", (1, ("(2 * rows + columns + m", "(rows + columns + m")), WEIGHTS, "load"),
        ("one cycle too few", (1, ("folds(k, m)", "folds(k, m) - 1")), INPUTS, "too few"),
        (
            "outputs are loaded",
            (1, ("(rows + columns + k", "(2 * rows + columns + k")),
            OUTPUTS,
            "nothing is loaded|each fold takes rows \\+ columns",
        ),
        ("in percent", (2, ("return m", "return 100 * m")), BUSY, "a fraction of 1"),
        (
            "a single operand passes once for all folds",
            (1, ("(rows + columns + k - 2) * folds(m, n)", "(rows + columns + k - 2) * (folds(m, n) if k > 1 else 1)")),
            FOLDS,
            "how many folds lie along",
        ),
    ),
    *mistakes(
        "P4.9",
        (
            "the main computation, too",
            (1, ('line.startswith("%fused_computation")', 'line.endswith("{")')),
            COMPUTATIONS,
            "does not name the fused",
        ),
        (
            "names instead of opcodes",
            (1, (OPCODE, 'code = line.split("%")[1].split(".")[0]')),
            OPCODES,
            "is a broadcast",
        ),
        ("parameters listed as well", (1, ('code != "parameter"', "True")), PARAMETERS, "`fused` lists parameters"),
        (
            "only the last parameter",
            (2, ("read.get(name, 0) + (size", "(size"), ("else 0)", "else read.get(name, 0))")),
            READ,
            "each of",
        ),
        (
            "what is computed is read, too",
            (2, ('(size if code == "parameter" else 0)', "size")),
            READ,
            "reads each of its parameters once",
        ),
        (
            "every line is written",
            (2, ("written[name] =", "written[name] = written.get(name, 0) +")),
            WRITTEN,
            "nothing of what it computes",
        ),
    ),
)

WRONG = (*ORDERS, *ANALYSIS, *MACHINES)
