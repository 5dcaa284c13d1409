"""The picture of fused attention: its blocks are those that the kernel visits, its factors those of the count."""

import pytest
from matplotlib.patches import Rectangle

from mlhood.errors import XlaError
from mlhood.jaxlab.pallas.pallas_figures import fused_attention
from mlhood.jaxlab.pallas.traffic import traffic
from mlhood.plotting.alt_text import alt_text


def test_blocks_left_of_the_diagonal_are_computed():
    figure = fused_attention(128, block_q=32, block_k=32, lengths=(128,))
    drawn = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    computed = {(patch.get_y() // 32, patch.get_x() // 32) for patch in drawn if not patch.get_hatch()}
    assert len(drawn) == 16
    assert computed == {(row, column) for row in range(4) for column in range(row + 1)}
    assert "computes 10 of 16 blocks" in alt_text(figure)


def test_bars_are_the_counted_bytes():
    figure = fused_attention(lengths=(256, 1024))
    heights = [bar.get_height() for bar in figure.axes[1].patches]
    counted = [traffic(length, length, 64) for length in (256, 1024)]
    assert heights == [each.unfused / 1e6 for each in counted] + [each.fused / 1e6 for each in counted]
    assert f"1024 keys {counted[1].factor:.1f} times" in alt_text(figure).replace(": ", " ")


def test_blocks_are_checked():
    with pytest.raises(XlaError, match="invalid block_k"):
        fused_attention(block_k=48)
