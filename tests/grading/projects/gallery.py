"""What an entry of a gallery of wrong solutions is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """A wrong solution of one task.

    Attributes:
        cells: New source by cell id.
        loses: Names of the checks that must fail; all others of the notebook must pass.
        says: A regular expression that must be found in what the failed checks say.
    """

    name: str
    task: str
    cells: dict[str, str]
    loses: tuple[str, ...]
    says: str
