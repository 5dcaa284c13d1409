"""What stands in for an unsolved task of P4, so that the tasks after it are judged on their own."""

STEPS = """
from mlhood.grading.projects.p4.reference import sliced_product, steps
"""

ANALYSIS = """
from mlhood.grading.projects.p4.reference import largest, needs
"""

TRIPLES = """
from mlhood.grading.projects.p4.reference import triples
"""
