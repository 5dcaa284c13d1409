"""Checkpoints: when they are saved, and that they are restored exactly, also with other shardings."""

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.checkpoint import Checkpoints
from mlhood.jaxlab.cluster.program import mesh, shard


def make_state(devices, seed=0, spec=None):
    arrays = {"w": np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32), "n": np.arange(4)}
    return shard(devices, arrays, {"w": spec or P("data", "model")})


def test_it_is_restored_bit_for_bit_and_with_other_shardings(tmp_path, mesh_2x4):
    saved = make_state(mesh_2x4)
    with Checkpoints(tmp_path / "new" / "folder") as checkpoints:
        assert checkpoints.resume(saved) == (0, saved)
        assert checkpoints.save(1, saved)
    for like in (make_state(mesh_2x4, 1), make_state(mesh(data=4, model=1), 1, P(None, "data"))):
        with Checkpoints(tmp_path / "new" / "folder") as checkpoints:
            step, restored = checkpoints.resume(like)
        assert step == 1
        for name in saved:
            np.testing.assert_array_equal(restored[name], saved[name])
            assert restored[name].dtype == saved[name].dtype
            assert restored[name].sharding == like[name].sharding


def test_it_is_saved_every_few_steps_and_the_latest_are_kept(tmp_path):
    state = make_state(mesh(data=1, model=1))
    with Checkpoints(tmp_path, every=3) as checkpoints:
        assert [step for step in range(1, 11) if checkpoints.save(step, state)] == [3, 6, 9]
        assert checkpoints.last == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["6", "9"]


def test_incomplete_checkpoints_are_ignored(tmp_path):
    state = make_state(mesh(data=1, model=1))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
    # orbax writes into a folder with such a name, and renames it when it is complete
    (tmp_path / "2.orbax-checkpoint-tmp").mkdir()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.last == 1


def test_a_checkpoint_of_other_arrays_is_rejected(tmp_path):
    devices = mesh(data=1, model=1)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(devices))
        with pytest.raises(ClusterError, match="cannot be restored"):
            checkpoints.resume(shard(devices, {"other": np.zeros(3)}, {}))
        with pytest.raises(ClusterError, match="cannot be restored") as caught:
            checkpoints.resume(shard(devices, {"w": np.zeros((4, 9), np.float32), "n": np.arange(4)}, {}))
    assert "expected: float32[4, 9]\n  got: float32[4, 8]\n" in str(caught.value)


def test_a_corrupt_checkpoint_is_rejected(tmp_path):
    state = make_state(mesh(data=1, model=1))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
    for path in (tmp_path / "1").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(ClusterError, match="cannot be restored"):
        checkpoints.resume(state)


def test_a_period_below_one_is_rejected(tmp_path):
    with pytest.raises(ClusterError, match="no checkpoint"):
        Checkpoints(tmp_path, every=0)


def test_a_folder_that_is_a_file_is_rejected(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="cannot be opened"):
        Checkpoints(tmp_path / "file")
