"""Measuring: functions to compare in, a `Comparison` with ratios, intervals and the machine out.

Everything but the machine's facts is imported lazily, as the facts must not need NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlhood.measure.machine import Machine, machine

if TYPE_CHECKING:
    from mlhood.measure.claims import Claim, agree, faster
    from mlhood.measure.comparison import Comparison, compare
    from mlhood.measure.limits import ceilings, peak, reading
    from mlhood.measure.measurement import Count, Measurement
    from mlhood.measure.ratio import Ratio
    from mlhood.measure.table import Table
    from mlhood.measure.threading import environment, session_options, threads

__all__ = [
    "Claim",
    "Comparison",
    "Count",
    "Machine",
    "Measurement",
    "Ratio",
    "Table",
    "agree",
    "ceilings",
    "compare",
    "environment",
    "faster",
    "machine",
    "peak",
    "reading",
    "session_options",
    "threads",
]

# No module has the name of something that it exports: importing the module would shadow the function.
_MODULES = {
    "limits": ("ceilings", "peak", "reading"),
    "claims": ("Claim", "agree", "faster"),
    "comparison": ("Comparison", "compare"),
    "measurement": ("Count", "Measurement"),
    "ratio": ("Ratio",),
    "table": ("Table",),
    "threading": ("environment", "session_options", "threads"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import lazily."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'mlhood.measure' has no attribute {name!r}")
    return getattr(import_module(f"mlhood.measure.{_MODULE_OF[name]}"), name)
