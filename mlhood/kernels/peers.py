"""The libraries' convolutions, made ready to be called: what ours are checked against and compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.measure import session_options


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
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    constants = {"w": w} if bias is None else {"w": w, "b": bias}
    node = helper.make_node("Conv", ["x", *constants], ["y"], strides=[stride] * 2, pads=[padding] * 4, group=groups)
    graph = helper.make_graph(
        [node],
        "one convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), session_options(threads), providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": x})[0]
