"""The libraries of P1's tasks. The course's own networks, exports and tables, which would solve them, are not there."""

from __future__ import annotations

from mlhood.grading.bare.libraries import Libraries

TORCH_AND_ONNX = Libraries(
    packages=("numpy", "torch", "onnx", "onnxscript", "onnxruntime", "pandas"),
    modules=("mlhood.exchange",),
    without=(
        "mlhood.exchange.export.export",
        *(f"mlhood.exchange.{name}" for name in ("lenet", "render", "view")),
    ),
)
