"""A simulated neural processor (NMP): its machine code, what generates it, and what executes and times it."""
