"""The rows of P5's table: both sides compute the same, eagerly and compiled, and count what they do."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from mlhood.errors import XlaError
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.operators.cases import cases, multiplications, resnet18
from mlhood.jaxlab.operators.network import tree
from mlhood.jaxlab.tables import ROWS, operators_table
from mlhood.measure import compare

SMALL = cases(32)


def test_there_is_one_for_each_row():
    assert tuple(SMALL) == ROWS == operators_table().rows


@pytest.mark.parametrize("row", ROWS)
def test_numpy_jax_and_compiled_jax_agree(row):
    case = SMALL[row]
    expected = case.no_jax(*case.arguments)
    arguments = jax.device_put(case.arguments)
    eager, compiled = case.with_jax(*arguments), jax.jit(case.with_jax)(*arguments)
    assert isinstance(expected, np.ndarray)
    assert expected.dtype == np.float32
    for got in (eager, compiled):
        assert isinstance(got, jax.Array)
        assert np.abs(np.asarray(got) - expected).max() <= 1e-4 * np.abs(expected).max()


def test_the_network_is_resnet18_with_its_published_operations():
    params = tree(resnet18())
    learned = [leaf.size for path, leaf in jax.tree.leaves_with_path(params) if "running" not in str(path[-1])]
    assert sum(learned) == 11_689_512
    assert multiplications(params, (1, 3, 224, 224)) == 2 * 1_814_073_344  # as counted for torchvision's


def test_the_table_can_be_filled_and_what_is_claimed_is_judged():
    table = operators_table()
    for row in ("conv + bn + relu", "softmax"):
        case = SMALL[row]
        compiled = jax.jit(case.with_jax)
        sides = {"No-JAX": lambda: case.no_jax(*case.arguments), "JAX": lambda: compiled(*case.arguments)}  # noqa: B023
        table.fill(row, compare(sides, shortest=0))
    assert [verdict.state for verdict in table.verdicts()][::2] == ["missing", "missing"]
    assert table.verdicts()[1].state != "missing"


def test_an_image_that_vanishes_is_refused():
    with pytest.raises(XlaError, match="five times"):
        cases(31)


def test_other_operators_can_take_the_side_without_jax():
    called = []
    operators = {name: getattr(no_jax, name) for name in dir(no_jax) if not name.startswith("_")}
    mine = SimpleNamespace(**operators | {"relu": lambda x: called.append(x.shape) or np.maximum(x, 0)})
    found = cases(32, without=mine)
    for row in ("relu", "conv + bn + relu", "ResNet-18"):
        called.clear()
        case = found[row]
        assert np.array_equal(case.no_jax(*case.arguments), SMALL[row].no_jax(*SMALL[row].arguments))
        assert called
