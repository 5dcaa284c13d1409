"""The claims of P5.3's table about what JAX can fuse, as calls that can be timed from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.timing import TimedCall, TimingClaim
from mlhood.grading.projects.p5 import reference
from mlhood.grading.rpc.codec import Remote
from mlhood.jaxlab.operators import network
from mlhood.jaxlab.operators.cases import SIZE as IMAGE
from mlhood.jaxlab.operators.cases import resnet18
from mlhood.measure.ratio import Ratio

PROBES = "mlhood.grading.projects.p5.probes_race:"
CHANNELS, SIZE = 64, 56  # as in the table
CHECKED_CHANNELS = 16  # of a result
REPEATS = 8  # as in the probes
CHECKED_SHARE = 0.3  # of the network's results: checking one takes longer than the network itself


def fused_block(program: Remote, conv2d: Remote, batch_norm: Remote, relu: Remote, claimed: Ratio) -> TimingClaim:
    """Compare conv + bn + relu with the notebook's NumPy operators and with JAX.

    Args:
        program: Of the probe `block_program`.
        conv2d: The notebook's operator.
        batch_norm: Likewise.
        relu: Likewise.
        claimed: Ratio No-JAX / JAX in the table.
    """
    slow = _call("own", conv2d, batch_norm, relu)
    fast, ours = _call("compiled", program), _call("reference")
    return TimingClaim("conv + bn + relu, No-JAX over JAX", slow, fast, ours, claimed)


def network_forward(prepared: Remote, operators: Mapping[str, Remote], claimed: Ratio, seed: int) -> TimingClaim:
    """Compare ResNet-18 with the notebook's NumPy operators and with JAX.

    Args:
        prepared: Of the probe `prepared_network` for this seed.
        operators: The notebook's, by name.
        claimed: Ratio No-JAX / JAX in the table.
        seed: Of the weights, which are not known beforehand.
    """
    params = network.tree(resnet18(seed))
    slow = _network_call("own_network", params, prepared, dict(operators))
    fast, ours = (_network_call(name, params, prepared) for name in ("compiled_network", "reference_network"))
    return TimingClaim("ResNet-18, No-JAX over JAX", slow, fast, ours, claimed)


def _network_call(name: str, params: network.Params, *first: Remote | dict[str, Remote]) -> TimedCall:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        return *first, rng.standard_normal((1, 3, IMAGE, IMAGE), np.float32)

    def check(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator) -> None:
        what = f"what ResNet-18 computes while it is timed ({name})"
        got = expect.array(result, (1, 1000), what)
        if rng.random() < CHECKED_SHARE:
            want = network.forward(reference.OPERATORS, params, arguments[-1])
            expect.close(got, want, what, rtol=1e-2, atol=1e-2 * float(np.abs(want).max()))

    return TimedCall(PROBES + name, make, check)


def _call(name: str, *first: Remote) -> TimedCall:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        x = rng.standard_normal((1, CHANNELS, SIZE, SIZE), np.float32)
        w = 0.05 * rng.standard_normal((CHANNELS, CHANNELS, 3, 3), np.float32)
        mean, bias = (rng.standard_normal(CHANNELS, np.float32) for _ in range(2))
        var, weight = (rng.uniform(0.5, 2, CHANNELS).astype(np.float32) for _ in range(2))
        return *first, x, w, mean, var, weight, bias

    def check(arguments: tuple[Any, ...], result: Any, rng: np.random.Generator) -> None:
        x, w, *norm = arguments[len(first) :]
        what = f"what conv + bn + relu computes while it is timed ({name})"
        got = expect.array(result, x.shape, what)
        chosen = rng.choice(CHANNELS, CHECKED_CHANNELS, replace=False)
        convolved = reference.conv2d(x, w[chosen], None, 1, 1)
        want = np.maximum(reference.batch_norm(convolved, *(values[chosen] for values in norm)), 0)
        expect.close(got[:, chosen], want, what, rtol=1e-2, atol=1e-3)

    return TimedCall(PROBES + name, make, check, REPEATS)
