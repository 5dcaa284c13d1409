"""How fast, how small and how safe the grading is: `mlhood bench grading`."""
