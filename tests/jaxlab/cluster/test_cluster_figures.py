"""Pictures of parts on devices and of rings: what is drawn, and what is refused."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster import parallel
from mlhood.jaxlab.cluster.collectives import Collective
from mlhood.jaxlab.cluster.sharding_figures import layout, ring


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def drawn(figure, kind):
    figure.canvas.draw()
    return [patch for patch in figure.axes[0].patches if type(patch) is kind]


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_tile_for_each_part_tells_its_devices(of_both, batch):
    params, x, _ = parallel.laid(of_both, *batch)
    figure = layout({"x": x, **params})
    assert len(drawn(figure, Rectangle)) == 2 + 4 + 4 + 4 + 1
    said = words(figure)
    assert said[:3] == ["0-3", "4-7", "x  [16, 16]"]
    assert said[3:8] == ["0,4", "1,5", "2,6", "3,7", "w1  [16, 32]"]
    assert "0-7" in said


def test_the_tiles_of_an_array_cover_it_once(of_both):
    figure = layout({"w": ((8, 8), NamedSharding(of_both, P("model", "data")))})
    tiles = drawn(figure, Rectangle)
    edges = np.array([[*tile.get_xy(), tile.get_width(), tile.get_height()] for tile in tiles])
    whole = np.ptp(np.concatenate([edges[:, :2], edges[:, :2] + edges[:, 2:]]), axis=0)
    assert np.prod(edges[:, 2:], axis=1).sum() == pytest.approx(np.prod(whole))
    assert len({tuple(corner) for corner in edges[:, :2].round(6)}) == 8


def test_numbers_and_more_dimensions_can_be_drawn(of_both):
    figure = layout({"n": ((), NamedSharding(of_both, P())), "w": ((4, 2, 3, 3), NamedSharding(of_both, P("model")))})
    assert len(drawn(figure, Rectangle)) == 1 + 4


def test_a_ring_for_each_group_tells_its_bytes():
    figure = ring(Collective("a", "all-reduce", 400, ((0, 1, 2, 3), (4, 5, 6, 7))))
    assert (len(drawn(figure, Circle)), len(drawn(figure, FancyArrowPatch))) == (8, 8)
    assert "all-reduce of 400 bytes" in words(figure)
    assert "each sends 600 bytes in 6 steps of 100" in words(figure)


def test_a_permutation_is_drawn_as_it_sends():
    figure = ring(Collective("a", "collective-permute", 400, ((0, 1), (1, 2), (2, 3))))
    assert (len(drawn(figure, Circle)), len(drawn(figure, FancyArrowPatch))) == (4, 3)
    assert "each sends 400 bytes, once" in words(figure)


def test_what_cannot_be_drawn_is_refused(of_both):
    with pytest.raises(ClusterError, match="no array"):
        layout({})
    with pytest.raises(ClusterError, match="equal parts"):
        layout({"w": ((3,), NamedSharding(of_both, P("model")))})
    for groups in ((), ((0,), (1,)), (tuple(range(65)),)):
        with pytest.raises(ClusterError, match="cannot be drawn"):
            ring(Collective("a", "all-reduce", 8, groups))
