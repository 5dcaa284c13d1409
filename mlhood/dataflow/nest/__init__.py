"""Loop nests as values.

In: a statement and the extents of its loops. Out: a nest that prints, is tiled and reordered, and counts its accesses.

>>> from mlhood.dataflow.nest import gemm
>>> print(gemm(64, 64, 64).tile(i=16, j=16).reorder("k", "i_i", "j_i"))
# C[64, 64] from A[64, 64], B[64, 64]
for i_o in range(4):
  for j_o in range(4):
    for k in range(64):
      for i_i in range(16):
        for j_i in range(16):
          C[16*i_o + i_i, 16*j_o + j_i] += A[16*i_o + i_i, k] * B[k, 16*j_o + j_i]
"""

from mlhood.dataflow.nest.loop_nest import Nest, gemm, nest
from mlhood.errors import NestError

__all__ = ["Nest", "NestError", "gemm", "nest"]
