"""Many devices and many processes: collectives, a launcher, and predicted scaling.

In: a program, or measured times and stated links; out: processes that run it, bytes that they send, and predictions.
"""

from mlhood.jaxlab.cluster.processes import initialize

__all__ = ["initialize"]
