"""Data movement of convolutions and matrix products.

In: the sizes of a layer, and of the caches or of a systolic array. Out: loop nests and their traffic, the slicing of a
convolution and its run time, cache misses, cycles and energy.
"""
