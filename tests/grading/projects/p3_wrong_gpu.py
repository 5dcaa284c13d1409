"""Typical wrong kernels of P3's last part, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import mistakes
from tests.grading.projects.p3_snippets import gpu_needs, kernels, tiled

NAIVE, COALESCED, NEIGHBOURS = "one_thread_computes_an_element", "coalesced_is_right", "neighbours_touch_neighbours"
TILED, LOADED, BANKS, BARRIERS = "tiled_is_right", "tiles_are_loaded_once", "banks_do_not_conflict", "barriers_hold"
TRAFFIC, SLOWER, TILE = "traffic_is_counted", "the_slower_one_decides", "tiles_are_large_enough"

UNGUARDED = """
i, j = cuda.grid(2)
total = float32(0)
for k in range(b.shape[0]):
    total += a[i, k] * b[k, j]
c[i, j] = total
"""
ROW_MAJOR = """
i, j = cuda.grid(2)
if i < c.shape[0] and j < c.shape[1]:
    total = float32(0)
    for k in range(b.shape[0]):
        total += a[i, k] * b[k, j]
    c[i, j] = total
"""
ACROSS = ROW_MAJOR.replace(
    "i, j = cuda.grid(2)",
    "i = TILE * cuda.blockIdx.y + cuda.threadIdx.x\nj = TILE * cuda.blockIdx.x + cuda.threadIdx.y",
)
IN_MEMORY = """
j, i = cuda.grid(2)
if i < c.shape[0] and j < c.shape[1]:
    c[i, j] = 0
    for k in range(b.shape[0]):
        c[i, j] += a[i, k] * b[k, j]
"""
INSIDE_ONLY = {
    "P3-13-solution-3": tiled()["P3-13-solution-3"].replace(
        "    for t in", "    if i >= c.shape[0] or j >= c.shape[1]:\n        return\n    for t in"
    )
}
TWO_BARRIERS = tiled(loaded="if x % 2:\n        cuda.syncthreads()\n    else:\n        cuda.syncthreads()")
RIDGE = "1 << max(0, math.ceil(math.log2(peak / bandwidth)))"
DOUBLE = "2 << max(0, math.floor(math.log2(4 * peak / bandwidth)))"

GPU = (
    *mistakes(
        "P3.12",
        (
            "threads beyond the edge",
            kernels(naive=UNGUARDED),
            NAIVE,
            r"(?s)out of bounds.*thread \(\d+, \d+\)",
        ),
        ("x counts rows again", kernels(coalesced=ROW_MAJOR), (COALESCED, NEIGHBOURS), "does not touch all elements"),
        ("x and y exchanged within the block", kernels(coalesced=ACROSS), NEIGHBOURS, "needs too many sectors.*16.0"),
        ("the sum in global memory", kernels(coalesced=IN_MEMORY), NEIGHBOURS, "elements of c more than once"),
    ),
    *mistakes(
        "P3.13",
        ("tiles read beyond a", tiled(load_a="sa[y, x] = a[i, t + x]"), TILED, "is out of bounds"),
        (
            "no zeros behind the last k",
            tiled(
                load_b="sb[y, x] = b[min(t + y, b.shape[0] - 1), min(j, b.shape[1] - 1)]",
                load_a="sa[y, x] = a[min(i, a.shape[0] - 1), min(t + x, a.shape[1] - 1)]",
            ),
            TILED,
            "wrong values in c",
        ),
        ("no barrier behind the loads", tiled(loaded=""), (TILED, BARRIERS), r"race on s[ab]\[\d+, \d+\] in block"),
        ("no barrier before the next tiles", tiled(used=""), (TILED, BARRIERS), r"race on s[ab].*written by .*read by"),
        (
            "threads that leave early",
            INSIDE_ONLY,
            TILED,
            r"only \d+ of 256 threads of block .* reach the barrier",
        ),
        ("two barriers instead of one", TWO_BARRIERS, BARRIERS, "wait at different barriers"),
        (
            "a wrong index into a tile",
            tiled(product="total += sa[y, k] * sb[x, k]"),
            (TILED, BANKS),
            "wrong values in c",
        ),
        (
            "neighbours load columns",
            tiled(load_a="sa[x, y] = a[i - y + x, t + y] if i - y + x < len(a) and t + y < a.shape[1] else float32(0)"),
            (LOADED, BANKS),
            "loads its tiles in too many sectors",
        ),
        (
            "the tile of b transposed",
            tiled(
                load_b="sb[x, y] = b[t + y, j] if t + y < b.shape[0] and j < b.shape[1] else float32(0)",
                product="total += sa[y, k] * sb[x, k]",
            ),
            BANKS,
            "has bank conflicts",
        ),
        (
            "without tiles",
            {"P3-13-solution-3": kernels()["P3-12-solution-2"].replace("gpu_coalesced", "gpu_tiled")},
            (LOADED, BANKS, BARRIERS),
            "uses no shared memory",
        ),
    ),
    *mistakes(
        "P3.14",
        ("c is not written", gpu_needs(moved="8 * n**3 // tile"), TRAFFIC, "c is written, too"),
        ("numbers, not bytes", gpu_needs(moved="2 * n**3 // tile + n * n"), TRAFFIC, "a float32 has four"),
        ("times are added", gpu_needs(seconds="flops / peak + moved / bandwidth"), SLOWER, "are not added"),
        (
            "the ridge itself",
            gpu_needs(needed=RIDGE),
            TILE,
            "tile_needed",
        ),
        (
            "one step too many",
            gpu_needs(needed=DOUBLE),
            TILE,
            "smallest",
        ),
    ),
)
