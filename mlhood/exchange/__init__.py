"""From torch to ONNX, into tables and onto paper."""
