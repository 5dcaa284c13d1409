"""Facade: the importer under the path that the notebooks use; like `exporter`, it imports the operators."""

from mlhood.compiler.onnx.importer import import_model

__all__ = ["import_model"]
