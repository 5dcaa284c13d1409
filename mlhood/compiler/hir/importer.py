"""Facade: the importer under the path that the notebooks use; the one module of `hir` that imports the operators."""

from mlhood.compiler.onnx.importer import import_model

__all__ = ["import_model"]
