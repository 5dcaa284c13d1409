"""The declaration of P3's table."""

import pytest

from mlhood.kernels.tables import RESNET18, convolution_table
from mlhood.measure import compare


@pytest.mark.parametrize("name", RESNET18)
def test_the_layers_are_those_of_resnet_18(name):
    g = RESNET18[name].geometry
    assert g.flops == 2 * 115_605_504
    assert g.out_shape[1:] == (g.channels, g.height, g.width)


def test_the_table_takes_comparisons_of_all_layers():
    table = convolution_table()
    for row in RESNET18:
        table.fill(row, compare({name: lambda: 1.0 for name in table.columns}, shortest=0))
    assert table.missing == []
    assert table.verdicts()[1].state == "holds"
    assert table.read(table.to_dict()).verdicts() == table.verdicts()
