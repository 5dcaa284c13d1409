"""How a process finds the others: told by `mlhood cluster`, or by Slurm, Open MPI or Kubernetes through JAX itself.

JAX reads the coordinator's address from the environment, but how many processes there are, and which of them this is,
only from its arguments or from a cluster that it knows (jax.distributed.initialize, `cluster_detection_method`).
A launcher on one machine is none of those, so its two numbers come in variables of our own.
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

# what is in the environment of a process that these have started (jax/_src/clusters); not of one beside them, such as
# the shell that Slurm's salloc gives
KNOWN = {
    "Slurm": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID"),
    "Open MPI": ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    "Kubernetes": ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"),
}
_HEARTBEAT = 30  # seconds of silence after which a process counts as dead; JAX's own is 100
_SHUTDOWN = 60  # seconds that a process waits at its end for the others; JAX's own is 300


def initialize(timeout: int = 60) -> None:
    """Join the other processes, before anything else is asked of JAX; alone, do nothing.

    Under `mlhood cluster` the place in the cluster comes from the launcher; under Slurm, Open MPI or Kubernetes JAX
    finds it itself, with `jax.distributed.initialize()`. A process that neither has started is a cluster of one.

    An exception that nobody catches then ends this process at once: at its end JAX waits for the others, which would
    be waiting for what this one did not send.

    Args:
        timeout: Seconds to wait for the other processes.

    Raises:
        ClusterError: What the environment says makes no sense, JAX is in use already, or the others do not come.
    """
    place = _place()
    if place is None and manager() is None:
        return
    import jax

    given: dict[str, Any] = {"num_processes": place[0], "process_id": place[1]} if place else {}
    try:
        jax.distributed.initialize(
            **given,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=_HEARTBEAT,
            shutdown_timeout_seconds=_SHUTDOWN,
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise ClusterError(
            "this process cannot join the others",
            where=os.environ.get(COORDINATOR, manager()),
            got=f"{type(error).__name__}: {error}",
            todo="call initialize() once and first, before JAX makes an array; see that all processes have started",
        ) from error
    sys.excepthook = _fail


def manager() -> str | None:
    """Return which cluster manager has started this process, of those that JAX knows by themselves; or None."""
    return next((name for name, needed in KNOWN.items() if all(one in os.environ for one in needed)), None)


def _place() -> tuple[int, int] | None:
    """Return how many processes there are and which this is, as the launcher has said it."""
    said = [os.environ.get(name) for name in (PROCESSES, PROCESS)]
    if said == [None, None]:
        return None
    try:
        count, number = (int(one or "") for one in said)
    except ValueError:
        count = number = -1
    if not 0 <= number < count or COORDINATOR not in os.environ:
        raise ClusterError(
            "the launcher's variables make no sense",
            expected=f"{PROCESS} from 0 to {PROCESSES} - 1, and {COORDINATOR}",
            got=f"{PROCESS}={said[1]}, {PROCESSES}={said[0]}, {COORDINATOR}={os.environ.get(COORDINATOR)}",
            todo="start the script with mlhood cluster -n 2 -- python script.py, or unset them",
        )
    return count, number


def _fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    logging.shutdown()
    os._exit(1)
