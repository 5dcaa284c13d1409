"""How a process joins the cluster: through `mlhood cluster`, or through Slurm, Open MPI or Kubernetes by JAX itself.

JAX reads the coordinator's address from the environment, but the number of processes and its own rank only from its
arguments or from a cluster manager that it detects (jax.distributed.initialize, `cluster_detection_method`). A launcher
on one machine is none of those, so it passes these two numbers in variables of our own.
"""

from __future__ import annotations

import logging
import os
import sys
from types import TracebackType
from typing import Any

from mlhood.errors import ClusterError

PROCESSES, PROCESS = "MLHOOD_CLUSTER_PROCESSES", "MLHOOD_CLUSTER_PROCESS"
COORDINATOR, BIND = "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_BIND_ADDRESS"

# variables that these set for the processes they start (jax/_src/clusters), but not for others on the same machine,
# such as the shell of Slurm's salloc
CLUSTER_MANAGERS = {
    "Slurm": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"),
    "Open MPI": ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    "Kubernetes": ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"),
}
_HEARTBEAT_TIMEOUT = 30  # seconds; JAX's default is 100
_SHUTDOWN_TIMEOUT = 60  # seconds that a process waits at its end for the others; JAX's default is 300


def initialize(timeout: int = 300) -> None:
    """Join the other processes, before JAX is used; do nothing in a process that is not part of a cluster.

    Under `mlhood cluster` the launcher passes the rank; under Slurm, Open MPI or Kubernetes JAX detects it, by
    `jax.distributed.initialize()` without arguments.

    From then on an uncaught exception terminates this process immediately: a normal exit of JAX waits for the others,
    which would wait for this one.

    Args:
        timeout: Seconds to wait for the other processes.

    Raises:
        ClusterError: JAX is already in use, or the others do not connect.
    """
    rank = _launcher_rank()
    if rank is None and cluster_manager() is None:
        return
    import jax

    arguments: dict[str, Any] = {"num_processes": rank[1], "process_id": rank[0]} if rank else {}
    try:
        jax.distributed.initialize(
            **arguments,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT,
            shutdown_timeout_seconds=_SHUTDOWN_TIMEOUT,
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise ClusterError(
            "this process cannot join the others",
            where=os.environ.get(COORDINATOR, cluster_manager()),
            got=f"{type(error).__name__}: {error}",
            todo="call initialize() once and first, before JAX makes an array; check that all processes have started",
        ) from error
    sys.excepthook = _exit_on_exception


def cluster_manager() -> str | None:
    """Return which cluster manager that JAX detects has started this process, or None."""
    managers = CLUSTER_MANAGERS.items()
    return next((name for name, variables in managers if all(v in os.environ for v in variables)), None)


def _launcher_rank() -> tuple[int, int] | None:
    """Return this process's rank and the number of processes, as set by the launcher, or None."""
    if PROCESS not in os.environ:
        return None
    return int(os.environ[PROCESS]), int(os.environ[PROCESSES])


def _exit_on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    logging.shutdown()
    os._exit(1)
