"""Checks of P4.6's function for convolutions: of its results, and of how these change as parts of the package do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.dataflow.sliced.sliced import sliced_problem
from mlhood.dataflow.slicing.problem import ORDERS, Order, possible
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import points
from mlhood.grading.projects.p4.nests import PROBES
from mlhood.grading.variants.parameter import Parameter
from mlhood.kernels.conv import CONV2D
from mlhood.kernels.geometry import Geometry, geometry

# how `sliced_kernel` knows which convolutions run in slices: that they are 3x3, or a further argument
SLICED_BY = Parameter("sliced_by", ("3x3", "sizes", "strides", "windows"))
NAMES = ("k1", "k2", "k3")
Triple = tuple[int, int, int]
MODES = ("plain", "sliced", "packed")
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
    """What the student's `sliced_kernel` did with a layer, `ROUNDS` times (see `probes.convolved`).

    Args:
        layer: The layer.
        order: An argument of `sliced_kernel`.
        given: The call in words.
        rounds: Of each round the results of the package as it is, with coded slices, and with scaled weights.
        code: Of the slices in which the layer is to run; 1 if there are none.
        slices: These in words.
        factor: Of the weights, as they are packed the first time.
    """

    layer: dict[str, Any]
    order: Order
    given: str
    rounds: list[tuple[Any, Any, Any]]
    code: float
    slices: str
    factor: float


def _convolved(submission: Submission) -> list[Convolved]:
    def convolve() -> list[Convolved]:
        k1, k2, k3 = tiles = tuple(int(size) for size in submission.rng.permutation([2, 3, 5]))
        layers, call = _draw_layers(submission, ROUNDS), ((k1, k2, k3), _draw_asked(submission))
        codes: dict[str, float] = dict(zip((*ORDERS, *NAMES), submission.rng.uniform(1, 2, 5).tolist(), strict=True))
        factors, found = submission.rng.uniform(2, 4, 20 * len(layers)).tolist(), []
        for order in ORDERS:
            with expect.case(f"{_call_text(order, call)}, whose result convolves {len(layers)} layers"):
                arguments = order, list(tiles), layers, ROUNDS, codes, factors, *call[1][order]
                report = submission.probe(PROBES + "convolved", "sliced_kernel", *arguments, keys=(*MODES, "broken"))
            for j, layer in enumerate(layers):
                code, slices = 1.0, "no slices: a direct convolution"
                if _is_sliced(submission, layer, call[1][order]):
                    want = possible(sliced_problem(_geometry(layer)), order, (k1, k2, k3)).tiles
                    code = codes[order] + sum(codes[name] * size for name, size in zip(NAMES, want, strict=True))
                    slices = f"{order} {want}"
                rounds = [tuple(report[mode][i][j] for mode in MODES) for i in range(ROUNDS)]
                given = _layer_text(layer, order, call)
                found.append(Convolved(layer, order, given, rounds, code, slices, factors[j]))
        return found

    return submission.once("convolved", convolve)


def _call_text(order: Order, call: Call) -> str:
    tiles, asked = call
    return f"sliced_kernel({', '.join(map(repr, [order, tiles, *asked[order]]))})"


def _layer_text(layer: dict[str, Any], order: Order, call: Call) -> str:
    x, w = layer["images"][0].shape, layer["w"].shape
    return f"{_call_text(order, call)}; x {x}, w {w}, stride {layer['stride']}, padding {layer['padding']}"


def _check_result(result: Any, x: np.ndarray, layer: dict[str, Any]) -> None:
    want = CONV2D["direct"](x, layer["w"], layer["bias"], layer["stride"], layer["padding"])
    what = "what the function of `sliced_kernel` returns"
    expect.close(result, want, what, rtol=1e-3, atol=1e-4, dtype=np.float32)


@points(3)
def convolutions_are_right(submission: Submission) -> None:
    """The function that `sliced_kernel` returns convolves layers of any kernel, stride and weights."""
    hint = "two layers of the same shapes have different weights, and a result must not be overwritten by the next call"
    for each in _convolved(submission):
        with expect.case(each.given, hint):
            for x, (result, *_) in zip(each.layer["images"], each.rounds, strict=True):
                _check_result(result, x, each.layer)
    hint = "what is prepared for images of one size does not fit others: both the weights and the size decide"
    call, layer = ((2, 3, 5), _draw_asked(submission)), _draw_layers(submission, 1)[0]
    layer["images"].append(np.ascontiguousarray(layer["images"][0][..., :-2, :-3]))
    for order in ORDERS:
        with expect.case(f"{_layer_text(layer, order, call)}; then a smaller x", hint):
            asked = call[1][order]
            results = submission.probe(PROBES + "resized", "sliced_kernel", order, list(call[0]), layer, *asked)
            for x, result in zip(layer["images"], results, strict=True):
                _check_result(result, x, layer)


@points(2)
def three_by_three_layers_are_sliced(submission: Submission) -> None:
    """The function that `sliced_kernel` returns runs every {{ "3x3 convolution" if sliced_by == "3x3" else \
    "convolution that %s asks for"|format("`" ~ sliced_by ~ "`") }} in these slices, and no other one.
    """
    # The package's sliced convolution is replaced by one whose results are times a number that tells its slices apart.
    for each in _convolved(submission):
        for plain, coded, _ in each.rounds:
            what = "the function of `sliced_kernel` runs other slices than it should"
            hint = "`possible` makes a slicing of tiles that may be too large; which layers need it?"
            right = _is_times(coded, plain, each.code)
            expect.true(right, what, expected=each.slices, given=each.given, hint=hint)


def _is_times(result: object, plain: object, factor: float) -> bool:
    """Whether a result is so many times another one, which is not 0."""
    if not isinstance(plain, np.ndarray) or plain.dtype.kind != "f" or not plain.any():
        return False
    return expect.holds(expect.close, result, np.float64(factor) * plain, "", rtol=1e-3, atol=1e-3)


@points(2)
def weights_are_packed_once(submission: Submission) -> None:
    """The function that `sliced_kernel` returns packs the weights of a layer at its first call, and never again."""
    # What is packed is times another factor each time, and so is the difference between the results of two images.
    what, expected = "the function of `sliced_kernel` packs weights again", "once for each layer, in order"
    hint = "keep what is prepared for a layer; what tells this layer's calls from those of another one?"
    for each in _convolved(submission):
        (first, _, scaled), *_, (last, _, scaled_last) = each.rounds
        with expect.case(each.given, hint):
            change, want = _difference(scaled, scaled_last), _difference(first, last)
            expect.true(_is_times(change, want, each.factor), what, expected=expected)


def _difference(first: object, last: object) -> np.ndarray:
    what = "the results of the function that `sliced_kernel` returns"
    shape = first.shape if isinstance(first, np.ndarray) else ()
    return expect.array(last, shape, what) - expect.array(first, shape, what)
