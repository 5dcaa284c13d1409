"""P5's solutions that measure and train: right, but not on a real network, and independent of earlier solutions."""

from __future__ import annotations

from tests.grading.projects.examples import edited

ROWS = """import gc
from functools import partial
from mlhood.measure import Measurement

def call(times):
    return lambda: sum(range(times)) * 0.0

gc.freeze()  # each comparison collects garbage first, among all that is loaded
table, timed = operators_table(), partial(compare, shortest=1e-4)
cases = dict.fromkeys(table.rows, SimpleNamespace(no_jax=call(20_000), with_jax=call(20_000)))
for row, case in cases.items():
    alternatives = {"No-JAX": case.no_jax, "JAX": case.with_jax}"""
FILL = "table.fill(row, timed(alternatives))"
TABLE = edited(
    "P5-3-solution-3",
    ("for row, case in cases.items():", ROWS),
    ("table.fill(row, compare(sides(case), threads=1))", FILL),
)
TRAINING = edited(
    "P5-8-solution-3",
    ("cross_entropy(cnn", "optax.softmax_cross_entropy_with_integer_labels(cnn"),
    (", y)\n\n\n", ", y).mean()\n\n\n"),
    ("range(300)", "range(150)"),
)
QUICK = TABLE | TRAINING
