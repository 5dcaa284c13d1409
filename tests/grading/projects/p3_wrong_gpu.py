"""Typical wrong kernels of P3's last part, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import changed, edited, mistakes

NAIVE, COALESCED, NEIGHBOURS = "one_thread_computes_an_element", "coalesced_is_right", "neighbours_touch_neighbours"
TILED, LOADED, BANKS, BARRIERS = "tiled_is_right", "tiles_are_loaded_once", "banks_do_not_conflict", "barriers_hold"
TRAFFIC, SLOWER, TILE = "traffic_is_counted", "the_slower_one_decides", "tiles_are_large_enough"

ACROSS = "i = TILE * cuda.blockIdx.y + cuda.threadIdx.x\n    j = TILE * cuda.blockIdx.x + cuda.threadIdx.y"
IN_MEMORY = ("        c[i, j] = total\n", ""), ("total = float32(0)", "c[i, j] = 0"), ("total +=", "c[i, j] +=")
ELEMENT, PLACE = "matrix[i, j] if inside else float32(0)", "tile_of_b[k, cuda.threadIdx.x]"
LOADED_BARRIER = "        cuda.syncthreads()  # both tiles are complete\n"
USED_BARRIER = "        cuda.syncthreads()  # nobody needs them any more\n"
TWO_BARRIERS = """        if cuda.threadIdx.x % 2:
            cuda.syncthreads()
        else:
            cuda.syncthreads()
"""
OF_A, OF_B = (
    f"load_element(tile_of_{tile})"
    for tile in ("a, a, i, first + cuda.threadIdx.x", "b, b, first + cuda.threadIdx.y, j")
)
COLUMNS_OF_A = """x, y = cuda.threadIdx.x, cuda.threadIdx.y
        row, column = i - y + x, first + y
        tile_of_a[x, y] = a[row, column] if row < a.shape[0] and column < a.shape[1] else float32(0)"""
TRANSPOSED_B = """row, place = first + cuda.threadIdx.y, (cuda.threadIdx.x, cuda.threadIdx.y)
        tile_of_b[place] = b[row, j] if row < b.shape[0] and j < b.shape[1] else float32(0)"""

GPU = (
    *mistakes(
        "P3.12",
        (
            "threads beyond the edge",
            (1, ("if i < c.shape[0] and j < c.shape[1]", "if True")),
            NAIVE,
            r"(?s)out of bounds.*thread \(\d+, \d+\)",
        ),
        (
            "x counts columns at once",
            (1, ("i, j = cuda", "j, i = cuda")),
            NAIVE,
            r"elements of c are not written.*first of them c\[\[\d+, \d+\]\].*x counts the rows",
        ),
        (
            "x counts rows again",
            (2, ("j, i = cuda", "i, j = cuda")),
            (COALESCED, NEIGHBOURS),
            "does not touch all elements",
        ),
        (
            "x and y exchanged within the block",
            (2, ("j, i = cuda.grid(2)", ACROSS)),
            NEIGHBOURS,
            "need too many sectors",
        ),
        ("the sum in global memory", (2, *IN_MEMORY), NEIGHBOURS, "elements of c more than once"),
    ),
    *mistakes(
        "P3.13",
        ("tiles read beyond a", (1, (ELEMENT, "matrix[i, j]")), TILED, "is out of bounds"),
        (
            "no barrier behind the loads",
            (3, (LOADED_BARRIER, "")),
            (TILED, BARRIERS),
            r"race on tile_of_[ab]\[\d+, \d+\] in block",
        ),
        (
            "no barrier before the next tiles",
            (3, (USED_BARRIER, "")),
            (TILED, BARRIERS),
            r"race on tile_of_[ab].*written by .*read by",
        ),
        ("two barriers instead of one", (3, (LOADED_BARRIER, TWO_BARRIERS)), BARRIERS, "wait at different barriers"),
        ("neighbours load columns", (3, (OF_A, COLUMNS_OF_A)), (LOADED, BANKS), "loads its tiles in too many sectors"),
        (
            "the tile of b transposed",
            edited("P3-13-solution-3", (OF_B, TRANSPOSED_B))
            | edited("P3-13-solution-2", (PLACE, "tile_of_b[cuda.threadIdx.x, k]")),
            BANKS,
            "has bank conflicts",
        ),
        (
            "without tiles",
            changed({"P3-13-solution-3": edited("P3-12-solution-2")["P3-12-solution-2"]}, ("coalesced", "tiled")),
            (LOADED, BANKS, BARRIERS),
            "uses no shared memory",
        ),
    ),
    *mistakes(
        "P3.14",
        ("c is not written", (1, (" + n**2", "")), TRAFFIC, "c is written, too"),
        (
            "times are added",
            (1, ("max(flops / peak, moved / bandwidth)", "flops / peak + moved / bandwidth")),
            SLOWER,
            "are not added",
        ),
        ("the ridge itself", (2, ("tile / 4", "tile")), TILE, "tile_needed"),
        ("one step too many", (2, ("< peak", "<= peak")), TILE, "smallest"),
    ),
)
