"""P5: the network in JAX: without it and with it, derivatives, training, an operation of one's own, and a cluster."""

from mlhood.grading.checks.task import Question
from mlhood.grading.projects.collect import collect_project

P5 = collect_project(
    __name__,
    "JAX under the hood",
    questions=(
        Question("P5.11", "Where does JAX lose, and why?"),
        Question("P5.12", "From two processes to a thousand"),
    ),
)
