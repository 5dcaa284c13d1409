"""A class of submissions: collected, graded side by side, kept in a gradebook, and exported."""
