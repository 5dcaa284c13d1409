"""The sandbox that a foreign notebook runs in: bubblewrap around its Jupyter kernel, limits, and the way in and out."""
