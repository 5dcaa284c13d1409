"""What stands in for an unsolved task of P3, so that the tasks after it are judged on their own."""

COSTS = """
import math as _math
import numba as _numba
def conv_cost(x, w, y):
    macs = _math.prod(y) * _math.prod(w[1:])
    moved = 4 * (_math.prod(x) + _math.prod(w) + _math.prod(y))
    return {"macs": macs, "bytes": moved, "intensity": 2 * macs / moved}
@_numba.njit
def output_size(size, kernel, stride, padding):
    return (size + 2 * padding - kernel) // stride + 1
"""

DIRECT = """
from mlhood.kernels import CONV2D as _CONV2D
def conv_direct(x, w, bias, stride, padding):
    return _CONV2D["naive"](x, w, bias, stride, padding, threads=1)
"""

COLUMNS = """
from mlhood.grading.projects.p3.reference import columns as im2col
"""

BLAS = """
from mlhood.kernels import CONV2D as _CONV2D
def conv_blas(x, w, bias, stride, padding):
    return _CONV2D["im2col_blas"](x, w, bias, stride, padding)
"""
