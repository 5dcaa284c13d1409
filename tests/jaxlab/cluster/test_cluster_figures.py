"""Figures of sharded arrays and of a ring's steps."""

import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from matplotlib.patches import Rectangle

from mlhood.jaxlab.cluster.sharding_figures import layout, ring_all_reduce
from mlhood.plotting.alt_text import alt_text
from tests.plotting.texts import check_texts


def patches(figure, kind):
    figure.canvas.draw()
    return [patch for patch in figure.axes[0].patches if type(patch) is kind]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_each_shard_has_a_tile_with_its_devices(mesh_2x4):
    specs = {"x": ((16, 16), P("data")), "w1": ((16, 32), P(None, "model")), "b2": ((10,), P())}
    figure = layout({name: (shape, NamedSharding(mesh_2x4, spec)) for name, (shape, spec) in specs.items()})
    assert len(patches(figure, Rectangle)) == 2 + 4 + 1
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


def test_a_note_is_written_below_its_array(mesh_2x4):
    arrays = {name: ((8, 8), NamedSharding(mesh_2x4, P())) for name in "wh"}
    figure = layout(arrays, notes={"h": "summed\nforward"})
    (array, note) = (text for text in figure.axes[0].texts if text.get_text() in ("h  [8, 8]", "summed\nforward"))
    assert (array.get_position()[0], "h") == (note.get_position()[0], array.get_text()[0])
    assert note.get_position()[1] < min(tile.get_y() for tile in patches(figure, Rectangle))
    assert "below h: summed forward" in alt_text(figure)


def test_scalars_and_more_dimensions_can_be_drawn(mesh_2x4):
    shapes = {"n": ((), P()), "w": ((4, 2, 3, 3), P("model"))}
    figure = layout({name: (shape, NamedSharding(mesh_2x4, spec)) for name, (shape, spec) in shapes.items()})
    assert len(patches(figure, Rectangle)) == 1 + 4


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_ring_has_one_sum_on_each_device_after_a_round_and_all_after_two(devices):
    rounds = [0, devices - 1, 2 * (devices - 1)]
    figure = ring_all_reduce(devices, rounds)
    complete = texts(figure).count(str(devices))
    assert complete == devices + devices**2
    description = ", ".join(
        f"after {steps}: {count}" for steps, count in zip(rounds, (0, devices, devices**2), strict=True)
    )
    assert description in alt_text(figure)
    check_texts(figure)
