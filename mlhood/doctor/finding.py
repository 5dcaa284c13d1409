"""What the doctor finds: one record per check, and what follows for the user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Args:
        name: What was checked; abilities refer to it.
        works: Whether it works on this machine.
        message: One sentence for the user.
        todo: How to repair it if it does not work.
        required: Whether the course cannot run without it.
    """

    name: str
    works: bool
    message: str
    todo: str = ""
    required: bool = False


@dataclass(frozen=True)
class Ability:
    """Something that a user wants to do, and the findings it depends on."""

    name: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """Whether an ability works on this machine, and if not, the reason and the remedy."""

    name: str
    works: bool
    reason: str = ""
    todo: str = ""


ABILITIES = (
    *(
        Ability(f"{name}.ipynb: run it, check it, hand it in", ("libraries", "disk", "local port"))
        for name in ("P1", "P2", "P3", "P4", "P5")
    ),
    Ability("P1.7: print the graph from Netron as a PDF", ("libraries", "local port", "browser")),
    Ability("Show a model in Netron", ("libraries", "local port")),
    Ability("Draw a model as SVG, PNG or PDF", ("libraries", "local port", "browser")),
    Ability("Build a model for WebAssembly (mlhood compile --target wasm)", ("libraries", "WebAssembly tools")),
    Ability("Run the repository's own tests", ("libraries", "test libraries", "disk", "local port")),
    Ability("Grade a class, each submission in a sandbox (mlhood grade)", ("libraries", "sandbox")),
)


def verdicts(findings: Iterable[Finding], abilities: Iterable[Ability] = ABILITIES) -> tuple[Verdict, ...]:
    """Return a verdict on each ability of which all needs were examined: it works if everything it depends on does."""
    by_name = {finding.name: finding for finding in findings}
    examined = [ability for ability in abilities if by_name.keys() >= set(ability.needs)]
    return tuple(_verdict(ability, [by_name[name] for name in ability.needs]) for ability in examined)


def _verdict(ability: Ability, needed: list[Finding]) -> Verdict:
    faults = [finding for finding in needed if not finding.works]
    reason = f"needs what does not work: {', '.join(fault.name for fault in faults)}" if faults else ""
    todo = "; ".join(fault.todo for fault in faults if fault.todo)
    return Verdict(ability.name, not faults, reason, todo)
