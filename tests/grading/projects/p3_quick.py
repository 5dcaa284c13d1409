"""P3's solutions that measure: right, but neither compiled nor measured on real layers, which would take minutes."""

from __future__ import annotations

from tests.grading.projects.p3_right import ARRAY_OPERATIONS

COUNTED = """
import gc
gc.freeze()  # each comparison collects garbage first, among all that is loaded

def counted(times, convolution):
    \"\"\"Something that takes as long as it should, beside a convolution of a single pixel.\"\"\"
    pixel = np.ones((1, 1, 1, 1), np.float32)
    return lambda: convolution(pixel, pixel, np.zeros(1, np.float32), 1, 0) * 0 + sum(range(times)) * np.float32(0)
"""
TABLE = {
    "P3-5-solution-2": f"""{COUNTED}
for row, layer in layers.items():
    both = {{"no-BLAS": counted(40_000, conv_direct), "BLAS": counted(7_000, conv_blas)}}
    table.fill(row, compare(both, flops=2 * layer.macs, shortest=1e-4))
"""
}
MODELS_TABLE = {
    "P3-6-solution-2": f"""{COUNTED}
for row in models_table.rows:
    both = {{"no-BLAS": counted(40_000, conv_direct), "BLAS": counted(15_000, conv_blas)}}
    models_table.fill(row, compare(both, shortest=1e-4))
"""
}
DIRECT, REORDERED, BLOCKED, PACK, PACKED = (
    {cell: ARRAY_OPERATIONS[cell]}
    for cell in ("P3-2-solution", *(f"P3-7-solution{part}" for part in ("", "-2", "-3", "-4")))
)
QUICK = DIRECT | REORDERED | BLOCKED | PACK | PACKED | TABLE | MODELS_TABLE
