"""Timed calls of functions of images."""

from __future__ import annotations

import numpy as np
import pytest

from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import Session, Submission
from mlhood.grading.checks.timed_images import Placed, course_on_images, timed_on_images
from mlhood.grading.rpc.transport import LocalTransport

IMAGE = np.random.default_rng(0).standard_normal((1, 20, 3, 4)).astype(np.float32)


def submission(function, tmp_path) -> Submission:
    return Submission(Session(LocalTransport({"function": function}), tmp_path, tmp_path))


def placed(submission: Submission) -> Placed:
    return Placed(submission.value("function"), IMAGE, 20, lambda image, channels: (image**2)[:, channels])


@pytest.mark.parametrize("calls", [1, 5])
def test_results_of_images_never_seen_are_checked(calls, tmp_path):
    seen: list[np.ndarray] = []

    def square(image):
        seen.append(image.copy())
        return image**2

    notebook, call = submission(square, tmp_path), timed_on_images(placed, "a square")
    first, prepared = (call.prepare(notebook, calls) for _ in range(2))
    first.check(notebook.call(call.target, *first.arguments))
    result = notebook.call(call.target, *prepared.arguments)
    prepared.check(result)
    assert len({image.tobytes() for image in seen}) == len(seen) == 2 * calls
    with pytest.raises(CheckFailed, match="wrong values in a square"):
        prepared.check(np.roll(result, 1))


@pytest.mark.parametrize("wrong", [lambda image: image, lambda image: image[:, :3] ** 2, lambda image: np.zeros(3)])
def test_wrong_results_fail(wrong, tmp_path):
    notebook, call = submission(wrong, tmp_path), timed_on_images(placed, "a square")
    prepared = call.prepare(notebook, 1)
    with pytest.raises(CheckFailed, match="a square"):
        prepared.check(notebook.call(call.target, *prepared.arguments))


def test_only_a_share_of_the_results_is_checked(tmp_path):
    notebook, call = submission(np.square, tmp_path), timed_on_images(placed, "a square", checked=0.0)
    call.prepare(notebook, 1).check("not even an array")


def test_the_course_computes_as_often():
    images: list[np.ndarray] = []
    course = course_on_images("a square", lambda: (lambda image: images.append(image) or image, IMAGE), 2.0, 3)
    course.run()
    course.run()
    assert len(images) == 6
    assert course.calls == 3
