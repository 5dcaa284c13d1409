"""Matrix products and convolutions as ladders: from the definition, rung by rung, to a kernel made for this machine.

`GEMM` and `CONV2D` map the rungs' names to functions with the same arguments.
"""

from mlhood.kernels.conv import CONV2D, RELU
from mlhood.kernels.gemm import GEMM
from mlhood.kernels.parallel import threads, use_threads

__all__ = ["CONV2D", "GEMM", "RELU", "threads", "use_threads"]
