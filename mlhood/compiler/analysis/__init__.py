"""What there is to see in a graph: its convolutions, its parallelism, and where a target computes it wrongly."""
