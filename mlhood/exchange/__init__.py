"""From torch to ONNX, into tables and onto paper."""

from mlhood.exchange.export import export
from mlhood.exchange.inspect import node_table, operator_counts
from mlhood.exchange.load import load
from mlhood.exchange.run import run

__all__ = ["export", "load", "node_table", "operator_counts", "run"]
