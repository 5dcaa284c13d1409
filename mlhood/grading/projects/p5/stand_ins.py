"""What stands in for an unsolved task of P5, so that the tasks after it are judged on their own."""

RESNET = """
from mlhood.grading.projects.p5.probes import right_block as block, right_resnet as resnet, right_tree as to_tree
"""

OPERATORS = """
from mlhood.jaxlab.operators.no_jax import (
    add, batch_norm, conv2d, dense, global_average_pool, max_pool, relu, softmax,
)
"""
