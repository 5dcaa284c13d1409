"""Checks of P1.10: a network that reads digits with few numbers; graded by how few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.oracle import onnx_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.rpc.limited import IsolatedCallError, run_isolated
from mlhood.grading.variants.parameter import Parameter
from mlhood.models import digits, perturbed

# how the digits come from the sensor
SENSOR = Parameter("sensor", ("upright", "negative", "mirrored", "turned"))
SENSORS = {
    "upright": lambda images: images,
    "negative": lambda images: -images,
    "mirrored": lambda images: images[..., ::-1],
    "turned": lambda images: np.rot90(images, 1, (2, 3)),
}

FILE = "small.onnx"
ACCURACY = 0.9
COPIES = 4  # of each held-out digit, each moved and noisy in its own way
LENET = 61_706
COURSE = 384  # what the source notebook's file holds: 380 parameters, and the shape that its Reshape reads
COUNTER = "mlhood.grading.projects.p1.stored_numbers:counted"


@dataclass(frozen=True)
class _Reader:
    """What `small.onnx` holds and reads, both counted here."""

    numbers: int
    accuracy: float


def _measure(submission: Submission) -> _Reader:
    """Count the numbers in the student's file, and read held-out digits that are moved and noisy as the seed says."""
    path = submission.file(FILE)
    try:
        numbers, model = run_isolated(COUNTER, path.read_bytes())
    except IsolatedCallError as failure:
        expect.fail(f"the numbers in `{FILE}` cannot be counted", got=str(failure))
    data = digits(mnist="")
    images = np.concatenate([perturbed(data.test_images, submission.rng) for _ in range(COPIES)])
    images = np.ascontiguousarray(SENSORS[submission.parameters.sensor](images))
    labels = np.tile(data.test_labels, COPIES)
    order = submission.rng.permutation(len(labels))
    facts = onnx_facts(model, images[order], what=f"`{FILE}`")
    hint = "its output is `logits` [batch,10] for `image` [batch,1,32,32]"
    logits = expect.array(facts.results[0], (len(labels), 10), f"what `{FILE}` computes", hint=hint)
    return _Reader(int(numbers), float((logits.argmax(1) == labels[order]).mean()))


def _as_seen(submission: Submission) -> str:
    sensor = submission.parameters.sensor
    return "" if sensor == "upright" else f", {sensor}"


def _check(submission: Submission, limit: int, *, record: bool = False) -> None:
    reader = submission.once("reader", lambda: _measure(submission))
    expect.true(
        reader.accuracy >= ACCURACY,
        f"`{FILE}` reads too few of the digits",
        expected=f"at least {ACCURACY:.0%}",
        got=f"{reader.accuracy:.2%}",
        given=f"held-out digits{_as_seen(submission)}, each moved by up to two pixels, with noise",
        hint="train on digits that are moved and noisy too, other ones in every pass, or choose a larger network",
    )
    if record:
        submission.reach(reader.numbers, course=COURSE, smaller_is_better=True)
    expect.true(
        reader.numbers <= limit,
        f"`{FILE}` holds too many numbers for this step",
        expected=f"at most {limit:,}",
        got=f"{reader.numbers:,}",
        hint="where are most of them? A dense layer on a large image is dear; pooling costs nothing",
    )


@points(3)
def reader_is_a_tenth_of_lenet(submission: Submission) -> None:
    """`small.onnx` reads 90% of moved and noisy{{ ", " + sensor if sensor != "upright" }} digits with at most 6,170 numbers, a tenth of LeNet's."""  # noqa: E501 a template
    _check(submission, LENET // 10, record=True)


@points(3)
def reader_is_a_fortieth_of_lenet(submission: Submission) -> None:
    """It does so with at most 1,500 numbers."""
    _check(submission, 1500)


@points(3)
def reader_is_an_eightieth_of_lenet(submission: Submission) -> None:
    """It does so with at most 750 numbers."""
    _check(submission, 750)


@points(3)
def reader_is_as_small_as_the_courses(submission: Submission) -> None:
    """It does so with at most 384 numbers, as the course's own solution."""
    _check(submission, COURSE)


TASKS = (
    Task(
        "P1.10",  # in the notebook's kernel: only the file that it writes is graded
        "A reader as small as you can",
        checks=(
            reader_is_a_tenth_of_lenet,
            reader_is_a_fortieth_of_lenet,
            reader_is_an_eightieth_of_lenet,
            reader_is_as_small_as_the_courses,
        ),
        varies=(SENSOR,),
        minutes=45,
        builds_on=("P1.3", "P1.4", "P1.6"),
        leaderboard="numbers in the file",
    ),
)
