"""From ONNX models to graphs and back; the rules of each operator are in its class, see `mlhood.compiler.operators`."""
