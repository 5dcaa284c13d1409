"""Where a process learns of the others."""

import os
import socket
import subprocess
import sys

import pytest

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster import initialize
from mlhood.jaxlab.cluster.processes import COORDINATOR, KNOWN, PROCESS, PROCESSES, manager


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in {PROCESSES, PROCESS, COORDINATOR, *(one for names in KNOWN.values() for one in names)}:
        monkeypatch.delenv(name, raising=False)


def test_alone_there_is_nothing_to_do():
    before = sys.excepthook
    initialize()
    assert sys.excepthook is before


@pytest.mark.parametrize(
    ("count", "number", "coordinator"),
    [
        ("2", "2", "a:1"),
        ("2", "-1", "a:1"),
        ("two", "0", "a:1"),
        (None, "0", "a:1"),
        ("2", None, "a:1"),
        ("2", "0", None),
    ],
)
def test_variables_that_make_no_sense_are_refused(monkeypatch, count, number, coordinator):
    for name, value in {PROCESSES: count, PROCESS: number, COORDINATOR: coordinator}.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError, match="make no sense"):
        initialize()


def test_a_cluster_that_jax_knows_is_told_by_all_of_its_variables(monkeypatch):
    for name, needed in KNOWN.items():
        with monkeypatch.context() as there:
            for one in needed[:-1]:
                there.setenv(one, "1")
            assert manager() is None
            there.setenv(needed[-1], "1")
            assert manager() == name


def test_jax_finds_its_place_under_slurm_by_itself():
    """A step of one task: what Slurm sets is all that `initialize` needs."""
    program = (
        "from mlhood.jaxlab.cluster import initialize; initialize();"
        "import jax; print(jax.process_count(), jax.distributed.is_initialized())"
    )
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}
    slurm |= {"SLURM_LOCALID": "0", "JAX_COORDINATOR_PORT": str(free()), "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run([sys.executable, "-c", program], env=around(slurm), capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "True"]


def test_jax_in_use_already_is_told():
    program = "import jax; jax.devices(); from mlhood.jaxlab.cluster import initialize; initialize()"
    told = {PROCESSES: "1", PROCESS: "0", COORDINATOR: "127.0.0.1:1", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run([sys.executable, "-c", program], env=around(told), capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "cluster: this process cannot join the others" in ran.stderr
    assert "call initialize() once and first" in ran.stderr


def around(more):
    return {**os.environ, **more}


def free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
