"""The libraries' convolutions as zero-argument calls: what our kernels are compared with.

The arguments are those of `mlhood.kernels.conv.direct`, with one number for stride and for padding.
"""

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


def torch_blocked(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, stride: int = 1, padding: int = 0
) -> Callable[[], DeferredArray]:
    """Return a call of torch's convolution between tensors in the layouts of oneDNN, with torch's own threads.

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
            result = torch.nn.functional.conv2d(image, weights, bias_tensor, stride, padding)
        return DeferredArray(lambda: result.to_dense().numpy())

    return call


def onnx_runtime(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, stride: int = 1, padding: int = 0, *, threads: int = 1
) -> Callable[[], Any]:
    """Return a call of ONNX Runtime's convolution with constant weights."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    constants = {"w": w} if bias is None else {"w": w, "b": bias}
    node = helper.make_node("Conv", ["x", *constants], ["y"], strides=[stride] * 2, pads=[padding] * 4)
    declared = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("y", None))]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "convolution", declared[:1], declared[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(model, session_options(threads), providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0]
