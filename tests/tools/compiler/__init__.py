"""Conformance to ONNX, a zoo of architectures, and the search for slices."""
