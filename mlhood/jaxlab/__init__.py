"""What JAX and XLA make of a function: its jaxpr, StableHLO and HLO before and after optimisation, read and drawn."""
