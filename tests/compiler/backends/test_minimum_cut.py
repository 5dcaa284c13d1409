"""Minimum cuts, against SciPy's maximum flow."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from mlhood.compiler.backends.minimum_cut import source_side

VERTICES = st.integers(0, 9)


@given(st.dictionaries(st.tuples(VERTICES, VERTICES).filter(lambda edge: edge[0] != edge[1]), st.integers(0, 20)))
def test_the_capacity_of_the_cut_is_the_maximum_flow(edges):
    matrix = np.zeros((10, 10), np.int32)
    for edge, capacity in edges.items():
        matrix[edge] = capacity
    side = source_side(edges, 0, 1)
    assert 0 in side
    assert 1 not in side
    cut = sum(capacity for (start, end), capacity in edges.items() if start in side and end not in side)
    assert cut == maximum_flow(csr_array(matrix), 0, 1).flow_value


def test_of_two_minimum_cuts_the_one_nearer_to_the_source_is_taken():
    assert source_side({(0, 2): 3, (2, 3): 3, (3, 1): 3}, 0, 1) == {0}
    assert source_side({(0, 2): 5, (2, 3): 3, (3, 1): 3}, 0, 1) == {0, 2}
