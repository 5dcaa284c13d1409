"""The instruction set of the neural processor: instructions, their text and their binary code."""
