"""Figures of sharded arrays and of rings."""

import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from mlhood.jaxlab.cluster import parallel
from mlhood.jaxlab.cluster.collectives import Collective
from mlhood.jaxlab.cluster.parallel import shard
from mlhood.jaxlab.cluster.sharding_figures import layout, ring


def patches(figure, kind):
    figure.canvas.draw()
    return [patch for patch in figure.axes[0].patches if type(patch) is kind]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_each_shard_has_a_tile_with_its_devices(mesh_2x4, batch):
    x, _ = parallel.shard_batch(mesh_2x4, *batch[1:])
    figure = layout({"x": x, **shard(mesh_2x4, batch[0], parallel.SPECS)})
    assert len(patches(figure, Rectangle)) == 2 + 4 + 4 + 4 + 1
    labels = texts(figure)
    assert labels[:3] == ["0-3", "4-7", "x  [16, 16]"]
    assert labels[3:8] == ["0,4", "1,5", "2,6", "3,7", "w1  [16, 32]"]
    assert "0-7" in labels


def test_the_tiles_cover_an_array_exactly_once(mesh_2x4):
    figure = layout({"w": ((8, 8), NamedSharding(mesh_2x4, P("model", "data")))})
    tiles = patches(figure, Rectangle)
    boxes = np.array([[*tile.get_xy(), tile.get_width(), tile.get_height()] for tile in tiles])
    extent = np.ptp(np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]), axis=0)
    assert np.prod(boxes[:, 2:], axis=1).sum() == pytest.approx(np.prod(extent))
    assert len({tuple(corner) for corner in boxes[:, :2].round(6)}) == 8


def test_scalars_and_more_dimensions_can_be_drawn(mesh_2x4):
    shapes = {"n": ((), P()), "w": ((4, 2, 3, 3), P("model"))}
    figure = layout({name: (shape, NamedSharding(mesh_2x4, spec)) for name, (shape, spec) in shapes.items()})
    assert len(patches(figure, Rectangle)) == 1 + 4


def test_each_group_has_a_ring_and_the_bytes_are_shown():
    figure = ring(Collective("a", "all-reduce", 400, ((0, 1, 2, 3), (4, 5, 6, 7))))
    assert (len(patches(figure, Circle)), len(patches(figure, FancyArrowPatch))) == (8, 8)
    assert "all-reduce of 400 bytes" in texts(figure)
    assert "each sends 600 bytes in 6 steps of 100" in texts(figure)


def test_a_permutation_has_an_arrow_for_each_pair():
    figure = ring(Collective("a", "collective-permute", 400, ((0, 1), (1, 2), (2, 3))))
    assert (len(patches(figure, Circle)), len(patches(figure, FancyArrowPatch))) == (4, 3)
    assert "each sends 400 bytes, once" in texts(figure)
