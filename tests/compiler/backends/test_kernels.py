"""Graphs with selectable convolution kernels, on every target against ONNX Runtime and the interpreter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlhood
from mlhood.compiler.backends import kernels
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.kernels import Kernels
from mlhood.compiler.backends.targets import TARGETS
from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.operators.activation import ACTIVATIONS
from mlhood.compiler.operators.convolution import Conv
from mlhood.errors import CompilerError
from mlhood.exchange import run as run_onnxruntime
from mlhood.kernels import CONV2D

FEW = settings(max_examples=40)
FLOAT_TARGETS = [name for name in TARGETS if name != "nmp"]  # which runs integers only: see nmp/test_runner.py
SQUARE = Conv((1, 1), (1, 1, 1, 1), (1, 1), activation=("Relu",))
ACTIVATION_OF = {"Clip": ("Clip", -0.5, 0.5), "LeakyRelu": ("LeakyRelu", 0.1)}
RANDOM = np.random.default_rng(0)


def random(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def single_convolution(operator, x, w, bias=None, *, branch=False, batch="n", constant=True):
    """Return a graph of one convolution, and inputs for it."""
    graph, inputs = Graph(), {"x": x}
    values = [graph.placeholder("x", TensorType(x.dtype.name, (batch, *x.shape[1:])))]
    for name, array in (("w", w), ("bias", bias)):
        if constant or array is None:
            values.append(None if array is None else graph.constant(name, array))
        else:
            values.append(graph.placeholder(name, TensorType(array.dtype.name, array.shape)))
            inputs[name] = array
    if branch:
        y = operator.infer(*(value and value.type for value in values))
        inputs["z"] = random(len(x), *y.shape[1:])
        values.append(graph.placeholder("z", y))
    graph.output(graph.add(operator, *values, name="conv").outputs[0], "y")
    return graph, inputs


def assert_matches_interpreter(graph, inputs, conv2d):
    want = Interpreter(graph).run(inputs)["y"]
    got = Kernels(graph, conv2d).run(inputs)["y"]
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("network", "target"),
    [
        *(("resnet18_onnx", target) for target in ("direct", "cpu")),
        *(("mobilenet_onnx", target) for target in FLOAT_TARGETS if target != "interpreter"),  # cpu/test_cpu.py asks it
    ],
)
def test_a_network_matches_onnx_runtime(network, target, request):
    path = request.getfixturevalue(network)
    compiled = mlhood.compile(path, target=target)
    for batch in (1, 2):
        image = random(batch, 3, 64, 64)
        want = run_onnxruntime(path, image, threads=1)["logits"]
        got = compiled.run(image=image)["logits"]
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


@FEW
@given(data=st.data(), conv2d=st.sampled_from(list(CONV2D)), branch=st.booleans(), constant=st.booleans())
def test_any_convolution_matches_the_interpreter(data, conv2d, branch, constant):
    def pick(*choices):
        return data.draw(st.sampled_from(choices))

    kernel, dilations, group = (pick(1, 2, 3), pick(1, 3)), (pick(1, 2), pick(1, 2)), pick(1, 2)
    name = pick("none", *ACTIVATIONS)
    operator = Conv(
        (pick(1, 2), pick(1, 2)),
        (pick(0, 1), pick(0, 2), pick(0, 1), pick(0, 1)),
        dilations,
        group,
        () if name == "none" else ACTIVATION_OF.get(name, (name,)),
    )
    bias = random(4 * group) if pick(True, False) else None
    x, w = random(pick(1, 2), 2 * group, 7, pick(6, 9)), random(4 * group, 2, *kernel)
    assert_matches_interpreter(*single_convolution(operator, x, w, bias, branch=branch, constant=constant), conv2d)


def test_an_empty_batch():
    graph, inputs = single_convolution(SQUARE, random(0, 2, 5, 5), random(3, 2, 3, 3), branch=True)
    assert Kernels(graph, "direct").run(inputs)["y"].shape == (0, 3, 5, 5)


def test_non_contiguous_inputs():
    graph, inputs = single_convolution(SQUARE, random(2, 4, 6, 5), random(4, 4, 3, 3), branch=True)
    assert_matches_interpreter(graph, {name: np.asfortranarray(array) for name, array in inputs.items()}, "direct")


@pytest.mark.parametrize(
    ("operator", "x", "w"),
    [
        (Conv((1,), (1, 1), (1,)), random(1, 2, 9), random(3, 2, 3)),
        (Conv((1, 1), (0,) * 4, (1, 1)), random(1, 2, 9, 9, dtype=np.float64), random(3, 2, 3, 3, dtype=np.float64)),
    ],
    ids=["one axis", "float64"],
)
def test_other_convolutions_fall_back_to_the_interpreter(operator, x, w):
    graph, inputs = single_convolution(operator, x, w)
    want = Interpreter(graph).run(inputs)["y"]
    np.testing.assert_array_equal(Kernels(graph, fail_if_called).run(inputs)["y"], want)


def fail_if_called(*_):
    raise AssertionError("the function must not be called")


def test_weights_are_packed_at_compile_time_and_once_per_shape(resnet18_onnx, monkeypatch):
    packed = []

    class Counting(kernels.Direct):
        def __init__(self, g, *arguments, **options):
            packed.append(g.images)
            super().__init__(g, *arguments, **options)

    monkeypatch.setattr(kernels, "Direct", Counting)
    compiled = mlhood.compile(resnet18_onnx, target="direct")
    assert packed == [1] * 20
    for batch in (1, 2, 1, 2):
        compiled.run(image=random(batch, 3, 64, 64))
    assert packed == [1] * 20 + [2] * 20


def test_a_network_with_a_custom_function(resnet18_onnx):
    calls = []

    def conv2d(x, w, bias, stride, padding):
        calls.append((x.shape, w.shape, stride, padding))
        assert type(stride) is type(padding) is int
        assert x.flags.c_contiguous
        return CONV2D["im2col_blas"](x, w, bias, stride, padding)

    image = random(1, 3, 64, 64)
    got = mlhood.compile(resnet18_onnx, target=conv2d).run(image=image)["logits"]
    want = run_onnxruntime(resnet18_onnx, image, threads=1)["logits"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())
    assert len(calls) == 20
    assert calls[0] == ((1, 3, 64, 64), (64, 3, 7, 7), 2, 3)


@pytest.mark.parametrize("bias", [None, random(4)], ids=["none", "bias"])
def test_bias_residual_and_activation_with_a_custom_function(bias):
    def conv2d(x, w, bias, stride, padding):
        return CONV2D["naive"](x, w, None, stride, padding) + bias[:, None, None]

    assert_matches_interpreter(
        *single_convolution(SQUARE, random(2, 3, 5, 5), random(4, 3, 3, 3), bias, branch=True), conv2d
    )


@pytest.mark.parametrize(
    "operator",
    [
        Conv((1, 2), (0,) * 4, (1, 1)),
        Conv((1, 1), (0, 1, 0, 1), (1, 1)),
        Conv((1, 1), (0,) * 4, (2, 2)),
        Conv((1, 1), (0,) * 4, (1, 1), 2),
    ],
    ids=["strides", "pads", "dilation", "groups"],
)
def test_a_custom_function_rejects_convolutions_that_it_cannot_express(operator):
    graph, _ = single_convolution(operator, random(1, 4, 9, 9), random(4, 4 // operator.group, 3, 3))
    with pytest.raises(CompilerError, match="cannot express this convolution") as caught:
        Kernels(graph, fail_if_called)
    assert "node 'conv'" in str(caught.value)


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (lambda y: y.tolist(), "list"),
        (lambda y: None, "NoneType"),
        (lambda y: y.astype(np.float64), "float64[1, 4, 5, 5]"),
        (lambda y: y[:, :, 1:-1, 1:-1], "float32[1, 4, 3, 3]"),
        (lambda y: np.concatenate([y, y]), "float32[2, 4, 5, 5]"),
    ],
)
def test_a_custom_functions_result_is_checked(returned, got):
    graph, inputs = single_convolution(SQUARE, random(1, 3, 5, 5), random(4, 3, 3, 3))
    with pytest.raises(CompilerError, match="does not have the type") as caught:
        Kernels(graph, lambda *args: returned(CONV2D["naive"](*args))).run(inputs)
    assert got in str(caught.value)
    assert "float32[1, 4, 5, 5], with stride 1 and padding 1" in str(caught.value)


def test_a_custom_functions_exception_propagates():
    graph, inputs = single_convolution(SQUARE, random(1, 3, 5, 5), random(4, 3, 3, 3))

    def conv2d(x, w, bias, stride, padding):
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        Kernels(graph, conv2d).run(inputs)


def test_weights_are_read_only():
    graph, inputs = single_convolution(SQUARE, random(1, 3, 5, 5), random(4, 3, 3, 3))

    def conv2d(x, w, bias, stride, padding):
        w *= 2
        return CONV2D["naive"](x, w, bias, stride, padding)

    with pytest.raises(ValueError, match="read-only"):
        Kernels(graph, conv2d).run(inputs)


def test_an_unknown_kernel_raises():
    graph, _ = single_convolution(SQUARE, random(1, 3, 5, 5), random(4, 3, 3, 3))
    with pytest.raises(CompilerError, match="unknown convolution kernel"):
        Kernels(graph, "winograd")
