"""The choice of slicings by their estimated cycles."""

import numpy as np
import pytest

from mlhood.compiler.backends.nmp.codegen.search import _smallest


@pytest.mark.parametrize("count", [0, 1, 7, 99, 100, 1000])
def test_the_smallest_are_those_of_a_stable_sort(count):
    rng = np.random.default_rng(count)
    values = rng.integers(0, 20, 100).astype(float)
    values[rng.random(100) < 0.3] = np.inf
    assert _smallest(values, count).tolist() == np.argsort(values, kind="stable")[:count].tolist()
