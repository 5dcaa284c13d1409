"""Training a small network on the digits with optax: its parameters, per-example gradients, the loop, and figures.

In: images and labels; out: trained parameters, losses, accuracies and step times.
"""
