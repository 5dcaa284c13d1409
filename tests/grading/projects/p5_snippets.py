"""Right cells of P5: those that replace slow ones, and all of them together."""

from __future__ import annotations

from tests.grading.projects.p5_snippets_learning import (
    clipping,
    counting,
    entropy,
    examples,
    layering,
    planning,
    predicting,
    quantizing,
    script,
    splitting,
    stepping,
    training,
)
from tests.grading.projects.p5_snippets_programs import (
    backward,
    block,
    breaking_even,
    conv_rule,
    convolving,
    dropping,
    ending,
    entropy_rule,
    evaluating,
    filling,
    living,
    norming,
    pooling,
    recording,
    remembering,
    resnet,
    rooting,
    rules,
    summing,
    timing,
    to_tree,
)

# Right, but not measured on a real network, which would take half a minute, and trained independently of P5.8's step.
QUICK = filling() | training()
NETWORKS = to_tree() | block() | resnet()
OPERATORS = convolving() | pooling() | norming() | ending()
TABLE = breaking_even() | timing() | filling()
BROKEN = summing() | rooting() | remembering() | dropping()
TRACER = recording() | evaluating() | living()
TAPE = rules() | conv_rule() | entropy_rule() | backward()
LEARNING = examples() | clipping() | entropy() | stepping() | training()
CLUSTER = splitting() | layering() | counting() | script() | predicting() | planning()
RIGHT = NETWORKS | OPERATORS | TABLE | BROKEN | TRACER | TAPE | LEARNING | quantizing() | CLUSTER
