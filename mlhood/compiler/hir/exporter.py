"""Facade: the exporter under the path at which users know it, as `importer` is."""

from mlhood.compiler.onnx.exporter import to_onnx

__all__ = ["to_onnx"]
