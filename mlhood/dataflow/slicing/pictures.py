"""Pictures of P4: tiles and their order, and what slicings take of the caches, move and cost."""

from __future__ import annotations

from mlhood.dataflow.slicing.pictures_nest import orders, tiles
from mlhood.dataflow.slicing.pictures_results import levels, times, traffic

__all__ = ["levels", "orders", "tiles", "times", "traffic"]
