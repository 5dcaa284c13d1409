"""The commands that measure grading: its overhead, a class, nbgrader beside it, and a cluster that loses a worker."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

if TYPE_CHECKING:
    from mlhood.grading.bench.variants import Variant

Master = Annotated[Path, typer.Argument(metavar="[NOTEBOOK]", help="A solved master notebook of the course.")]
Count = Annotated[int, typer.Option("-n", "--count", min=2, help="Submissions, each with bytes of its own.")]
Wrong = Annotated[
    Path | None,
    typer.Option(help="JSON: wrong solutions and the checks that each costs; else every task is left empty in turn."),
]
Seed = Annotated[int, typer.Option(help="Of the moments at which something is killed.")]
Out = Annotated[Path | None, typer.Option(help="Leave submissions and gradebooks in this new or empty folder.")]
AsJson = Annotated[Path | None, typer.Option("--json", help="Write what was measured into this file, too.")]
INTERRUPTED = 130


class Result(Protocol):
    """What a bench has measured so far."""

    @property
    def held(self) -> bool:
        """Whether it is as it should be."""
        ...

    def text(self) -> str:
        """As people read it."""
        ...

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        ...


def register(bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    app = typer.Typer(help="Measure how fast, how small and how safe grading is.", no_args_is_help=True)
    bench.add_typer(app, name="grading")
    app.command("overhead")(overhead)
    app.command("class")(whole_class)
    app.command("nbgrader")(nbgrader)
    app.command("dask")(dask)


def overhead(
    master: Master = Path("P1.ipynb"),
    rounds: Annotated[int, typer.Option(min=1, help="How often each is graded.")] = 9,
    only_tiny: Annotated[bool, typer.Option("--only-tiny", help="Grade no notebook but a tiny one.")] = False,
    as_json: AsJson = None,
) -> None:
    """Time what grading takes beside the notebook's own cells and checks, with warm and cold sandboxes and with none.

    The exit code is 0 if the median with a warm sandbox is at most a second, 1 if not, 130 after Ctrl-C.

    Example: mlhood bench grading overhead --rounds 9 --json overhead.json
    """
    from mlhood.grading.sandbox.bubblewrap import require

    require()
    from mlhood.grading.bench.overhead import Overheads, measure, subject_of, tiny_subject

    subjects = [tiny_subject(), *([] if only_tiny else [subject_of(master)])]
    found = Overheads()
    _measured("overhead", found, lambda: measure(found, subjects, rounds, _say), as_json)


def whole_class(
    master: Master = Path("P1.ipynb"),
    count: Count = 200,
    jobs: Annotated[int, typer.Option(min=1, help="Submissions that are graded side by side.")] = 2,
    kills: Annotated[int, typer.Option(min=0, help="How often the grader gets SIGKILL in the middle.")] = 2,
    wrong: Wrong = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = None,
) -> None:
    """Grade a class by `mlhood grade`, kill that on the way, and see that every mark is there once and as expected.

    The exit code is 0 if so and if the grader itself held at most 300 MiB, 1 if not, 130 after Ctrl-C.

    Example: mlhood bench grading class -n 200 --jobs 2 --kills 2 --json class.json
    """
    from mlhood.grading.sandbox.bubblewrap import require

    require()
    from mlhood.grading.bench.whole_class import ClassRun, Setting, grade_class

    project, handed = _class(master, count, wrong=wrong)
    run = ClassRun(handed, Setting(project, jobs, kills, seed))
    with _place(out) as place:
        _measured("class", run, lambda: grade_class(run, place, _say), as_json)


def nbgrader(
    master: Master = Path("P1.ipynb"),
    count: Count = 20,
    jobs: Annotated[list[int] | None, typer.Option(min=1, help="Of ours; can be given several times; 1 and 2.")] = None,
    parts: Annotated[int, typer.Option(min=1, help="Parts of the class, over which the sides take turns.")] = 2,
    out: Out = None,
    as_json: AsJson = None,
) -> None:
    """Grade the same solved notebooks by nbgrader's autograde and by `mlhood grade`, in turns.

    The exit code is 0 if the quickest of ours takes at most 0.6 of the time and all points agree, 1 if not, 130 after
    Ctrl-C.

    Example: mlhood bench grading nbgrader -n 20 --jobs 1 --jobs 2 --json nbgrader.json
    """
    from mlhood.grading.bench.peer import Sides, Versus, compare, require_nbgrader, warm_up
    from mlhood.grading.sandbox.bubblewrap import require

    require()
    require_nbgrader()
    _, handed = _class(master, count, solved=True)
    sides = Sides(master, tuple(jobs or (1, 2)))
    versus = Versus(sides.names)
    with _place(out) as place:
        shares = [share for number in range(parts) if (share := handed[number::parts])]

        def work() -> None:
            warm_up(sides, handed[0], place, _say)
            compare(versus, sides, shares, place, _say)

        _measured("nbgrader", versus, work, as_json)


def dask(
    master: Master = Path("P1.ipynb"),
    count: Count = 20,
    workers: Annotated[int, typer.Option(min=1, help="Workers of the cluster, and jobs on this machine.")] = 2,
    wrong: Wrong = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = None,
) -> None:
    """Grade the same class on this machine and over a Dask LocalCluster that loses a worker, and compare all marks.

    The exit code is 0 if they are the same and as expected, 1 if not, 130 after Ctrl-C.

    Example: mlhood bench grading dask -n 20 --workers 2 --json dask.json
    """
    from mlhood.grading.bench.clustered import BothWays, Setting, both_ways
    from mlhood.grading.sandbox.bubblewrap import require

    require()
    project, handed = _class(master, count, wrong=wrong)
    ways = BothWays(handed, Setting(project, workers, seed))
    with _place(out) as place:
        _measured("dask", ways, lambda: both_ways(ways, place, _say), as_json)


def _class(master: Path, count: int, *, solved: bool = False, wrong: Path | None = None) -> tuple[str, list[Variant]]:
    """The id of a master notebook's project, and submissions: all of them solved, or one fault in each but some."""
    from mlhood.grading.bench import variants
    from mlhood.grading.notebooks.notebook import project_of, read

    notebook = read(master)
    project = project_of(notebook, master)
    faults = [variants.RIGHT]
    if wrong is not None:
        faults += variants.read_faults(wrong, project)
    elif not solved:
        faults += variants.empty_tasks(notebook, project, master)
    return project.id, variants.variants(variants.solved(notebook, master), faults, count)


@contextlib.contextmanager
def _place(out: Path | None) -> Iterator[Path]:
    """The folder in which all happens: one that is kept, or one that goes again."""
    if out is None:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="mlhood-bench-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    from mlhood.grading.execution.grade_file import empty_folder

    yield empty_folder(out, option="--out")


def _measured(bench: str, result: Result, work: Callable[[], None], as_json: Path | None) -> None:
    """Do the work, and print what came of it: all, or what there is after Ctrl-C or an error."""
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
        typer.echo(result.text())
        if as_json is not None:
            _write(as_json, {"bench": f"grading {bench}", "finished": finished}, result)
    raise typer.Exit(0 if result.held else 1)


def _write(file: Path, facts: dict[str, Any], result: Result) -> None:
    from mlhood.files.atomic import write_whole
    from mlhood.measure import machine

    data = facts | {"machine": machine().as_dict()} | result.as_dict()
    write_whole(file, json.dumps(data, indent=2).encode())


def _say(line: str) -> None:
    typer.echo(line, err=True)
