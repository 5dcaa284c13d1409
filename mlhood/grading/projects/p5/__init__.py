"""P5: the network in JAX: without it and with it, derivatives, training, an operation of one's own, and a cluster."""

from mlhood.grading.projects.p5.tasks import P5

__all__ = ["P5"]
