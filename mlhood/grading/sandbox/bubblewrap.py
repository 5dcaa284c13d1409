"""The grader's word on a machine where bubblewrap cannot do its work."""

from __future__ import annotations

from mlhood.errors import GradingError
from mlhood.isolation.bubblewrap import advice, problem

WITHOUT = (
    "; or pass --no-sandbox, which runs every submission with your own rights: it can read your files, the marks and "
    "the secret seed among them, change them, and use the network, so it is for work that you trust"
)


def require() -> None:
    """See that bubblewrap is there and may do its work.

    Raises:
        GradingError: It is not; says how to get it, and what it means to go without.
    """
    if what := problem():
        raise GradingError(
            "submissions cannot be kept apart from this machine",
            where="the sandbox",
            expected="bubblewrap on Linux, allowed to make user namespaces",
            got=what,
            todo=advice() + WITHOUT,
        )
