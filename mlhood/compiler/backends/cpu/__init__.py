"""The CPU back end: a graph as one sequence of native kernels on one arena.

lowering             the stage "lowered": layouts, then element-wise chains, which kernels apply in their epilogues
layouts              the layouts of activations, which minimum_cut chooses
runner               the target: a plan for each shape that is run
native_program       a program of the LIR as addresses and calls
selection            which kernel computes an instruction; integer_selection and movement_selection for bytes and copies
machine              what kernels are prepared for, such as packed weights, in memory and on disk
"""
