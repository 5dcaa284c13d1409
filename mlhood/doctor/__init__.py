"""What this machine is, and which parts of the course will work on it."""

from mlhood.doctor.examination import Examination, examine
from mlhood.doctor.report import print_report

__all__ = ["Examination", "examine", "print_report"]
