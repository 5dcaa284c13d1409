"""How a process joins the others."""

import os
import socket
import subprocess
import sys

import pytest

from mlhood.jaxlab.cluster import initialize
from mlhood.jaxlab.cluster.processes import CLUSTER_MANAGERS, COORDINATOR, PROCESS, PROCESSES, cluster_manager


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    managers = (name for names in CLUSTER_MANAGERS.values() for name in names)
    for name in {PROCESSES, PROCESS, COORDINATOR, *managers}:
        monkeypatch.delenv(name, raising=False)


def test_outside_of_a_cluster_nothing_is_done():
    hook = sys.excepthook
    initialize()
    assert sys.excepthook is hook


def test_a_cluster_manager_is_recognised_by_all_of_its_variables(monkeypatch):
    for manager, variables in CLUSTER_MANAGERS.items():
        with monkeypatch.context() as context:
            for name in variables[:-1]:
                context.setenv(name, "1")
            assert cluster_manager() is None
            context.setenv(variables[-1], "1")
            assert cluster_manager() == manager


def test_jax_detects_its_rank_under_slurm():
    """A step of one task: Slurm's variables are all that `initialize` needs."""
    program = (
        "from mlhood.jaxlab.cluster import initialize; initialize();"
        "import jax; print(jax.process_count(), jax.distributed.is_initialized())"
    )
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}
    slurm |= {"SLURM_LOCALID": "0", "JAX_COORDINATOR_PORT": str(free_port()), "JAX_PLATFORMS": "cpu"}
    result = run_python(program, slurm)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["1", "True"]


def test_an_error_is_raised_if_jax_is_already_in_use():
    program = "import jax; jax.devices(); from mlhood.jaxlab.cluster import initialize; initialize()"
    launched = {PROCESSES: "1", PROCESS: "0", COORDINATOR: "127.0.0.1:1", "JAX_PLATFORMS": "cpu"}
    result = run_python(program, launched)
    assert result.returncode == 1
    assert "cluster: this process cannot join the others" in result.stderr
    assert "call initialize() once and first" in result.stderr


def run_python(program, variables):
    command, env = [sys.executable, "-c", program], {**os.environ, **variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
