"""The compiler: from an ONNX model to a typed graph, and what runs it."""
