"""Automatic differentiation from scratch, in NumPy: a tape for reverse mode.

In: functions of arrays that are written with the operators of this package; out: gradients and drawings.

>>> from mlhood.jaxlab import autodiff as ad
>>> tape = ad.Tape()
>>> loss = ad.cross_entropy(ad.lenet(ad, tape.tree(params), x), labels)
>>> ad.backward(tape)                              # the gradients, by the numbers of the values
"""

from mlhood.errors import AutodiffError
from mlhood.jaxlab.autodiff.operators import (
    NUMPY,
    TapeValue,
    add,
    batch_norm,
    conv2d,
    cross_entropy,
    dense,
    exp,
    global_average_pool,
    log,
    max_pool,
    mean,
    relu,
    reshape,
    sigmoid,
    softmax,
    sum,
    tanh,
)
from mlhood.jaxlab.autodiff.rules import RULES
from mlhood.jaxlab.autodiff.tape import Entry, Tape, backward
from mlhood.jaxlab.autodiff.windows import columns, scatter
from mlhood.jaxlab.operators.network import lenet

__all__ = [
    "NUMPY",
    "RULES",
    "AutodiffError",
    "Entry",
    "Tape",
    "TapeValue",
    "add",
    "backward",
    "batch_norm",
    "columns",
    "conv2d",
    "cross_entropy",
    "dense",
    "exp",
    "global_average_pool",
    "lenet",
    "log",
    "max_pool",
    "mean",
    "relu",
    "reshape",
    "scatter",
    "sigmoid",
    "softmax",
    "sum",
    "tanh",
]
