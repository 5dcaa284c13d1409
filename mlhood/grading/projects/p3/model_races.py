"""The claims of P3.6's table as calls that can be timed from outside: a model by loops against one by BLAS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.timing import KEEP
from mlhood.grading.checks.timing_verdict import Course, Prepared, TimedCall, TimingClaim
from mlhood.grading.projects.p3 import races
from mlhood.grading.projects.p3.network import resnet18
from mlhood.grading.projects.p3.probes import compiled_model
from mlhood.grading.rpc.codec import Remote
from mlhood.grading.rpc.file_channel import write_fresh
from mlhood.measure.ratio import Ratio

PROBES = "mlhood.grading.projects.p3.probes:"
PIXELS = 112 / 56  # of the image, for one of C1's
TOLERANCE = 1e-2  # of the largest logit: twenty layers of float32
Shapes = list[list[int]]


@dataclass(frozen=True)
class Model:
    """The grader's model: its file, its image, and the same model in this process."""

    path: Path
    image: np.ndarray
    here: Any


def chosen_shapes(row: str) -> Shapes:
    """Return the shapes of the weights of the convolutions that a row is about."""
    layers = races.RESNET18
    rows = layers if row == "all" else [row]
    return [[layers[name].filters, layers[name].filters, layers[name].kernel, layers[name].kernel] for name in rows]


def draw_model(submission: Submission) -> Model:
    """Write a ResNet-18 with random weights into the scratch folder."""
    from mlhood.compiler.compile import compile

    layers = list(races.RESNET18.values())
    size = round(PIXELS * layers[0].size)
    data = resnet18(submission.rng, [layer.filters for layer in layers], size)
    path = write_fresh(submission.scratch / "resnet18.onnx", data)
    image = submission.normal(1, 3, size, size)
    return Model(path, image, compile(path, target="direct"))


def models(submission: Submission, direct: Remote, blas: Remote, claimed: dict[str, Ratio]) -> list[TimingClaim]:
    """Return one timed comparison for each of these rows.

    Args:
        submission: Compiles the models when they are first timed.
        direct: The notebook's convolution by loops.
        blas: The notebook's convolution by im2col and BLAS.
        claimed: Ratio no-BLAS / BLAS in the table, by row.
    """
    model = draw_model(submission)
    kept = submission.call(KEEP, model.image)
    claims = []
    for row, ratio in claimed.items():
        shapes = chosen_shapes(row)
        slow, fast = (timed_model(model, kept, shapes, function) for function in (direct, blas))
        name = f"the model, {row}, no-BLAS over BLAS"
        claims.append(TimingClaim(name, slow, fast, ratio, definition(model, shapes)))
    return claims


def timed_model(model: Model, kept: Remote, shapes: Shapes, function: Remote) -> TimedCall:
    """Return a timed call of the model, each time on another image."""
    compiled: list[Remote] = []

    def prepare(submission: Submission, calls: int) -> Prepared:
        if not compiled:
            compiled.append(submission.call(PROBES + "compiled_model", str(model.path), shapes, function))
        shifts = submission.rng.integers(1, model.image.size, calls).tolist()

        def check(result: Any) -> None:
            rolled = (np.roll(model.image, shift) for shift in shifts)
            want = np.concatenate([model.here.run(image=image)["logits"] for image in rolled])
            atol = TOLERANCE * float(np.abs(want).max())
            expect.close(result, want, "what the model returns while it is timed", rtol=0.0, atol=atol)

        return Prepared((compiled[0], kept, shifts), check)

    return TimedCall(PROBES + "logits", prepare)


def definition(model: Model, shapes: Shapes) -> Course:
    """Return the model with the course's compiled loops, which are what P3.2 asks for."""
    ready: list[Callable[[], object]] = []

    def run() -> None:
        if not ready:
            from mlhood.kernels.conv import naive

            compiled = compiled_model(str(model.path), shapes, lambda *arguments: naive(*arguments, threads=1))
            ready.append(lambda: compiled.run(image=model.image))
        ready[0]()

    return Course("no-BLAS model", run, races.MOST)
