"""gradebook."""
