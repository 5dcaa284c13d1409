"""The sliced convolution: the generated microkernel in nests of tiles, input or weights stationary."""
