"""The commands that measure grading: overhead, a class, nbgrader in comparison, a lossy cluster, a whole term."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from mlhood.files.terminal import echo
from mlhood.grading.commands import find

if TYPE_CHECKING:
    from mlhood.grading.bench.variants import Variant

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


def register(bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    app = typer.Typer(help="Measure how fast, how small and how safe grading is.", no_args_is_help=True)
    bench.add_typer(app, name="grading")
    app.command("overhead")(overhead)
    app.command("class")(whole_class)
    app.command("nbgrader")(nbgrader)
    app.command("dask")(dask)
    app.command("term")(term)


def overhead(
    master: Master = Path("P1"),
    rounds: Annotated[int, typer.Option(min=1, help="How often each notebook is graded.")] = 9,
    only_tiny: Annotated[bool, typer.Option("--only-tiny", help="Grade only a tiny notebook.")] = False,
    as_json: AsJson = None,
) -> None:
    """Time what grading takes besides a notebook's own cells and checks: with a warm sandbox, a cold one, and none.

    The exit code is 0 if the median with a warm sandbox is at most a second, 1 if not, 130 after Ctrl-C.

    Example: mlhood bench grading overhead --rounds 9 --json overhead.json
    """
    from mlhood.grading.sandbox.bubblewrap import require

    require()
    from mlhood.grading.bench.overhead import Overheads, measure, subject_of, tiny_subject

    subjects = [tiny_subject(), *([] if only_tiny else [subject_of(master)])]
    overheads = Overheads()
    _measure("overhead", overheads, lambda: measure(overheads, subjects, rounds, _log), as_json)


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

    Example: mlhood bench grading class -n 200 --jobs 2 --kills 2 --json class.json
    """
    from mlhood.grading.sandbox.bubblewrap import require

    require()
    from mlhood.grading.bench.whole_class import ClassRun, Setting, grade_class

    project, submissions = _make_class(master, count, wrong=wrong)
    run = ClassRun(submissions, Setting(project, jobs, kills, seed))
    with _folder(out) as folder:
        _measure("class", run, lambda: grade_class(run, folder, _log), as_json)


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

    Example: mlhood bench grading nbgrader -n 20 --jobs 1 --jobs 2 --json nbgrader.json
    """
    from mlhood.grading.bench.peer import NbgraderComparison, Setting, compare, require_nbgrader, warm_up
    from mlhood.grading.sandbox.bubblewrap import require

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

    Example: mlhood bench grading dask -n 20 --workers 2 --json dask.json
    """
    from mlhood.grading.bench.clustered import ClusterComparison, Setting, compare_with_cluster
    from mlhood.grading.sandbox.bubblewrap import require

    require()
    project, submissions = _make_class(master, count, wrong=wrong)
    comparison = ClusterComparison(submissions, Setting(project, workers, seed))
    with _folder(out) as folder:
        _measure("dask", comparison, lambda: compare_with_cluster(comparison, folder, _log), as_json)


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

    Example: mlhood bench grading term --out ../term --json term.json
    """
    from mlhood.grading.bench.term_pictures import draw_pictures
    from mlhood.grading.bench.whole_term import Term, try_term
    from mlhood.grading.notebooks.notebook import course_folder
    from mlhood.grading.sandbox.bubblewrap import require

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
    from mlhood.grading.bench import variants
    from mlhood.grading.notebooks.notebook import project_of, read

    notebook = read(master)
    project = project_of(notebook, master)
    mutations = [variants.SOLVED]
    if wrong is not None:
        mutations += variants.read_mutations(wrong, project)
    elif not solved:
        mutations += variants.empty_tasks(notebook, project, master)
    return project.id, variants.variants(variants.solved(notebook, master), mutations, count)


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
