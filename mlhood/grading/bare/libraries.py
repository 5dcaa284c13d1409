"""The libraries that exist where the functions of a task run when it is graded; nothing else can be imported there."""

from __future__ import annotations

from dataclasses import dataclass

NOT_AVAILABLE = "is not available where this is graded"
PRODUCTS = (
    *("dot", "vdot", "inner", "matmul", "vecdot", "matvec", "vecmat", "einsum", "c_einsum", "tensordot", "correlate"),
    *("correlate2", "convolve", "linalg"),
)
"""What `numpy` has of matrix products and convolutions, which `Libraries` without products leaves out."""


@dataclass(frozen=True)
class Libraries:
    """What a task may use. Each different value costs a process for every notebook, so tasks share them.

    Args:
        packages: Names of distributions; what they require is there, too.
        modules: Modules of `mlhood`, with those that they import at their top.
        without: Dotted names of modules, functions, methods or constants of `mlhood` that are left out of these.
        products: Whether NumPy has its matrix products.
        processes: Whether it may start other processes, so that its CPU time is not known outside.
        files: Names of files that the notebook writes; copies of at most 1 MiB exist there, too.
    """

    packages: tuple[str, ...] = ("numpy", "numba")
    modules: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    products: bool = True
    processes: bool = False
    files: tuple[str, ...] = ()


ARRAYS = Libraries()
LOOPS = Libraries(
    modules=("mlhood.measure.touches", "mlhood.measure.traffic", "mlhood.gpu.simulator"), products=False
)  # where a product of matrices is the task
