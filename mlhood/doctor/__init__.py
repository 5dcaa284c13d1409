"""The doctor: examines this machine, and reports which parts of the course work on it."""

from mlhood.doctor.examination import Examination, examine, print_report

__all__ = ["Examination", "examine", "print_report"]
