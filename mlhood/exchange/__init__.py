"""From torch to ONNX, into tables and onto paper."""

from mlhood.exchange.export import export

__all__ = ["export"]
