"""Target "c": a program of the low-level IR as readable C99, and as WebAssembly in one page.

kernel          one instruction as a function: its types, loops and indices, and the helpers that it calls
elementwise, movements, products, pooling, reductions, integers     one rule for each operator
rules           the table of the rules
source          a program as model.c, model.h, weights.c and weights.h
bundle          the files around them: a program that reads a picture, Makefile, CMakeLists.txt, README
wasm            the same C through clang to WebAssembly, in one page

In: a program without dynamic axes. Out: source text, or files.
"""
