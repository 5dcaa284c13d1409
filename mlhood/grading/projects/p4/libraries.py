"""What exists where the functions of P4 are graded: the parts of `mlhood.dataflow` that do not solve the task."""

from mlhood.grading.bare.libraries import Libraries

NESTS = Libraries(
    modules=("mlhood.dataflow.nest", "mlhood.dataflow.slicing.problem", "mlhood.dataflow.slicing.caches"),
)
SLICINGS = Libraries(
    modules=("mlhood.dataflow.cache.cost", "mlhood.dataflow.sliced.sliced", "mlhood.kernels.direct"),
)
