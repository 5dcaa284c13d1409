"""What the table of P5.3 claims of operators that can be fused, as calls that can be timed from outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading import expect
from mlhood.grading.clock import Race, Timed
from mlhood.grading.projects.p5 import reference
from mlhood.grading.wire import Remote
from mlhood.measure.ratio import Ratio

PROBES = "mlhood.grading.projects.p5.probes_race:"
CHANNELS, SIZE = 64, 56  # as in the table
SOME = 16  # channels of a result that are looked at


def fused(conv2d: Remote, batch_norm: Remote, relu: Remote, told: Ratio) -> Race:
    """The notebook's operators in NumPy against JAX.

    Args:
        conv2d: The notebook's, as are the others.
        batch_norm: Likewise.
        relu: Likewise.
        told: No-JAX over JAX as the table has it.
    """
    slow = _call("own", conv2d, batch_norm, relu)
    return Race("conv + bn + relu, No-JAX over JAX", slow, _call("compiled"), _call("reference"), told)


def _call(name: str, *operators: Remote) -> Timed:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        x = rng.standard_normal((1, CHANNELS, SIZE, SIZE), np.float32)
        w = 0.05 * rng.standard_normal((CHANNELS, CHANNELS, 3, 3), np.float32)
        mean, bias = (rng.standard_normal(CHANNELS, np.float32) for _ in range(2))
        var, weight = (rng.uniform(0.5, 2, CHANNELS).astype(np.float32) for _ in range(2))
        return *operators, x, w, mean, var, weight, bias

    def check(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator) -> None:
        x, w, *norm = arguments[len(operators) :]
        what = f"what conv + bn + relu computes while it is timed ({name})"
        got = expect.array(result, x.shape, what)
        drawn = rng.choice(CHANNELS, SOME, replace=False)
        plain = reference.conv2d(x, w[drawn], None, 1, 1)
        want = np.maximum(reference.batch_norm(plain, *(one[drawn] for one in norm)), 0)
        expect.close(got[:, drawn], want, what, rtol=1e-2, atol=1e-3)

    return Timed(PROBES + name, make, check)
