"""Run the solved notebooks of a variant: outside of the course's repository, with kernels that know the variant."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mlhood.errors import GradingError, OutputError
from mlhood.grading.projects.collect import VARIANT
from mlhood.grading.variants.parameter import require_variant_name


def variant_folder(course: Path, variant_name: str) -> Path:
    """Return the folder for the source notebooks of a variant: beside that of the course."""
    course = course.resolve()
    return course.with_name(f"{course.name}-{re.sub(r'[^A-Za-z0-9.-]', '-', variant_name)}")


def require_for_variant(notebooks: Iterable[Path], out: Path, write_back: bool) -> None:
    """Refuse to store what belongs to a variant in the course.

    Raises:
        OutputError: The folder of the results is inside the course's.
        GradingError: The outputs would be written back into the public source notebooks.
    """
    if write_back:
        raise GradingError(
            "the outputs of a variant cannot be written back",
            where="--write-back",
            expected="the course as it is published",
            todo="leave it out: the executed notebooks of the variant are in the folder of the results",
        )
    for course in {path.resolve().parent for path in notebooks}:
        if out.resolve().is_relative_to(course):
            raise OutputError(
                "solved notebooks of a variant do not belong in the course's folder, from which they get published",
                where=out,
                expected=f"a folder outside of {course}",
                todo=f"choose another one: --out {variant_folder(course, 'solved')}",
            )


@contextlib.contextmanager
def kernels_of_variant(variant_name: str) -> Iterator[None]:
    """Have the processes that are started know the variant, so that `mlhood.check` in a cell asks for its values."""
    if not variant_name:
        yield
        return
    require_variant_name(variant_name)
    before = os.environ.get(VARIANT)
    os.environ[VARIANT] = variant_name
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIANT]
        else:
            os.environ[VARIANT] = before
