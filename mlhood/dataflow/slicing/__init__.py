"""Slicing a convolution for the caches: how many channels and tiles go together, and in which order.

(Ferrari, Sousa, Pereira, Moreira and Araujo, Advancing Direct Convolution Using Convolution Slicing Optimization and
ISA Extensions, ACM TACO 20(4), 2023: its Convolution Slicing Analysis.)
"""
