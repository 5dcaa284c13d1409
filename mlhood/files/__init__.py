"""Files, for all rooms: atomic writes, locks between processes, CSV without formulas, portable names, mapped arrays."""
