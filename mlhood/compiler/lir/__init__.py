"""The low-level IR: instructions that work on memory, after Glow; see `text` for what it looks like.

instructions   buffers and instructions, their names, and which operators move nothing or may work in place
program        weights and a list of instructions; lifetimes of the allocated buffers
text, parse    the text form, and back
verify         what holds for every program
lowering       from a graph to a program, whose dynamic axes get their lengths later
execute        the oracle: execution on real memory, which may be laid out by a memory plan
passes         optimisations

In: a verified graph. Out: a verified program that computes the same, bit for bit.
"""
