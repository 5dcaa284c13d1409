"""Measure the checks with mutants, solve variants of the course, and try a whole term.

python -m tests.tools.grading checks P3.2
"""

from __future__ import annotations

import typer

from mlhood.cli import main
from tests.tools.grading.checks_commands import checks, variants
from tests.tools.grading.whole_term import term

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
app.command("checks")(checks)
app.command("variants")(variants)
app.command("term")(term)

if __name__ == "__main__":
    main(app)
