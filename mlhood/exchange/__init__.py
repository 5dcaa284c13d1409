"""Export, load, run and draw ONNX models.

In: a torch module, or an ONNX model as a path, bytes or proto. Out: a self-contained ONNX file (`export`), a checked
proto (`load`), the outputs of ONNX Runtime (`run`), and Netron's drawing in a browser or as a file (`view`, `show`,
`render`).
"""

from mlhood.exchange.export import export, silence
from mlhood.exchange.lenet import lenet_onnx
from mlhood.exchange.load import load
from mlhood.exchange.render import find_browser, render
from mlhood.exchange.run import run
from mlhood.exchange.view import show, view

__all__ = [
    "export",
    "find_browser",
    "lenet_onnx",
    "load",
    "render",
    "run",
    "show",
    "silence",
    "view",
]
