"""The rows of P5's table: both columns compute the same, eagerly and compiled."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.operators.cases import ROWS, cases, resnet18
from mlhood.jaxlab.operators.network import tree
from mlhood.jaxlab.tables import operators_table
from mlhood.measure import compare

SMALL = cases(32)


def test_each_row_has_a_case():
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


def test_the_network_is_resnet18():
    params = tree(resnet18())
    trainable = [leaf.size for path, leaf in jax.tree.leaves_with_path(params) if "running" not in str(path[-1])]
    assert sum(trainable) == 11_689_512


def test_the_table_can_be_filled_and_claims_nothing_about_speed():
    table = operators_table()
    for row in ("conv + bn + relu", "softmax"):
        case = SMALL[row]
        compiled = jax.jit(case.with_jax)
        sides = {"No-JAX": lambda: case.no_jax(*case.arguments), "JAX": lambda: compiled(*case.arguments)}  # noqa: B023
        table.fill(row, compare(sides, shortest=0))
    assert [verdict.state for verdict in table.verdicts()] == ["missing"]
    assert not any("faster" in claim.text for claim in table.claims)


def test_the_operators_without_jax_can_be_replaced():
    calls = []
    operators = {name: getattr(no_jax, name) for name in dir(no_jax) if not name.startswith("_")}
    custom = SimpleNamespace(**operators | {"relu": lambda x: calls.append(x.shape) or np.maximum(x, 0)})
    custom_cases = cases(32, without=custom)
    for row in ("relu", "conv + bn + relu", "ResNet-18"):
        calls.clear()
        case = custom_cases[row]
        assert np.array_equal(case.no_jax(*case.arguments), SMALL[row].no_jax(*SMALL[row].arguments))
        assert calls
