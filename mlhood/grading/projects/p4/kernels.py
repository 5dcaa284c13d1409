"""Checks of P4.6's function for convolutions: of its results, and of how these change as parts of the package do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.dataflow.sliced.sliced import sliced_problem
from mlhood.dataflow.slicing.problem import ORDERS, Order, possible
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission, check_rules
from mlhood.grading.checks.task import points
from mlhood.grading.projects.p4.nests import PROBES
from mlhood.grading.variants.parameter import Parameter
from mlhood.kernels.conv import CONV2D
from mlhood.kernels.geometry import Geometry, geometry

# how `sliced_kernel` knows which convolutions run in slices: that they are 3x3, or a further argument
SLICED_BY = Parameter("sliced_by", ("3x3", "sizes", "strides", "windows"))
NAMES = ("k1", "k2", "k3")
Triple = tuple[int, int, int]
ROUNDS = 2  # of the layers that `sliced_kernel` convolves


def _draw_layers(submission: Submission, rounds: int) -> list[dict[str, Any]]:
    """Draw layers with an image for each round: 3x3 ones of either stride, two of the same shapes, and others.

    Some of the others are as high, as wide or as large as these. The first weights of all are equal.
    """
    rng, layers = submission.rng, []
    square = ((3, 1, 1), (3, 1, 1), (3, 2, 1), (3, 1, 0), (1, 1, 0), (1, 2, 1), (5, 1, 2))  # kernel, stride, padding
    oblong = (((3, 1), 1, 1), ((1, 3), 1, 0), ((1, 9), 1, 0))
    channels, filters, height, width = 12, 20, int(rng.integers(9, 13)), int(rng.integers(14, 18))
    for kernel, stride, padding in (*(((size, size), *steps) for size, *steps in square), *oblong):
        w = submission.normal(filters, channels, *kernel)
        w[0, 0, 0, 0] = 1
        images = submission.normal(rounds, 2, channels, height, width)
        arrays = {"images": list(images), "w": w, "bias": submission.normal(filters)}
        layers.append({**arrays, "stride": stride, "padding": padding})
    return layers


def _draw_asked(submission: Submission) -> dict[Order, list[Any]]:
    """Draw the further argument of `sliced_kernel`, if there is one: another one for each order."""
    choices = {
        "sizes": [(5,), (1, 3), (1, 5), (3, 5)],
        "strides": [(1,), (2,)],
        "windows": [20, 80],  # fewer than a 3x3 layer of stride 2 has here, and more
    }.get(submission.parameters.sliced_by)
    if choices is None:
        return {order: [] for order in ORDERS}
    drawn = submission.rng.permutation(len(choices))[: len(ORDERS)]
    return {order: [choices[int(i)]] for order, i in zip(ORDERS, drawn, strict=True)}


def _is_sliced(submission: Submission, layer: dict[str, Any], asked: list[Any]) -> bool:
    """Whether `sliced_kernel` is to run a layer in slices."""
    rule, kernel = submission.parameters.sliced_by, layer["w"].shape[2:]
    if rule == "sizes":
        return kernel[0] == kernel[1] and kernel[0] in asked[0]
    if rule == "strides":
        return kernel == (3, 3) and layer["stride"] in asked[0]
    if rule == "windows":
        high, wide = _geometry(layer).out
        return kernel == (3, 3) and high * wide >= asked[0]
    return kernel == (3, 3)


def _geometry(layer: dict[str, Any]) -> Geometry:
    return geometry(layer["images"][0].shape, layer["w"].shape, layer["stride"], layer["padding"])


Call = tuple[Triple, dict[Order, list[Any]]]  # the tiles of `sliced_kernel`, and its further argument by order


@dataclass(frozen=True)
class Convolved:
    """What the student's `sliced_kernel` did with layers, `ROUNDS` times (see `probes.convolved`).

    Args:
        layers: See `_draw_layers`.
        call: The other arguments of `sliced_kernel`.
        reports: By order.
        codes: Of the slicings.
        factors: Of the weights, one after another.
    """

    layers: list[dict[str, Any]]
    call: Call
    reports: dict[Order, Any]
    codes: dict[str, float]
    factors: list[float]

    def results(self, order: Order, name: str) -> list[list[Any]]:
        """Return the results of each round, a list with an array for each layer."""
        rounds = self.reports[order][name]
        lists = isinstance(rounds, list) and [isinstance(each, list) and len(each) for each in rounds]
        right = lists == [len(self.layers)] * ROUNDS
        expect.true(right, f"no usable results of `sliced_kernel` for {order}", got=rounds)
        return rounds

    def cases(self, order: Order) -> Iterator[tuple[int, int, dict[str, Any], str]]:
        """Yield the round, the index of the layer, the layer, and what it is in words."""
        for i, (j, layer) in itertools.product(range(ROUNDS), enumerate(self.layers)):
            yield i, j, layer, _layer_text(layer, order, self.call)


def _convolved(submission: Submission) -> Convolved:
    def convolve() -> Convolved:
        k1, k2, k3 = (int(size) for size in submission.rng.permutation([2, 3, 5]))
        layers, call = _draw_layers(submission, ROUNDS), ((k1, k2, k3), _draw_asked(submission))
        codes: dict[str, float] = dict(zip((*ORDERS, *NAMES), submission.rng.uniform(1, 2, 5).tolist(), strict=True))
        factors = submission.rng.uniform(2, 4, 20 * len(layers)).tolist()
        reports = {}
        for order in ORDERS:
            with expect.case(f"{_call_text(order, call)}, whose result convolves {len(layers)} layers"):
                arguments = order, list(call[0]), layers, ROUNDS, codes, factors, *call[1][order]
                report = submission.probe(PROBES + "convolved", "sliced_kernel", *arguments)
                reports[order] = expect.mapping(report, ("plain", "sliced", "packed", "broken"), "the convolutions")
        return Convolved(layers, call, reports, codes, factors)

    return submission.once("convolved", convolve)


def _call_text(order: Order, call: Call) -> str:
    tiles, asked = call
    return f"sliced_kernel({', '.join(map(repr, [order, tiles, *asked[order]]))})"


def _layer_text(layer: dict[str, Any], order: Order, call: Call) -> str:
    x, w = layer["images"][0].shape, layer["w"].shape
    return f"{_call_text(order, call)}; x {x}, w {w}, stride {layer['stride']}, padding {layer['padding']}"


@points(3)
def convolutions_are_right(submission: Submission) -> None:
    """The function that `sliced_kernel` returns convolves layers of any kernel, stride and weights."""
    convolved = _convolved(submission)
    hint = "two layers of the same shapes have different weights, and a result must not be overwritten by the next call"
    for order, report in convolved.reports.items():
        check_rules(report["broken"], "the function that `sliced_kernel` returns")
        results = convolved.results(order, "plain")
        for i, j, layer, given in convolved.cases(order):
            want = CONV2D["direct"](layer["images"][i], layer["w"], layer["bias"], layer["stride"], layer["padding"])
            what = "what the function of `sliced_kernel` returns"
            expect.close(results[i][j], want, what, rtol=1e-3, atol=1e-4, dtype=np.float32, given=given, hint=hint)
        _check_other_size(submission, convolved, order)


def _check_other_size(submission: Submission, convolved: Convolved, order: Order) -> None:
    """Check the results of a layer for an image, and then for a smaller one."""
    (image, _), (tiles, asked), layer = convolved.layers[0]["images"], convolved.call, convolved.layers[0]
    layer = {**layer, "images": [image, np.ascontiguousarray(image[..., :-2, :-3])]}
    hint = "what is prepared for images of one size does not fit others: both the weights and the size decide"
    with expect.case(f"{_layer_text(layer, order, convolved.call)}; then a smaller x", hint):
        results = submission.probe(PROBES + "resized", "sliced_kernel", order, list(tiles), layer, *asked[order])
        for x, result in zip(layer["images"], expect.sequence(results, list, "the convolutions"), strict=True):
            want = CONV2D["direct"](x, layer["w"], layer["bias"], layer["stride"], layer["padding"])
            expect.close(result, want, "what the function of `sliced_kernel` returns", rtol=1e-3, atol=1e-4)


@points(2)
def three_by_three_layers_are_sliced(submission: Submission) -> None:
    """The function that `sliced_kernel` returns runs every {{ "3x3 convolution" if sliced_by == "3x3" else \
    "convolution that %s asks for"|format("`" ~ sliced_by ~ "`") }} in these slices, and no other one.
    """
    # The package's sliced convolution is replaced by one whose results are times a number that tells its slices apart.
    convolved = _convolved(submission)
    tiles, asked = convolved.call
    for order in ORDERS:
        plain, coded = (convolved.results(order, name) for name in ("plain", "sliced"))
        for i, j, layer, given in convolved.cases(order):
            want, code = None, 1.0
            if _is_sliced(submission, layer, asked[order]):
                want = possible(sliced_problem(_geometry(layer)), order, tiles).tiles
                code = convolved.codes[order] + sum(convolved.codes[k] * n for k, n in zip(NAMES, want, strict=True))
            if not _is_times(coded[i][j], plain[i][j], code):
                direct = _is_times(coded[i][j], plain[i][j], 1.0)
                what = "the function of `sliced_kernel` runs other slices than it should"
                expected = f"{order} {want}" if want else "no slices: a direct convolution"
                hint = "`possible` makes a slicing of tiles that may be too large; which layers need it?"
                expect.fail(what, expected=expected, got="no slices" if direct else "others", given=given, hint=hint)


def _is_times(result: object, plain: object, factor: float) -> bool:
    """Whether a result is so many times another one, which is not 0."""
    if not isinstance(plain, np.ndarray) or plain.dtype.kind != "f" or not plain.any():
        return False
    return expect.holds(expect.close, result, np.float64(factor) * plain, "", rtol=1e-3, atol=1e-3)


@points(2)
def weights_are_packed_once(submission: Submission) -> None:
    """The function that `sliced_kernel` returns packs the weights of a layer at its first call, and never again."""
    # What is packed is times another factor each time, and so is the difference between the results of two images.
    convolved = _convolved(submission)
    for order in ORDERS:
        plain, packed = (convolved.results(order, name) for name in ("plain", "packed"))
        for j, layer in enumerate(convolved.layers):
            with expect.case(_layer_text(layer, order, convolved.call)):
                change, want = (_difference(rounds[0][j], rounds[-1][j]) for rounds in (packed, plain))
                what, expected = "the function of `sliced_kernel` packs weights again", "once for each layer, in order"
                hint = "keep what is prepared for a layer; what tells this layer's calls from those of another one?"
                expect.true(_is_times(change, want, convolved.factors[j]), what, expected=expected, hint=hint)


def _difference(first: object, last: object) -> np.ndarray:
    what = "the results of the function that `sliced_kernel` returns"
    shape = first.shape if isinstance(first, np.ndarray) else ()
    return expect.array(last, shape, what) - expect.array(first, shape, what)
