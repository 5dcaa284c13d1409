"""What there is to see in a graph: its convolutions, and where a target computes it wrongly."""
