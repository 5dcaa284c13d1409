"""Checkpoints: what is saved when, and that it comes back as it was, on other devices too."""

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.checkpoint import Checkpoints
from mlhood.jaxlab.cluster.mesh import lay, mesh


def state(devices, seed=0, spec=None):
    values = {"w": np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32), "n": np.arange(4)}
    return lay(devices, values, {"w": spec or P("data", "model")})


def test_it_comes_back_bit_for_bit_and_on_other_devices(tmp_path, of_both):
    saved = state(of_both)
    with Checkpoints(tmp_path / "new" / "folder") as checkpoints:
        assert checkpoints.resume(saved) == (0, saved)
        assert checkpoints.save(1, saved)
    for like in (state(of_both, 1), state(mesh(data=4, model=1), 1, P(None, "data"))):
        with Checkpoints(tmp_path / "new" / "folder") as checkpoints:
            step, found = checkpoints.resume(like)
        assert step == 1
        for name in saved:
            np.testing.assert_array_equal(found[name], saved[name])
            assert found[name].dtype == saved[name].dtype
            assert found[name].sharding == like[name].sharding


def test_it_is_saved_every_few_steps_and_the_last_few_are_kept(tmp_path):
    one = state(mesh(data=1, model=1))
    with Checkpoints(tmp_path, every=3, keep=2) as checkpoints:
        assert [step for step in range(1, 11) if checkpoints.save(step, one)] == [3, 6, 9]
        assert checkpoints.last == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["6", "9"]


def test_what_was_half_written_is_not_resumed_from(tmp_path):
    one = state(mesh(data=1, model=1))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, one)
    # orbax writes under such a name, and gives the folder its own when all is there
    (tmp_path / "2.orbax-checkpoint-tmp").mkdir()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.last == 1


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    devices = mesh(data=1, model=1)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state(devices))
        with pytest.raises(ClusterError, match="cannot be read"):
            checkpoints.resume(lay(devices, {"other": np.zeros(3)}, {}))
        with pytest.raises(ClusterError, match="cannot be read") as refused:
            checkpoints.resume(lay(devices, {"w": np.zeros((4, 9), np.float32), "n": np.arange(4)}, {}))
    assert "expected: float32[4, 9]\n  got: float32[4, 8]\n" in str(refused.value)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    one = state(mesh(data=1, model=1))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, one)
    for path in (tmp_path / "1").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(ClusterError, match="cannot be read"):
        checkpoints.resume(one)


@pytest.mark.parametrize("numbers", [{"every": 0}, {"keep": 0}])
def test_numbers_that_keep_nothing_are_refused(tmp_path, numbers):
    with pytest.raises(ClusterError, match="no checkpoint"):
        Checkpoints(tmp_path, **numbers)


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="no checkpoints here"):
        Checkpoints(tmp_path / "file")
