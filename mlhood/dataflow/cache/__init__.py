"""A cache simulator.

In: levels of cache, and addresses or the nest of a sliced convolution. Out: the hits of each level and the cache lines
loaded into it.
"""
