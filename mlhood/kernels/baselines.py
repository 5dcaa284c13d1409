"""The libraries' convolutions and byte products as zero-argument calls: what our kernels are compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.measure import session_options


@dataclass(frozen=True)
class DeferredArray:
    """A result in an internal layout, converted only when NumPy reads it: the conversion is not timed.

    Args:
        convert: Returns it as [N, F, OH, OW].
    """

    convert: Callable[[], np.ndarray]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.convert() if dtype is None else self.convert().astype(dtype)


def torch(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, stride: int = 1, padding: int = 0, *, groups: int = 1
) -> Callable[[], Any]:
    """Return a call of torch's convolution (oneDNN on most machines), with torch's own threads.

    The arguments are those of `mlhood.kernels.conv.direct`, with one number for stride and for padding.
    """
    import torch

    image, weights = torch.from_numpy(np.array(x)), torch.from_numpy(np.array(w))
    bias_tensor = None if bias is None else torch.from_numpy(np.array(bias))

    def call() -> Any:
        with torch.inference_mode():
            return torch.nn.functional.conv2d(image, weights, bias_tensor, stride, padding, groups=groups)

    return call


def torch_blocked(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, stride: int = 1, padding: int = 0, *, groups: int = 1
) -> Callable[[], DeferredArray]:
    """Return a call of torch's convolution between tensors in oneDNN's own layouts; arguments as for `torch`.

    Unless it is an image of a few channels, the input has the layout of another convolution's output, as it has between
    the layers of a network.
    """
    import torch

    with torch.inference_mode():
        image, weights = (torch.from_numpy(np.array(each)).to_mkldnn() for each in (x, w))
        if x.shape[1] > 3:
            identity = torch.eye(x.shape[1])[:, :, None, None].contiguous()
            image = torch.nn.functional.conv2d(image, identity.to_mkldnn())
        bias_tensor = None if bias is None else torch.from_numpy(np.array(bias)).to_mkldnn()

    def call() -> DeferredArray:
        with torch.inference_mode():
            result = torch.nn.functional.conv2d(image, weights, bias_tensor, stride, padding, groups=groups)
        return DeferredArray(lambda: result.to_dense().numpy())

    return call


def onnx_runtime(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    stride: int = 1,
    padding: int = 0,
    *,
    groups: int = 1,
    threads: int = 1,
) -> Callable[[], Any]:
    """Return a call of ONNX Runtime's convolution with constant weights; arguments as for `torch`."""
    from onnx import TensorProto, helper

    constants = {"w": w} if bias is None else {"w": w, "b": bias}
    node = helper.make_node("Conv", ["x", *constants], ["y"], strides=[stride] * 2, pads=[padding] * 4, group=groups)
    return _single_node(node, {"x": x}, constants, TensorProto.FLOAT, threads)


def onnx_integer_product(a: np.ndarray, b: np.ndarray, threads: int = 1) -> Callable[[], Any]:
    """Return a call of ONNX Runtime's MatMulInteger of uint8 [M, K] and int8 [K, N], neither of them constant.

    On x86 processors without VNNI it adds products in pairs with saturation to 16 bits (`vpmaddubsw`): the result is
    exact on every processor only if the elements of a are below 128.
    """
    from onnx import TensorProto, helper

    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    return _single_node(node, {"a": a, "b": b}, {}, TensorProto.INT32, threads)


def _single_node(
    node: Any, inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray], result_type: int, threads: int
) -> Callable[[], Any]:
    import onnxruntime
    from onnx import helper, numpy_helper

    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    result = helper.make_tensor_value_info("y", result_type, None)
    graph = helper.make_graph([node], "single_node", declared, [result], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), session_options(threads), providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, inputs)[0]
