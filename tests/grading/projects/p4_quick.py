"""P4's solutions that measure: right, but not on a real layer or network, which would take half a minute."""

from __future__ import annotations

from tests.grading.projects.p4_right import LOOPS

TABLE = {
    "P4-5-solution-2": """
import gc
gc.freeze()  # each comparison collects garbage first, among all that is loaded
def call(times):
    return lambda: sum(range(times)) * 0.0

many = {row: 20_000 if row == "too small" else 14_000 for row in table.rows}
calls = {f"{row}, {order}": call(many[row]) for row in table.rows for order in table.columns}
measured = compare(calls, shortest=1e-4, flops=2 * layer.macs)
for row in table.rows:
    table.fill(row, measured, {order: f"{row}, {order}" for order in table.columns})
"""
}
NETWORK_TABLE = {
    "P4-6-solution-2": """
calls = {f"{row}, {order}": call(many[row]) for row in many for order in network_times.columns}
measured = compare(calls, shortest=1e-4)
for row in network_times.rows:
    network_times.fill(row, measured, {order: f"{row}, {order}" for order in network_times.columns})
"""
}
CHOICE = {"P4-7-solution-2": LOOPS["P4-7-solution-2"]}
QUICK = TABLE | NETWORK_TABLE | CHOICE
