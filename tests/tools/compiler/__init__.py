"""Conformance to ONNX, a zoo of architectures, and what quantisation costs on it."""
