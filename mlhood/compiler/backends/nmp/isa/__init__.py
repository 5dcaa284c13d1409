"""The instruction set of the neural processor: instructions, and their text."""
