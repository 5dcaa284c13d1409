"""P4: loops as an iteration space, stationary and streamed tiles, and systolic arrays that do the same in hardware."""

from mlhood.grading.checks.task import Question
from mlhood.grading.projects.collect import collect_project

P4 = collect_project(
    __name__,
    "Stationary tiles, streamed tiles",
    questions=(Question("P4.10", "Why are WS and IS so close?"), Question("P4.11", "What would you build?")),
)
