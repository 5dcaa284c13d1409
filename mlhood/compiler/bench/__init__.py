"""Whole models beside torch, ONNX Runtime and XLA."""
