"""What this machine is and can do, and how alternatives compare on it; every result carries the machine.

All but the machine's facts is loaded when it is first used: the facts must not need NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlhood.measure.machine import Machine, machine

if TYPE_CHECKING:
    from mlhood.measure.claims import Claim, agree, faster
    from mlhood.measure.comparison import Comparison, compare
    from mlhood.measure.limits import Ceilings, bandwidth, ceilings, peak
    from mlhood.measure.measurement import Count, Measurement
    from mlhood.measure.ratio import Ratio
    from mlhood.measure.roofline import Roofline
    from mlhood.measure.store import Record, compare_runs, load, save
    from mlhood.measure.table import Table
    from mlhood.measure.threading import environment, session_options, threads

__all__ = [
    "Ceilings",
    "Claim",
    "Comparison",
    "Count",
    "Machine",
    "Measurement",
    "Ratio",
    "Record",
    "Roofline",
    "Table",
    "agree",
    "bandwidth",
    "ceilings",
    "compare",
    "compare_runs",
    "environment",
    "faster",
    "load",
    "machine",
    "peak",
    "save",
    "session_options",
    "threads",
]

# No module is named like what it holds: importing the module would put it in the place of the function.
_HOMES = {
    "limits": ("Ceilings", "bandwidth", "ceilings", "peak"),
    "claims": ("Claim", "agree", "faster"),
    "comparison": ("Comparison", "compare"),
    "measurement": ("Count", "Measurement"),
    "ratio": ("Ratio",),
    "roofline": ("Roofline",),
    "store": ("Record", "compare_runs", "load", "save"),
    "table": ("Table",),
    "threading": ("environment", "session_options", "threads"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load what is asked for."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'mlhood.measure' has no attribute {name!r}")
    return getattr(import_module(f"mlhood.measure.{_HOME_OF[name]}"), name)
