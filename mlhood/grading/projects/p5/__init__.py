"""P5: a network without and with JAX, derivatives, training, a primitive, and a cluster."""

from mlhood.grading.checks.task import Question
from mlhood.grading.projects.collect import collect_project

P5 = collect_project(
    __name__,
    "JAX under the hood",
    questions=(
        Question("P5.15", "Where does JAX lose, and why?"),
        Question("P5.16", "From two processes to a thousand"),
    ),
)
