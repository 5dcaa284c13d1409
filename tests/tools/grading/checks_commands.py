"""The commands `checks` and `variants`: the mutation score of each task's checks; each task's variants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlhood.errors import GradingError, nearest
from mlhood.files.terminal import echo
from mlhood.grading.variants.parameter import variant_option

if TYPE_CHECKING:
    from mlhood.grading.checks.task import Project, Task


def checks(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[P3 P3.2 ...]", help="Projects or tasks; all by default.")
    ] = None,
    course: Annotated[
        Path | None, typer.Option(help="Folder of the solved source notebooks; by default the course we are in.")
    ] = None,
    variant_name: Annotated[str | None, variant_option("Of this variant of the course.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="Mutants of each task, drawn the same each time; 0: all.")] = 0,
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write every verdict into this file.")] = None,
) -> None:
    """Mutate every reference solution, and count how many mutants each task's checks refuse.

    Style variants of the solutions, which are right, have to pass. A mutant that nothing distinguishes from the
    solution is listed as equivalent, with its reason, in tests/tools/grading/equivalent/.

    The exit code is 0 if every task kills at least 95 % of the others and accepts all variants, else 1.

    Example: python -m tests.tools.grading checks P3.2 --json checks.json
    """
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.grading.notebooks.notebook import course_folder, read
    from mlhood.grading.notebooks.source_notebook import source_of_variant
    from mlhood.grading.projects.collect import variant
    from tests.tools.grading.mutation_score import HEADER, NotebookRun, score

    if as_json is not None:
        check_output(as_json)
    selected = _selected([name.upper() for name in names or []])
    folder = course or course_folder(Path.cwd())
    rows: list[dict[str, Any]] = []
    held = True
    echo(HEADER)
    for project, tasks in selected:
        notebook, varied = read(folder / f"{project.id}.ipynb"), variant(project, variant_name or "")
        with NotebookRun(source_of_variant(notebook, varied), varied) as run:
            for task in run.tasks(tasks):
                result = score(task, sample=sample, report=lambda line: echo(line, err=True))
                echo(str(result))
                rows.append(result.as_dict())
                held = held and result.held
                if as_json is not None:
                    write_atomic(as_json, json.dumps({"bench": "checks", "tasks": rows}, indent=2).encode())
    raise typer.Exit(0 if held else 1)


def variants(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[P3 P3.2 ...]", help="Projects or tasks; all by default.")
    ] = None,
    course: Annotated[
        Path | None, typer.Option(help="Folder of the solved source notebooks; by default the course we are in.")
    ] = None,
    variant_names: Annotated[
        list[str] | None, typer.Option("--variant", metavar="NAME", help="Several times; three by default.")
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--every-value", help="Variants that cover every value of every parameter; not with --variant."),
    ] = False,
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write every result into this file.")] = None,
) -> None:
    """Solve variants of the course, and hand the public solutions in for them.

    Each task of a variant is graded twice: with the variant's own solution, which has to get full marks, and with the
    solution of the public source notebook, which should get few points.

    The exit code is 0 if every variant's own solutions get full marks, and the public ones at most 30 % in the mean,
    else 1; with --every-value, where defaults recur beside other values, the public ones may get more.

    Example: python -m tests.tools.grading variants P1 --variant autumn-4f9c

    Example: python -m tests.tools.grading variants P1.3 --every-value
    """
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.grading.notebooks.notebook import course_folder
    from mlhood.grading.projects.collect import variant, with_values
    from mlhood.grading.variants.parameter import require_variant_name
    from tests.tools.grading.variant_proof import (
        HEADER,
        MAX_PUBLIC,
        VARIANT_NAMES,
        covering_values,
        prove,
        public_share,
    )

    if every and variant_names:
        raise GradingError(
            "--every-value cannot be combined with --variant", got=", ".join(variant_names), todo="omit one"
        )
    for variant_name in variant_names or ():
        require_variant_name(variant_name)
    if as_json is not None:
        check_output(as_json)
    proofs = []
    folder = course or course_folder(Path.cwd())
    echo(HEADER)
    for project, tasks in _selected(names or []):
        if every:
            varied = {name: with_values(project, values) for name, values in covering_values(project).items()}
        else:
            varied = {variant_name: variant(project, variant_name) for variant_name in variant_names or VARIANT_NAMES}
        for name, version in varied.items():
            for proof in prove(folder / f"{project.id}.ipynb", project, name, version, [task.id for task in tasks]):
                echo("\n".join([str(proof), *proof.reasons()]))
                proofs.append(proof)
    share = public_share(proofs)
    solved = sum(proof.solved for proof in proofs)
    echo(f"solved: {solved} of {len(proofs)}; the public solutions get {share:.0%} of the points")
    if as_json is not None:
        rows = [proof.as_dict() for proof in proofs]
        write_atomic(as_json, json.dumps({"bench": "variants", "tasks": rows}, indent=2).encode())
    raise typer.Exit(0 if solved == len(proofs) and (every or share <= MAX_PUBLIC) else 1)


def _selected(names: list[str]) -> list[tuple[Project, list[Task]]]:
    from mlhood.grading.projects import PROJECTS

    known = [*PROJECTS, *(task.id for project in PROJECTS.values() for task in project.tasks)]
    if unknown := [name for name in names if name not in known]:
        todo = nearest(unknown[0], known)
        expected = f"one of {', '.join(PROJECTS)}, or a task such as {known[len(PROJECTS)]}"
        raise GradingError("there is no such project or task", where=unknown[0], expected=expected, todo=todo)
    chosen = [
        (project, [task for task in project.tasks if not names or {project.id, task.id} & set(names)])
        for project in PROJECTS.values()
    ]
    return [(project, tasks) for project, tasks in chosen if tasks]
