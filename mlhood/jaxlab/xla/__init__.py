"""XLA's views of a function: StableHLO, HLO before and after optimisation, parsed and drawn.

In: a pure JAX function and arguments, of which only shapes and dtypes matter; out: texts, modules of instructions with
their counts, costs, fusions and layouts, and drawings.
"""
