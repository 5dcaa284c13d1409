"""The same program over one process, two and four; broken off and resumed."""

import re
import socket

import jax
import numpy as np
import pytest

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster import program
from mlhood.jaxlab.cluster.launch import launch
from mlhood.jaxlab.cluster.mesh import mesh

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="clusters are for Linux and macOS")

PROGRAM = ["python", "-W", "error", "-m", "mlhood.jaxlab.cluster.program", "--seed", "4", "--steps", "5"]


def run(processes, out, *options, devices=1):
    """Run the program and return what it wrote and said."""
    said = []
    launch([*PROGRAM, "--out", str(out), *options], processes, devices=devices, timeout=120, say=said.append)
    with np.load(out) as found:
        return dict(found), said


@pytest.fixture(scope="module")
def alone():
    """What one process has on one device."""
    return {name: np.asarray(one) for name, one in program.train(mesh(data=1, model=1), 4, 5).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def two(folder):
    return run(2, folder / "two.npz")


@pytest.fixture(scope="module")
def broken(folder):
    """Two processes of which the second dies before the fourth step; and where its checkpoints are."""
    said, saved = [], folder / "saved"
    with pytest.raises(ClusterError) as failed:
        launch([*PROGRAM, "--checkpoints", str(saved), "--fail", "1:3"], 2, timeout=120, say=said.append)
    return failed.value, said, saved


def close(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_two_processes_learn_what_one_does(two, alone):
    close(two[0], alone)


def test_four_processes_that_share_data_and_weights_learn_the_same(folder, alone):
    found, _ = run(4, folder / "four.npz", "--model", "2")
    close(found, alone)


def test_one_that_dies_is_named_soon(broken):
    error, said, _ = broken
    assert "process 1 of 2 failed" in str(error)
    assert "signal 9 (SIGKILL)" in str(error)
    assert any("step 3 of 5" in line for line in said)
    assert not any("step 5 of 5" in line for line in said)


def test_what_is_resumed_ends_bit_for_bit_as_without_the_break(broken, two, folder):
    _, _, saved = broken
    found, said = run(2, folder / "resumed.npz", "--checkpoints", str(saved))
    assert any("resumed after step 2" in line for line in said)
    assert not any("step 2 of 5" in line for line in said)
    for name, value in two[0].items():
        np.testing.assert_array_equal(found[name], value)


def test_it_learns():
    found = []
    program.train(mesh(data=1, model=1), 4, 40, report=found.append)
    losses = [float(re.search(r"loss ([\d.]+)", line)[1]) for line in found]
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])


def test_data_are_the_seeds():
    one, same, other = program.data(1), program.data(1), program.data(2)
    assert jax.tree.all(jax.tree.map(np.array_equal, one, same))
    assert not np.array_equal(one.x, other.x)
    assert (one.x.shape, one.x.dtype, one.y.shape, one.y.dtype) == ((32, 16), np.float32, (32,), np.int32)
    assert set(one.y) <= set(range(10))
    assert np.isfinite(program.loss(*one))


def test_devices_that_do_not_fall_into_the_mesh_are_refused():
    with pytest.raises(ClusterError, match="such a mesh"):
        program.main(["--model", "3"])
