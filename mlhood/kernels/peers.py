"""The libraries' convolutions and products of bytes, ready to be called: what ours are checked and measured against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.measure import session_options


@dataclass(frozen=True)
class Stored:
    """A result in a layout of its own; NumPy sees it as plain, and only then is it converted.

    Args:
        plain: Returns it as [N, F, OH, OW].
    """

    plain: Callable[[], np.ndarray]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.plain() if dtype is None else self.plain().astype(dtype)


def torch(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, stride: int = 1, padding: int = 0, *, groups: int = 1
) -> Callable[[], Any]:
    """Return a call of torch's convolution (oneDNN on most machines), with torch's own threads.

    Args:
        x: float32 [N, C, H, W].
        w: float32 [F, C / groups, KH, KW].
        bias: float32 [F], or None.
        stride: In both directions.
        padding: Zeros on each side.
        groups: Parts that channels and filters fall into.
    """
    import torch

    image, weights = torch.from_numpy(np.array(x)), torch.from_numpy(np.array(w))
    added = None if bias is None else torch.from_numpy(np.array(bias))

    def call() -> Any:
        with torch.inference_mode():
            return torch.nn.functional.conv2d(image, weights, added, stride, padding, groups=groups)

    return call


def torch_blocked(
    x: np.ndarray, w: np.ndarray, stride: int = 1, padding: int = 0, *, groups: int = 1
) -> Callable[[], Stored]:
    """Return a call of torch's convolution between tensors in oneDNN's own layouts; arguments as for `torch`.

    But for an image of a few channels the input is what a convolution before has left, as it is between two layers.
    """
    import torch

    with torch.inference_mode():
        image, weights = torch.from_numpy(x).to_mkldnn(), torch.from_numpy(w).to_mkldnn()
        if x.shape[1] > 3:
            same = torch.eye(x.shape[1])[:, :, None, None].contiguous()
            image = torch.nn.functional.conv2d(image, same.to_mkldnn())

    def call() -> Stored:
        with torch.inference_mode():
            result = torch.nn.functional.conv2d(image, weights, None, stride, padding, groups=groups)
        return Stored(lambda: result.to_dense().numpy())

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
    """Return a call of ONNX Runtime's convolution, its weights known before; arguments as for `torch`."""
    from onnx import TensorProto, helper

    constants = {"w": w} if bias is None else {"w": w, "b": bias}
    node = helper.make_node("Conv", ["x", *constants], ["y"], strides=[stride] * 2, pads=[padding] * 4, group=groups)
    return _one_operator(node, {"x": x}, constants, TensorProto.FLOAT, threads)


def onnx_integer_product(a: np.ndarray, b: np.ndarray, threads: int = 1) -> Callable[[], Any]:
    """Return a call of ONNX Runtime's MatMulInteger of uint8 [M, K] and int8 [K, N], neither of them constant.

    On x86 processors without VNNI it adds products in pairs with saturation to 16 bits (`vpmaddubsw`): the result is
    exact on every processor only if the elements of a are below 128.
    """
    from onnx import TensorProto, helper

    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    return _one_operator(node, {"a": a, "b": b}, {}, TensorProto.INT32, threads)


def _one_operator(
    node: Any, inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray], kind: int, threads: int
) -> Callable[[], Any]:
    import onnxruntime
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        [node],
        "one operator",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
         for name, array in inputs.items()],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), session_options(threads), providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, inputs)[0]
