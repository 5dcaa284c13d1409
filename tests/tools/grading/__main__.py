"""Try the checks with mutants and variants, and grading with a class, beside nbgrader, on a lossy cluster, for a term.

python -m tests.tools.grading checks P3.2
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from mlhood.cli import main
from mlhood.files.terminal import echo
from mlhood.grading.commands import find
from tests.tools.grading.checks_commands import checks, variants

if TYPE_CHECKING:
    from tests.tools.grading.variants import Variant

Master = Annotated[
    Path,
    typer.Argument(metavar="[NOTEBOOK]", callback=find, help="A solved master notebook of the course, such as P1."),
]
Count = Annotated[
    int, typer.Option("-n", "--count", min=2, help="Number of submissions, no two of which are identical.")
]
Wrong = Annotated[
    Path | None,
    typer.Option(help="JSON: wrong solutions and the checks that each fails; by default, tasks left empty."),
]
Seed = Annotated[int, typer.Option(help="Determines when something is killed.")]
Out = Annotated[Path | None, typer.Option(help="Keep submissions and gradebooks in this new or empty folder.")]
AsJson = Annotated[Path | None, typer.Option("--json", help="Also write the measurements into this file.")]
INTERRUPTED = 130


class Result(Protocol):
    """The measurements of a bench, as far as there are any."""

    @property
    def held(self) -> bool:
        """Whether its promise is held."""
        ...

    def text(self) -> str:
        """Return the measurements as text."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """Return the measurements as plain data."""
        ...


app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
app.command("checks")(checks)
app.command("variants")(variants)


@app.command("class")
def whole_class(
    master: Master = Path("P1"),
    count: Count = 200,
    jobs: Annotated[int, typer.Option(min=1, help="Submissions to grade at once.")] = 2,
    kills: Annotated[int, typer.Option(min=0, help="How often the grader is killed by SIGKILL while it works.")] = 2,
    wrong: Wrong = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = None,
) -> None:
    """Grade a class by `mlhood grade`, kill it repeatedly, and verify that every mark is stored once and as expected.

    The exit code is 0 if so and if the grader itself used at most 300 MiB, 1 if not, 130 after Ctrl-C.

    Example: python -m tests.tools.grading class -n 200 --jobs 2 --kills 2 --json class.json
    """
    from mlhood.grading.sandbox.bubblewrap import require

    require()
    from tests.tools.grading.whole_class import ClassRun, Setting, grade_class

    project, submissions = _make_class(master, count, wrong=wrong)
    run = ClassRun(submissions, Setting(project, jobs, kills, seed))
    with _folder(out) as folder:
        _measure("class", run, lambda: grade_class(run, folder, _log), as_json)


@app.command("nbgrader")
def nbgrader(
    master: Master = Path("P1"),
    count: Count = 20,
    jobs: Annotated[
        list[int] | None, typer.Option(min=1, help="Of mlhood grade; can be given several times; 1 and 2.")
    ] = None,
    parts: Annotated[int, typer.Option(min=1, help="Parts of the class, between which the graders alternate.")] = 2,
    out: Out = None,
    as_json: AsJson = None,
) -> None:
    """Grade the same solved notebooks by nbgrader's autograde and by `mlhood grade`, alternating.

    The exit code is 0 if the fastest of ours takes at most 0.6 of the time and all points agree, 1 if not, 130 after
    Ctrl-C.

    Example: python -m tests.tools.grading nbgrader -n 20 --jobs 1 --jobs 2 --json nbgrader.json
    """
    from mlhood.grading.sandbox.bubblewrap import require
    from tests.tools.grading.peer import NbgraderComparison, Setting, compare, require_nbgrader, warm_up

    require()
    require_nbgrader()
    _, submissions = _make_class(master, count, solved=True)
    setting = Setting(master, tuple(jobs or (1, 2)))
    comparison = NbgraderComparison(setting.names)
    with _folder(out) as folder:
        split = [part for i in range(parts) if (part := submissions[i::parts])]

        def work() -> None:
            warm_up(setting, submissions[0], folder, _log)
            compare(comparison, setting, split, folder, _log)

        _measure("nbgrader", comparison, work, as_json)


@app.command("dask")
def dask(
    master: Master = Path("P1"),
    count: Count = 20,
    workers: Annotated[int, typer.Option(min=1, help="Workers of the cluster, and jobs on this machine.")] = 2,
    wrong: Wrong = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = None,
) -> None:
    """Grade the same class on this machine and on a Dask LocalCluster that loses a worker, and compare all marks.

    The exit code is 0 if they are the same and as expected, 1 if not, 130 after Ctrl-C.

    Example: python -m tests.tools.grading dask -n 20 --workers 2 --json dask.json
    """
    from mlhood.grading.sandbox.bubblewrap import require
    from tests.tools.grading.clustered import ClusterComparison, Setting, compare_with_cluster

    require()
    project, submissions = _make_class(master, count, wrong=wrong)
    comparison = ClusterComparison(submissions, Setting(project, workers, seed))
    with _folder(out) as folder:
        _measure("dask", comparison, lambda: compare_with_cluster(comparison, folder, _log), as_json)


@app.command("term")
def term(
    variant: Annotated[str, typer.Option(metavar="WORD", help="Of the variant that the class gets.")] = "autumn-4f9c2e",
    pictures: Annotated[
        bool, typer.Option("--pictures/--no-pictures", help="Draw each step, if there is a browser: DIR/pictures.")
    ] = True,
    out: Out = None,
    as_json: AsJson = None,
) -> None:
    """Try a whole term of P1 by the real commands, from the release of a variant to grading again, with ten students.

    Some have solved it, in three editors; others hand in half of it, a copy, an attack, or nothing. The exit code is 0
    if everything came out as it should, 1 if not, 130 after Ctrl-C.

    Example: python -m tests.tools.grading term --out ../term --json term.json
    """
    from mlhood.grading.notebooks.notebook import course_folder
    from mlhood.grading.sandbox.bubblewrap import require
    from tests.tools.grading.term_pictures import draw_pictures
    from tests.tools.grading.whole_term import Term, try_term

    require()
    outcome, root = Term(variant), course_folder(Path.cwd())

    def try_and_draw(folder: Path) -> None:
        try_term(outcome, root, folder, _log)
        if pictures:
            draw_pictures(outcome, folder, _log)

    with _folder(out) as folder:
        _measure("term", outcome, lambda: try_and_draw(folder.resolve()), as_json)


def _make_class(
    master: Path, count: int, *, solved: bool = False, wrong: Path | None = None
) -> tuple[str, list[Variant]]:
    """Return the id of a master notebook's project, and submissions: all solved, or with one mutation in most."""
    from mlhood.grading.notebooks.notebook import project_of, read
    from tests.tools.grading import variants as mutated

    notebook = read(master)
    project = project_of(notebook, master)
    mutations = [mutated.SOLVED]
    if wrong is not None:
        mutations += mutated.read_mutations(wrong, project)
    elif not solved:
        mutations += mutated.empty_tasks(notebook, project, master)
    return project.id, mutated.variants(mutated.solved(notebook, master), mutations, count)


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Yield the working folder: the given one, which is kept, or a temporary one."""
    if out is None:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="mlhood-bench-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    from mlhood.grading.execution.grade_notebook import empty_folder

    yield empty_folder(out, option="--out")


def _measure(bench: str, result: Result, work: Callable[[], None], as_json: Path | None) -> None:
    """Do the work, and print the measurements, also those made before Ctrl-C or an error."""
    from mlhood.files.atomic import check_output

    if as_json is not None:
        check_output(as_json)
    finished = False
    try:
        work()
        finished = True
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        echo(result.text())
        if as_json is not None:
            _write(as_json, {"bench": f"grading {bench}", "finished": finished}, result)
    raise typer.Exit(0 if result.held else 1)


def _write(file: Path, facts: dict[str, Any], result: Result) -> None:
    from mlhood.files.atomic import write_atomic
    from mlhood.measure import machine

    data = facts | {"machine": machine().as_dict()} | result.as_dict()
    write_atomic(file, json.dumps(data, indent=2).encode())


def _log(line: str) -> None:
    echo(line, err=True)


if __name__ == "__main__":
    main(app)
