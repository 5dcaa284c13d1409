"""What runs a graph; the interpreter is the oracle for all others."""
