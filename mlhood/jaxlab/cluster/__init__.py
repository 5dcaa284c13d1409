"""Many devices and many processes: meshes, collectives counted in HLO, a launcher, checkpoints to resume from."""

from mlhood.jaxlab.cluster.processes import initialize

__all__ = ["initialize"]
