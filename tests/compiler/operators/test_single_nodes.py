"""Single nodes against ONNX Runtime, on every target: by ONNX's reference, imported as others, indexing, sampling."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.xla import Xla
from mlhood.compiler.hir.parse import constants_by_digest, parse
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.onnx.exporter import to_onnx
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.onnx_operator import RULES, OnnxOperator
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, agree_single, check_outputs, node_of, session_of, single

RNG = np.random.default_rng(0)


def reals(*shape):
    return RNG.standard_normal(shape, np.float32)


def integers(high, *shape, dtype=np.int64):
    return RNG.integers(0, high, shape, dtype)


X, SQUARES, SIGNAL = reals(3, 4, 5), reals(2, 4, 4), reals(2, 33, 1)
NUMBERS, BITS = integers(3, 6, 2), integers(256, 3, 4, dtype=np.uint8)
BOXES, SCORES = RNG.random((2, 12, 4)).astype(np.float32), RNG.random((2, 3, 12)).astype(np.float32)
LIMITS = [np.array([2]), np.float32([0.3]), np.float32([0.2])]
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
Q, K, V = reals(2, 3, 16), reals(2, 3, 8), reals(2, 3, 6)
STATE, DECAY, BETA = reals(2, 2, 4, 3), reals(2, 3, 2), reals(2, 3, 2)
CACHE, UPDATE = reals(2, 3, 4, 5), reals(2, 3, 2, 5)
POOLED, PLACES = reals(2, 3, 4, 3), np.arange(72).reshape(2, 3, 4, 3) * 4 + 1
HANNING = np.hanning(9).astype(np.float32)
WINDOW, ONE = {"kernel_shape": [2, 2], "strides": [2, 2]}, np.array(1)

# Beside ONNX's node tests: the operator, its inputs (None for one left out; a list: constants from there on), its
# attributes, the opset, and the number of outputs.
CASES = [
    *[("Det", [x], {}, 11) for x in (SQUARES, SQUARES[0], reals(2, 0, 2, 2))],
    *[("LpNormalization", [np.zeros((2, 3), np.float32)], {"p": p}, 20) for p in (1, 2)],
    *[("CumSum", [NUMBERS, [ONE]], {"exclusive": e, "reverse": r}, 14) for e in (0, 1) for r in (0, 1)],
    ("CumProd", [X, [ONE]], {"exclusive": 1}, 26),
    ("EyeLike", [X[0]], {"dtype": TensorProto.INT64}, 20),
    ("Trilu", [X, np.array(-1)], {}, 14),
    ("Hardmax", [np.round(X)], {"axis": 1}, 13),
    ("ReverseSequence", [reals(4, 4, 3), np.array([4, 1, 3, 2])], {}, 20),
    *[("OneHot", [NUMBERS - 1, [np.array(2), np.array([0, 1])]], {"axis": axis}, 11) for axis in (-1, 0)],
    ("OneHot", [np.float32([0, 4, 2]), [np.float32([6]), np.float32([2, 1])]], {}, 11),
    *[("NonZero", [x], {}, 13) for x in (NUMBERS > 1, X, reals(0, 3))],
    ("NonZero", [[NUMBERS]], {}, 13),
    ("Compress", [X[0], [np.array([False, True])]], {"axis": 0}, 11),
    ("Unique", [NUMBERS], {"sorted": 0}, 11, 4),
    ("Unique", [integers(5, 20)], {"sorted": 0, "axis": 0}, 11, 1),
    *[("NonMaxSuppression", [BOXES, SCORES, *LIMITS], {"center_point_box": center}, 11) for center in (0, 1)],
    ("NonMaxSuppression", [BOXES, SCORES, LIMITS], {}, 11),
    ("BitShift", [BITS, BITS % 9], {"direction": "LEFT"}, 11),
    ("DeformConv", [reals(1, 2, 3, 3), reals(1, 2, 2, 2), reals(1, 8, 2, 2)], {}, 19),
    *[("DFT", [reals(3, 8, 6, n), None, [np.array(a)]], {"inverse": n - 1}, 20) for n in (1, 2) for a in (0, -2)],
    *[("DFT", [X[..., None], [np.array(n), ONE]], {"onesided": 1}, 20) for n in (5, 11)],
    ("DFT", [X[..., None]], {"axis": 1, "onesided": 1}, 17),
    *[("STFT", [SIGNAL, [np.array(4), *rest]], {}, 17) for rest in ([HANNING], [None, ONE * 9])],
    ("STFT", [reals(2, 33, 2), [np.array(4), np.ones(9, np.float32), ONE * 9]], {"onesided": 0}, 17),
    ("TensorScatter", [CACHE, UPDATE, np.array([3, 1])], {"mode": "circular"}, 24),
    ("LinearAttention", [Q, K, V, STATE, DECAY, BETA], HEADS, 27, 2),
    ("LpPool", [reals(2, 3, 8, 9)], {"kernel_shape": [3, 2], "p": 1, "pads": [1, 0, 0, 1]}, 18),
    ("LpPool", [reals(2, 3, 8, 9)], {"kernel_shape": [2, 2], "strides": [2, 2], "dilations": [2, 3]}, 18),
    ("LpPool", [reals(2, 3, 8, 9)], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}, 18),
    ("Col2Im", [reals(2, 12, 20), [np.array([6, 6]), np.array([2, 2])]], {"dilations": [1, 2]}, 18),
    ("MaxUnpool", [POOLED, PLACES, [np.array([2, 3, 8, 6])]], WINDOW, 11),
    *[(name, [[np.array(9)]], {"periodic": 0}, 17) for name in ("HannWindow", "HammingWindow", "BlackmanWindow")],
    ("GroupNormalization", [reals(2, 6, 4), reals(6), reals(6)], {"num_groups": 3, "epsilon": 0.01}, 21),
    ("Swish", [X], {"alpha": 1.7}, 24),
    ("Mish", [X], {}, 18),
]


TENSOR, IMAGES, VOLUMES, GRID = (
    3 * reals(*shape) for shape in ((3, 4, 5), (2, 3, 4, 5), (2, 1, 3, 4, 5), (2, 6, 7, 2))
)
SPECIAL = np.array([[-np.inf, np.inf, np.nan, -0.0, -3, -1, -0.7, -0.5, 0.2, 0.5, 1, 1.2, 4]], np.float32)
REGIONS = np.array([[0, 0, 9, 7], [3, 2, 5.5, 6], [-4, 1, 20, 30], [4, 4, 4, 4], [50, 50, 60, 60]], np.float32)
TRIGONOMETRY = ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan")
PADDINGS = ("zeros", "border", "reflection")

CASES += [
    *[(f"Bitwise{name}", [BITS, BITS.T.copy().reshape(3, 4)], {}, 18) for name in ("And", "Or", "Xor")],
    ("BitwiseNot", [BITS], {}, 18),
    ("Einsum", [reals(2, 3, 4), reals(2, 4, 5)], {"equation": "bij,bjk->bik"}, 12),
    ("Einsum", [reals(2, 3, 4), reals(3, 5)], {"equation": "...ij, ik"}, 12),
    *[
        ("GatherElements", [x, integers(3, *shape, dtype=np.int32)], {}, 13)
        for x, shape in ((TENSOR, (7, 3, 4)), (TENSOR[0], (0, 4)))
    ],
    ("GatherND", [TENSOR, integers(3, 0, 2)], {}, 13),
    ("GatherND", [reals(3, 3, 5), integers(6, 3, 3, 2, 1) - 3], {"batch_dims": 2}, 13),
    ("ScatterND", [reals(3, 4), np.zeros((0, 1), np.int64), reals(0, 4)], {}, 18),
    ("DepthToSpace", [reals(0, 4, 2, 2)], {"blocksize": 2}, 13),
    *[
        ("GridSample", [IMAGES, GRID], {"mode": mode, "padding_mode": padding, "align_corners": aligned}, opset)
        for opset, modes in ((16, ("bicubic",)), (20, ("linear", "nearest", "cubic")))
        for mode in modes
        for padding in PADDINGS
        for aligned in (0, 1)
    ],
    *[
        ("GridSample", [VOLUMES, reals(2, 2, 3, 4, 3)], {"mode": mode, "padding_mode": padding}, 20)
        for mode in ("linear", "nearest")
        for padding in PADDINGS
    ],
    ("GridSample", [IMAGES, GRID[:, :0]], {}, 16),
    *[
        (
            "RoiAlign",
            [reals(2, 3, 8, 10), REGIONS, np.array([0, 1, 1, 0, 1])],
            {
                "output_height": 2,
                "output_width": 3,
                "spatial_scale": 0.75,
                "sampling_ratio": samples,
                "mode": mode,
                "coordinate_transformation_mode": pixels,
            },
            16,
        )
        for mode in ("avg", "max")
        for samples in (0, 2)
        for pixels in ("half_pixel", "output_half_pixel")
    ],
    ("RoiAlign", [reals(2, 3, 8, 10), REGIONS, np.array([0, 1, 1, 0, 1])], {"output_height": 2, "output_width": 2}, 10),
    *[(name, [SPECIAL], {}, 20) for name in TRIGONOMETRY],
    ("ThresholdedRelu", [SPECIAL], {"alpha": 0.4}, 10),
    ("Shrink", [np.arange(-4, 5)], {"lambd": 1.5, "bias": 1.0}, 20),
    ("Celu", [SPECIAL], {"alpha": 2.5}, 12),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_it_computes_what_onnx_runtime_does(case):
    name, opset = case[0], case[3]
    model, inputs = node_of(*case)
    open_axes = name not in ("Col2Im", "DeformConv", "GatherND", "STFT")  # lengths must be known
    old_grid = name == "GridSample" and opset < 20  # its modes have other names
    atol = 1e-4 if name in (*OnnxOperator.onnx, *RULES, "LpNormalization") else 1e-5
    agree(model, inputs, open_axes=open_axes, exported=opset <= 23, export_opset=18 if old_grid else 21, atol=atol)
    graph = import_model(model)
    assert to_text(parse(to_text(graph), constants_by_digest(graph))) == to_text(graph)
    lengths = {axis for value in graph.values() for axis in value.type.shape}
    if name != "GridSample" and all(isinstance(axis, int) for axis in lengths):
        check_outputs(Xla(graph).run(inputs), session_of(model).run(None, inputs), {"atol": 1e-4}, "xla")


def test_every_operator_that_it_imports_has_a_case():
    unknown = {"CausalConvWithState"}  # to ONNX Runtime; ONNX's node tests have it
    assert set(OnnxOperator.onnx) - unknown <= {case[0] for case in CASES}


def test_lengths_that_do_not_depend_on_data_keep_their_names():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> test (float[n, m, 2] x) => (float[a, b, c] y, int64[d, e] i) '
        "{ k = Constant<value = int64 {1}> () t = Trilu(x, k) y = CumSum(t, k) i = NonZero(y) }"
    )
    graph = import_model(model)
    assert graph.outputs["y"].type.shape == ("n", "m", 2)
    assert graph.outputs["i"].type.shape == (3, "i.axis0")


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("Det", [np.ones((2, 3), np.float32)], {}, "do not fit"),
        ("Det", [np.ones((2, 2), np.int64)], {}, "unsupported type"),
        ("Hardmax", [np.ones((2, 2), np.float32)], {"axis": 2}, "do not fit"),
        ("BitShift", [BITS, BITS.astype(np.uint16)], {"direction": "LEFT"}, "inconsistent type"),
        ("DFT", [np.ones((1, 8, 1), np.float32), [np.array(2**60), ONE]], {}, "too large"),
        ("OneHot", [NUMBERS, [np.array(-1), np.array([0, 1])]], {}, "cannot be negative"),
        ("Unique", [NUMBERS], {"axis": 0, "sorted": 0}, "in order of appearance"),
        ("HannWindow", [[np.array(2**40)]], {}, "larger constants"),
        ("DepthToSpace", [reals(1, 6, 2, 2)], {"blocksize": 2}, "multiple"),
        ("SpaceToDepth", [reals(1, 6, 3, 2)], {"blocksize": 2}, "multiple"),
        ("Tan", [np.arange(3)], {}, "floating-point"),
    ],
)
def test_invalid_nodes_are_refused(op_type, inputs, attributes, message):
    model, _ = node_of(op_type, inputs, attributes, 20)
    with pytest.raises(CompilerError, match=message):
        import_model(model)


def test_an_error_of_the_reference_names_the_node():
    model, inputs = node_of("MaxUnpool", [POOLED, PLACES + 288], WINDOW, 11)
    with pytest.raises(CompilerError, match="out of range") as caught:
        Interpreter(import_model(model)).run(inputs)
    assert "y0" in caught.value.parts["where"]


def test_a_node_is_not_exported_to_an_opset_that_does_not_have_it():
    graph = import_model(node_of("TensorScatter", [CACHE, UPDATE], {}, 24)[0])
    with pytest.raises(CompilerError, match="does not have the operator"):
        to_onnx(graph)


# -- pixels, sizes and regions


def test_space_to_depth_with_channels_first():
    wanted = torch.nn.functional.pixel_unshuffle(torch.from_numpy(x := reals(2, 3, 4, 6)), 2).numpy()
    attributes = {"blocksize": 2, "mode": "CRD"}
    agree_single("SpaceToDepth", {"x": x}, opset=28, attributes=attributes, wanted=[wanted], open_axes=False)


def resize(x, *, roi=None, scales=None, sizes=None, **attributes):
    inputs = {"x": x, "roi": roi, "scales": scales, "sizes": sizes}
    inputs = {name: array if array is None else np.asarray(array) for name, array in inputs.items()}
    given = [name for name in ("roi", "scales", "sizes") if inputs[name] is not None]
    agree_single("Resize", inputs, opset=18, constants=given, attributes=attributes, open_axes=scales is not None)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("factor", [0.3, 0.6, 1.7])
def test_antialias(mode, factor):
    resize(reals(1, 2, 11, 13), scales=np.float32([1, 1, factor, factor]), mode=mode, antialias=1)
    resize(reals(1, 2, 11, 13), sizes=[1, 2, round(11 * factor), 9], mode=mode, antialias=1)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_aspect_ratio(policy, mode):
    options = {"mode": mode, "keep_aspect_ratio_policy": policy, "axes": [2, 3]}
    resize(reals(1, 2, 5, 7), sizes=[9, 8], **options)
    resize(reals(1, 2, 9, 8), sizes=[5, 7], **options)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("region", [(0.1, 0.2, 0.8, 0.9), (-0.3, 0.2, 1.4, 0.7)])
def test_crop(mode, region):
    top, left, bottom, right = region
    roi = np.float32([0, 0, top, left, 1, 1, bottom, right])
    options = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0, "mode": mode}
    resize(reals(1, 2, 6, 7), roi=roi, sizes=[1, 2, 5, 4], **options)


# -- what is refused


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("GatherElements", {"x": reals(3, 4), "i": np.array([[3]])}),
        ("ScatterElements", {"x": reals(3, 4), "i": np.array([[-4]]), "u": reals(1, 1)}),
        ("ScatterND", {"x": reals(3, 4), "i": np.array([[0, 4]]), "u": reals(1)}),
    ],
)
def test_an_index_out_of_range_is_an_error(name, inputs):
    with pytest.raises(CompilerError, match="out of range"):
        Interpreter(import_model(single(name, inputs, opset=18))).run(inputs)
