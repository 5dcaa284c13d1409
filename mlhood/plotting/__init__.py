"""Drawing with matplotlib: explanatory diagrams of boxes, arrows and grids, and labels that do not overlap."""
