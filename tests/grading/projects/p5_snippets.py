"""All cells that a notebook of P5 has to write, right ones."""

from __future__ import annotations

from tests.grading.projects.p5_snippets_learning import (
    clipping,
    counting,
    entropy,
    examples,
    layering,
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

# Right, but not measured on a real network, which would take half a minute, and trained by a step of its own.
QUICK = filling() | training()
# all that a notebook of P5 has to say
RIGHT = (
    to_tree() | block() | resnet()
    | convolving() | pooling() | norming() | ending()
    | breaking_even() | timing() | filling()
    | summing() | rooting() | remembering() | dropping()
    | recording() | evaluating() | living()
    | rules() | conv_rule() | entropy_rule() | backward()
    | examples() | clipping()
    | entropy() | stepping() | training()
    | quantizing()
    | splitting() | layering() | counting() | script() | predicting()
)  # fmt: skip
