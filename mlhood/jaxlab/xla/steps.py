"""The steps of a module's entry computation that a drawing shows: without the preparation of weights, chains folded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from mlhood.errors import XlaError
from mlhood.jaxlab.xla.hlo import Instruction, Module

PRODUCTS = ("convolution", "dot", "dot_general")
POOLINGS = ("reduce-window", "reduce_window", "reduce")
_RESULTS = ("return", "tuple")


@dataclass
class Step:
    """The contents of one box: an instruction, and the chain of instructions that is folded into the same box.

    Args:
        first: The first instruction.
        sources: Names of the instructions whose values it reads, as far as they are steps.
        chained: The other instructions of the chain.
    """

    first: Instruction
    sources: tuple[str, ...]
    chained: list[Instruction]

    @property
    def last(self) -> Instruction:
        """The instruction whose value leaves the box."""
        return self.chained[-1] if self.chained else self.first


def opcodes(module: Module, instruction: Instruction) -> tuple[str, ...]:
    """Return the opcodes inside a fusion or a called function, or the instruction's own opcode."""
    if instruction.opcode not in ("fusion", "call"):
        return (instruction.opcode,)
    return tuple(
        opcode
        for name in instruction.calls
        for inner in module.computations[name].instructions.values()
        if inner.opcode not in ("parameter", "constant", "return")
        for opcode in opcodes(module, inner)
    )


def callee(call: Instruction) -> str:
    """Return the called function's name without the suffixes that make it unique: relu_3 and relu_3.4 are relu."""
    return re.sub(r"([._]\d+)+$", "", call.calls[0])


def outputs(module: Module) -> tuple[str, ...]:
    """Return the names of the instructions that compute the module's results."""
    root = module.entry.root
    return root.operands if root.opcode in _RESULTS else (root.name,)


def steps(module: Module, data: Collection[int] | None = None, *, fold: bool = False) -> list[Step]:
    """Return the steps, each after those that it reads.

    Args:
        module: A module of HLO or StableHLO.
        data: Numbers of the parameters to follow, None for all. What depends on none of them is not a step, but an
            operand of one.
        fold: Whether a step includes the instructions that follow it, up to a branch, a join, a product or a pooling.

    Raises:
        XlaError: No result depends on these parameters.
    """
    shown: dict[str, Instruction] = {}
    for instruction in module.entry.instructions.values():
        followed = instruction.opcode == "parameter" and (data is None or int(instruction.literal) in data)
        if followed or any(name in shown for name in instruction.operands):
            shown[instruction.name] = instruction
    root = module.entry.root
    if root.opcode in _RESULTS:
        shown.pop(root.name, None)
    if not shown:
        raise XlaError("no result depends on these parameters", where=module.name, got=data)
    return _chains(module, shown, fold)


def _chains(module: Module, shown: dict[str, Instruction], fold: bool) -> list[Step]:
    sources = {name: tuple(operand for operand in line.operands if operand in shown) for name, line in shown.items()}
    uses = Counter(name for names in sources.values() for name in set(names)) + Counter(outputs(module))
    chains: dict[str, Step] = {}  # by the name of the last instruction
    for name, instruction in shown.items():
        chain = chains.get(sources[name][0]) if len(set(sources[name])) == 1 else None
        extends = fold and not any(opcode in (*PRODUCTS, *POOLINGS) for opcode in opcodes(module, instruction))
        if extends and chain is not None and chain.first.opcode != "parameter" and uses[chain.last.name] == 1:
            del chains[chain.last.name]
            chain.chained.append(instruction)
            chains[name] = chain
        else:
            chains[name] = Step(instruction, sources[name], [])
    positions = {name: position for position, name in enumerate(shown)}
    return sorted(chains.values(), key=lambda step: positions[step.first.name])
