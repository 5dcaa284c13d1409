"""From a graph of integers to a program: stages, slices, the search over them, and the instructions."""
