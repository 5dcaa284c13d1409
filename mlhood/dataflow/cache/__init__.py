"""A simulator of three levels of cache, and the nests of sliced convolutions that run through it."""
