"""The compiler: from an ONNX model to a typed graph (`hir`), and what runs it (`backends`).

from mlhood.compiler.hir.importer import import_model
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.backends.interpreter import run

graph = import_model("lenet.onnx")
print(to_text(graph))
run(graph, image=images)["logits"]
"""
