"""What can go wrong between processes."""

from __future__ import annotations

from mlhood.errors import MlhoodError


class ClusterError(MlhoodError):
    """Processes cannot be started or found, one of them failed, or arrays cannot be laid on a mesh as asked."""

    stage = "cluster"
