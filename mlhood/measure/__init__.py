"""The machine and, later, what is measured on it: facts that every result carries."""

from mlhood.measure.machine import Machine, machine

__all__ = ["Machine", "machine"]
