"""A simulated neural processor (NMP), described in README.md: machine code, what generates, executes and times it."""
