"""JAX under the hood: operators with and without it, what it traces and XLA compiles, gradients, and many devices."""
