"""Values and gradients of functions of trees, by the tape."""

import jax
import numpy as np

from mlhood.jaxlab.autodiff import Tape, TapeValue, backward


def value_and_gradients(function, *trees):
    """Return the value of a function of trees of arrays, and its gradient with respect to each of them."""
    tape = Tape()
    traced = [tape.tree(tree) for tree in trees]
    result = function(*traced)
    gradients = backward(tape)

    def gradient(value):
        return gradients.get(value.number, np.zeros_like(value.array))

    return result.array, *(
        jax.tree.map(gradient, tree, is_leaf=lambda leaf: isinstance(leaf, TapeValue)) for tree in traced
    )
