"""A module's main computation as the steps that a drawing shows: without what only prepares weights, chains folded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from mlhood.errors import XlaError
from mlhood.jaxlab.xla.hlo import Instruction, Module

PRODUCTS = ("convolution", "dot", "dot_general")
POOLINGS = ("reduce-window", "reduce_window", "reduce")
_OUTPUTS = ("return", "tuple")
_VALUES = ("parameter", "constant")


@dataclass
class Step:
    """What one box shows: an instruction, and those of the chain that it begins.

    Args:
        first: The instruction.
        sources: Names of the instructions whose values arrive.
        then: The rest of the chain.
    """

    first: Instruction
    sources: tuple[str, ...]
    then: list[Instruction]

    @property
    def last(self) -> Instruction:
        """The instruction whose value leaves the box."""
        return self.then[-1] if self.then else self.first


def contents(module: Module, one: Instruction) -> tuple[str, ...]:
    """Return the opcodes that an instruction stands for: those in a fusion or in a called function, or its own."""
    if one.opcode not in ("fusion", "call"):
        return (one.opcode,)
    names = (name for name in one.calls)
    found = (inner for name in names for inner in module.computations[name].instructions.values())
    return tuple(
        code for inner in found if inner.opcode not in (*_VALUES, "return") for code in contents(module, inner)
    )


def callee(one: Instruction) -> str:
    """Return what a call calls, without the number that keeps names apart: relu_3 and relu_3.4 are relu."""
    return re.sub(r"([._]\d+)+$", "", one.calls[0])


def outputs(module: Module) -> tuple[str, ...]:
    """Return the names of the instructions that make the module's results."""
    root = module.entry.root
    return root.operands if root.opcode in _OUTPUTS else (root.name,)


def steps(module: Module, data: Collection[int] | None = None, *, fold: bool = False) -> list[Step]:
    """Return the steps, each after those that it reads.

    Args:
        module: A module of HLO or StableHLO.
        data: Numbers of the parameters to follow; what depends on none of them is no step, but something that a step
            reads. None for all.
        fold: Whether a step takes in what follows, as long as nothing else reads or joins the chain and neither a
            product nor a pooling comes.

    Raises:
        XlaError: There is nothing to follow.
    """
    lines = module.entry.instructions
    shown: dict[str, Instruction] = {}
    for one in lines.values():
        followed = one.opcode == "parameter" and (data is None or int(one.literal) in data)
        if followed or any(name in shown for name in one.operands):
            shown[one.name] = one
    root = module.entry.root
    if root.opcode in _OUTPUTS:
        shown.pop(root.name, None)
    if not shown:
        raise XlaError("no result depends on these parameters", where=module.name, got=data)
    return _chains(module, shown, fold)


def _chains(module: Module, shown: dict[str, Instruction], fold: bool) -> list[Step]:
    sources = {one.name: tuple(name for name in one.operands if name in shown) for one in shown.values()}
    readers = Counter(name for names in sources.values() for name in set(names)) + Counter(outputs(module))
    found: dict[str, Step] = {}  # by the last instruction of the chain
    for one in shown.values():
        before = found.get(sources[one.name][0]) if len(set(sources[one.name])) == 1 else None
        joins = fold and before is not None and before.first.opcode != "parameter" and readers[before.last.name] == 1
        if before is not None and joins and not _begins(module, one):
            del found[before.last.name]
            before.then.append(one)
            found[one.name] = before
        else:
            found[one.name] = Step(one, sources[one.name], [])
    places = {name: place for place, name in enumerate(shown)}
    return sorted(found.values(), key=lambda step: places[step.first.name])


def _begins(module: Module, one: Instruction) -> bool:
    return any(code in (*PRODUCTS, *POOLINGS) for code in contents(module, one))
