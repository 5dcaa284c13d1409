"""From torch to ONNX, into tables and onto paper."""

from mlhood.exchange.browser import find_browser
from mlhood.exchange.export import export, silence
from mlhood.exchange.inspect import node_table, operator_counts
from mlhood.exchange.lenet import lenet_onnx
from mlhood.exchange.load import load
from mlhood.exchange.render import render
from mlhood.exchange.run import run
from mlhood.exchange.view import show, view

__all__ = [
    "export",
    "find_browser",
    "lenet_onnx",
    "load",
    "node_table",
    "operator_counts",
    "render",
    "run",
    "show",
    "silence",
    "view",
]
