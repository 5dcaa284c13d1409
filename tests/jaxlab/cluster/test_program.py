"""The program on one process, two and four; interrupted and resumed."""

import re
import socket

import jax
import numpy as np
import pytest

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster import program
from mlhood.jaxlab.cluster.launch import launch
from mlhood.jaxlab.cluster.program import mesh
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="clusters are for Linux and macOS")

PROGRAM = ["python", "-W", "error", "-m", "mlhood.jaxlab.cluster.program", "--seed", "4", "--steps", "5"]


def run(processes, out, *options, devices=1):
    """Run the program and return the weights that it saved and its output."""
    lines = []
    launch([*PROGRAM, "--out", str(out), *options], processes, devices=devices, timeout=PATIENCE, say=lines.append)
    with np.load(out) as weights:
        return dict(weights), lines


@pytest.fixture(scope="module")
def one_process():
    """The weights trained by one process on one device."""
    return {name: np.asarray(weight) for name, weight in program.train(mesh(data=1, model=1), 4, 5).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def two_processes(folder):
    return run(2, folder / "two.npz")


@pytest.fixture(scope="module")
def interrupted(folder):
    """The error, output and checkpoints of two processes, the second of which is killed before the fourth step."""
    lines, checkpoints = [], folder / "saved"
    with pytest.raises(ClusterError) as caught:
        launch([*PROGRAM, "--checkpoints", str(checkpoints), "--fail", "1:3"], 2, timeout=PATIENCE, say=lines.append)
    return caught.value, lines, checkpoints


def assert_close(weights, expected):
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_two_processes_train_the_same_weights(two_processes, one_process):
    assert_close(two_processes[0], one_process)


def test_four_processes_with_data_and_tensor_parallelism_train_the_same_weights(folder, one_process):
    weights, _ = run(4, folder / "four.npz", "--model", "2")
    assert_close(weights, one_process)


def test_a_killed_process_is_reported(interrupted):
    error, lines, _ = interrupted
    assert "process 1 of 2 failed" in str(error)
    assert "signal 9 (SIGKILL)" in str(error)
    assert any("step 3 of 5" in line for line in lines)
    assert not any("step 5 of 5" in line for line in lines)


def test_a_resumed_run_ends_bit_for_bit_like_an_uninterrupted_one(interrupted, two_processes, folder):
    _, _, checkpoints = interrupted
    weights, lines = run(2, folder / "resumed.npz", "--checkpoints", str(checkpoints))
    assert any("resumed after step 2" in line for line in lines)
    assert not any("step 2 of 5" in line for line in lines)
    for name, value in two_processes[0].items():
        np.testing.assert_array_equal(weights[name], value)


def test_the_loss_decreases():
    lines = []
    program.train(mesh(data=1, model=1), 4, 40, report=lines.append)
    losses = [float(re.search(r"loss ([\d.]+)", line)[1]) for line in lines]
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])


def test_data_depend_only_on_the_seed():
    data, same, other = program.data(1), program.data(1), program.data(2)
    assert jax.tree.all(jax.tree.map(np.array_equal, data, same))
    assert not np.array_equal(data.x, other.x)
    assert (data.x.shape, data.x.dtype, data.y.shape, data.y.dtype) == ((32, 16), np.float32, (32,), np.int32)
    assert set(data.y) <= set(range(10))
    assert np.isfinite(program.loss(*data))


def test_devices_that_do_not_form_a_mesh_are_rejected():
    with pytest.raises(ClusterError, match="such a mesh"):
        program.main(["--model", "3"])
