"""notebooks."""
