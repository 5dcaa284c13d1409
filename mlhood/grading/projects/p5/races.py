"""The claims of P5.3's table about what JAX can fuse, as calls that can be timed from outside.

The side without JAX is the student's code. The other side is the course's program, compiled once, on arrays that are
on the device, as in the table: each of its messages says how often it was traced so far and where its arguments are,
and the first, which compiles, is not timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timing import KEEP
from mlhood.grading.checks.timing_verdict import Course, Prepared, TimedCall, TimingClaim
from mlhood.grading.projects.p3.races import draw_channels
from mlhood.grading.projects.p5 import reference
from mlhood.grading.rpc.codec import Remote
from mlhood.jaxlab.operators import network, no_jax
from mlhood.jaxlab.operators.cases import SIZE as IMAGE
from mlhood.jaxlab.operators.cases import resnet18
from mlhood.jaxlab.operators.layouts import Layout
from mlhood.measure.ratio import Ratio

PROBES = "mlhood.grading.projects.p5.probes_race:"
CHANNELS, SIZE = 64, 56  # as in the table
BLOCKS = 8  # calls of the block in one message: they take longer than the round trip
CHECKED_SHARE = 0.3  # of the network's results: checking one takes longer than the network itself
UNTOUCHED = "leave `jax.jit` and the package's functions as they are"
MOST = 80.0
"""How many times as long the notebook's operators may take as the course's. NumPy's natural styles are far apart: next
to one matrix product, a product per position of the kernel takes 7 times as long and `einsum` on all windows, which
does not call BLAS, 55 times. Being slow gains nothing here, since the faster side is the course's."""


ALLOWANCE = 2.0
"""As of `TimingClaim`. In the table both sides use all cores, and here one: XLA's threads and BLAS's do not gain alike,
and beside other programs threads wait for each other. ResNet-18 with JAX over without, on two cores: 1.24 in the table,
and here 1.16 with one core, 1.38 with both; on a busy machine 0.81 in the table and 1.03 here."""


def fused_block(program: Remote, operators: Mapping[str, Remote], claimed: Ratio, layout: Layout) -> TimingClaim:
    """Compare conv + bn + relu with the notebook's NumPy operators and with JAX.

    Args:
        program: Of the probe `block_program`.
        operators: The notebook's, by name.
        claimed: Ratio No-JAX / JAX in the table.
        layout: That the notebook's operators compute in.
    """
    block = draw_block(np.random.default_rng(0))
    course = Course("conv + bn + relu", partial(network.fused_block, no_jax, *block, padding=1), MOST)
    own = {"operators": dict(operators), "layout": [*layout]}
    slow, fast = _block_call("own", KEEP, own), _block_call("compiled", PROBES + "on_device", program)
    return _oriented("conv + bn + relu", slow, fast, claimed, course)


def network_forward(
    prepared: Remote, operators: Mapping[str, Remote], claimed: Ratio, seed: int, layout: Layout
) -> TimingClaim:
    """Compare ResNet-18 with the notebook's NumPy operators and with JAX.

    Args:
        prepared: Of the probe `prepared_network` for this seed.
        operators: The notebook's, by name.
        claimed: Ratio No-JAX / JAX in the table.
        seed: Of the weights, which are not known beforehand.
        layout: That the notebook's operators compute in.
    """
    params, image = network.tree(resnet18(seed)), _draw_image(np.random.default_rng(0))
    course = Course("ResNet-18", partial(network.forward, no_jax, params, image), MOST)
    own = {"operators": dict(operators), "layout": [*layout]}
    slow = _network_call("own_network", KEEP, params, own, prepared)
    fast = _network_call("compiled_network", PROBES + "on_device", params, prepared)
    return _oriented("ResNet-18", slow, fast, claimed, course)


def _oriented(row: str, no_jax: TimedCall, jax: TimedCall, claimed: Ratio, course: Course) -> TimingClaim:
    """Return the claim that the column which the table has ahead is as much faster; being ahead is no task."""
    if claimed.value >= 1:
        return TimingClaim(f"{row}, No-JAX over JAX", no_jax, jax, claimed, course, ALLOWANCE, directed=False)
    inverse = Ratio(1 / claimed.value, 1 / claimed.high, 1 / claimed.low)
    return TimingClaim(f"{row}, JAX over No-JAX", jax, no_jax, inverse, None, ALLOWANCE, directed=False)


def draw_block(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Draw an image, weights, mean, variance, scale and offset of a block."""
    x = rng.standard_normal((1, CHANNELS, SIZE, SIZE), np.float32)
    w = 0.05 * rng.standard_normal((CHANNELS, CHANNELS, 3, 3), np.float32)
    mean, bias = (rng.standard_normal(CHANNELS, np.float32) for _ in range(2))
    var, weight = (rng.uniform(0.5, 2, CHANNELS).astype(np.float32) for _ in range(2))
    return x, w, mean, var, weight, bias


def _draw_image(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((1, 3, IMAGE, IMAGE), np.float32)


def _block_call(name: str, place: str, first: Remote | dict[str, Any]) -> TimedCall:
    result_of = _Reports().result if name.startswith("compiled") else lambda answer: answer
    what = f"what conv + bn + relu computes while it is timed ({name})"

    def prepare(submission: Submission, calls: int) -> Prepared:
        x, w, *norm = drawn = draw_block(submission.rng)
        kept, channels = submission.call(place, *drawn), draw_channels(CHANNELS, submission.rng)

        def check(result: Any) -> None:
            convolved = reference.conv2d(x, w[channels], None, 1, 1)
            mean, var, weight, bias = (values[channels] for values in norm)
            want = np.maximum(reference.batch_norm(convolved, mean, var, weight, bias), 0)
            expect.close(result_of(result), want, what, rtol=1e-2, atol=1e-3)

        return Prepared((first, kept, calls, channels), check)

    return TimedCall(PROBES + name, prepare, BLOCKS)


def _network_call(name: str, place: str, params: network.Params, *first: Remote | dict[str, Any]) -> TimedCall:
    result_of = _Reports().result if name.startswith("compiled") else lambda answer: answer
    what = f"what ResNet-18 computes while it is timed ({name})"

    def prepare(submission: Submission, calls: int) -> Prepared:
        image = _draw_image(submission.rng)
        kept, checked = submission.call(place, image), submission.rng.random() < CHECKED_SHARE

        def check(result: Any) -> None:
            got = expect.array(result_of(result), (1, 1000), what)
            if checked:
                want = network.forward(reference.OPERATORS, params, image)
                expect.close(got, want, what, rtol=1e-2, atol=1e-2 * float(np.abs(want).max()))

        return Prepared((*first, kept, calls), check)

    return TimedCall(PROBES + name, prepare)


class _Reports:
    """The reports of JAX's side: the first message may compile, and no other."""

    def __init__(self) -> None:
        self.traces = 0.0

    def result(self, answer: Any) -> Any:
        """Return the result in a report.

        Raises:
            CheckFailed: The program was traced again, or its arguments are not on the device.
        """
        report = expect.mapping(answer, ("result", "traces", "on_device"), "what JAX's side returns")
        before, self.traces = self.traces, expect.number(report["traces"], "how often JAX's side was traced")
        again = self.traces != before if before else self.traces < 1
        got = f"{self.traces:g} traces, and {before:g} before"
        expect.true(not again, "JAX's side is not compiled once", expected="as many as before", got=got, hint=UNTOUCHED)
        expect.true(report["on_device"] is True, "the arguments of JAX's side are not on its device", hint=UNTOUCHED)
        return report["result"]
