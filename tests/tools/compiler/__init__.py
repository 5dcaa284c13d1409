"""Conformance to ONNX, a zoo of architectures, and what quantisation and compression cost on it."""
