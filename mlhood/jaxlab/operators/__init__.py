"""ResNet's operators without JAX (`no_jax`) and with it (`with_jax`), with the same signatures, and networks over them.

In: arrays and trees of parameters; out: arrays, and `cases`, the rows of P5's table. Importing this imports neither.
"""
