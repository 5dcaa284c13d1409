"""The projects of the course, each with its tasks and checks."""

from mlhood.grading.checks.task import Project
from mlhood.grading.projects.p1 import P1
from mlhood.grading.projects.p2 import P2
from mlhood.grading.projects.p3 import P3
from mlhood.grading.projects.p4 import P4
from mlhood.grading.projects.p5 import P5

PROJECTS: dict[str, Project] = {project.id: project for project in (P1, P2, P3, P4, P5)}
