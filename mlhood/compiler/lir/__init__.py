"""The low-level IR: instructions that work on memory, after Glow; see `text` for what it looks like.

instructions   buffers and instructions
program        weights and a list of instructions; lifetimes of the allocated buffers
opcodes        names of the instructions, and which operators move nothing or may work in place
text, parse    the text form, and back
verify         what holds for every program
lowering       from a graph to a program
execute        the oracle: execution on real memory, which may be laid out by a memory plan
passes         one optimisation per module

In: a verified graph. Out: a verified program that computes the same, bit for bit.
"""
