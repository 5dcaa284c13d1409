"""Measure the checks with mutants, and solve variants of the course.

python -m tests.tools.grading checks P3.2
"""

from __future__ import annotations

import typer

from mlhood.cli import main
from tests.tools.grading.checks_commands import checks, variants

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
app.command("checks")(checks)
app.command("variants")(variants)

if __name__ == "__main__":
    main(app)
