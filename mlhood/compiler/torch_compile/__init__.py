"""Compile what `torch.compile` captures: `torch.compile(model, backend="mlhood")`."""

from mlhood.compiler.torch_compile.backend import Backend, explain, mlhood

__all__ = ["Backend", "explain", "mlhood"]
