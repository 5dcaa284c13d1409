"""Slicing a convolution for the caches.

In: a convolution with its register tile, and the sizes of the caches. Out: (k1, k2, k3), how many channels and tiles to
process together, and the order, input or weight stationary, with the predicted traffic of each cache.

(Ferrari, Sousa, Pereira, Moreira and Araujo, Advancing Direct Convolution Using Convolution Slicing Optimization and
ISA Extensions, ACM TACO 20(4), 2023: its Convolution Slicing Analysis.)
"""
