"""From LLVM IR to the assembly of a processor and of a GPU (PTX): the inner loop of a matrix product, line by line.

LLVM translates the same function for both. Each instruction of the IR has a debug location whose line is its number
here, so that LLVM itself says which instructions of the assembly belong to it (`.loc`).
"""

from __future__ import annotations

import itertools
import platform
import re
from dataclasses import dataclass
from typing import NamedTuple

import llvmlite.binding as llvm

PTX = "nvptx64-nvidia-cuda"
ARCHITECTURE = "sm_75"  # of a T4; newer ones run it
NAME = "dot"

BODY = (
    ("loop:", ""),
    ("  %k = phi i64 [ 0, %entry ], [ %next, %loop ]", "k, from 0"),
    ("  %total = phi float [ 0.0, %entry ], [ %sum, %loop ]", "the sum, from 0"),
    ("  %at_a = getelementptr float, ptr SPACE %a, i64 %k", "the address of a[k]"),
    ("  %x = load float, ptr SPACE %at_a", "a[k]"),
    ("  %row = mul i64 %k, %n", "n numbers for each k"),
    ("  %at_b = getelementptr float, ptr SPACE %b, i64 %row", "the address of b[k, 0]"),
    ("  %y = load float, ptr SPACE %at_b", "b[k, 0]"),
    ("  %sum = call float @llvm.fma.f32(float %x, float %y, float %total)", "one multiply-add"),
    ("  %next = add i64 %k, 1", "the next k"),
    ("  %more = icmp ult i64 %next, %depth", "is there a next one, and where?"),
    ("  br i1 %more, label %loop, label %end", "and again"),
)
"""The loop, and what its instructions are for."""


def module(*, gpu: bool) -> str:
    """Return the LLVM IR of a function that computes an element of a product: a row of a times a column of b.

    Its arguments are pointers to the row and to the column, the columns of b, K (not 0), and a pointer to the result.

    Args:
        gpu: Whether it is a kernel of a GPU, and its pointers are to global memory.
    """
    space = "addrspace(1)" if gpu else ""
    lines = [f"{text}, !dbg !{10 + i}" if i else text for i, (text, _) in enumerate(BODY)]
    locations = [f"!{10 + i} = !DILocation(line: {i}, scope: !3)" for i in range(1, len(BODY))]
    convention = "ptx_kernel " if gpu else ""
    return "\n".join(
        [
            f"define {convention}void @{NAME}(ptr SPACE %a, ptr SPACE %b, i64 %n, i64 %depth, ptr SPACE %c) !dbg !3 {{",
            "entry:",
            "  br label %loop",
            *lines,
            "end:",
            "  store float %sum, ptr SPACE %c",
            "  ret void",
            "}",
            "declare float @llvm.fma.f32(float, float, float)",
            "!llvm.dbg.cu = !{!0}",
            "!llvm.module.flags = !{!4}",
            "!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: LineTablesOnly)",
            '!1 = !DIFile(filename: "dot.ll", directory: "")',
            "!2 = !DISubroutineType(types: !{})",
            f'!3 = distinct !DISubprogram(name: "{NAME}", file: !1, type: !2, unit: !0, spFlags: DISPFlagDefinition)',
            '!4 = !{i32 2, !"Debug Info Version", i32 3}',
            *locations,
        ]
    ).replace("ptr SPACE", f"ptr {space}".strip())


def assembly(*, gpu: bool) -> str:
    """Return what LLVM makes of `module`: PTX, or the assembly of this machine's processor."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    parsed = llvm.parse_assembly(module(gpu=gpu))
    parsed.verify()
    if gpu:
        machine = llvm.Target.from_triple(PTX).create_target_machine(cpu=ARCHITECTURE, opt=3)
    else:
        features = llvm.get_host_cpu_features().flatten()
        host = llvm.Target.from_default_triple()
        machine = host.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)
    return machine.emit_assembly(parsed)


class LoweringStep(NamedTuple):
    """An instruction of the loop in LLVM IR, what it is for, and the instructions of a GPU and of this machine."""

    ir: str
    meaning: str
    ptx: tuple[str, ...]
    host: tuple[str, ...]


@dataclass(frozen=True)
class Steps:
    """The loop in three languages, printed instruction by instruction."""

    steps: tuple[LoweringStep, ...]

    def __str__(self) -> str:
        lines = ["LLVM IR", f"    {'PTX':34}{platform.machine()}"]
        for step in self.steps:
            lines += ["", f"{step.ir}  ; {step.meaning}"]
            pairs = itertools.zip_longest(step.ptx or ("-",), step.host or ("-",), fillvalue="")
            lines += [f"    {ptx:34}{host}".rstrip() for ptx, host in pairs]
        return "\n".join(lines)

    __repr__ = __str__


def compiled() -> Steps:
    """Return the instructions of the loop, each with those that LLVM makes of it for a GPU and for this machine."""
    ptx, host = (_by_line(assembly(gpu=gpu)) for gpu in (True, False))
    rows = [
        LoweringStep(" ".join(text.replace("SPACE ", "").split()), meaning, ptx.get(i, ()), host.get(i, ()))
        for i, (text, meaning) in enumerate(BODY)
        if i
    ]
    return Steps(tuple(rows))


def _by_line(text: str) -> dict[int, tuple[str, ...]]:
    """Return the instructions of an assembly by the line of the debug location before them."""
    found: dict[int, tuple[str, ...]] = {}
    line = 0
    for row in map(str.strip, text.splitlines()):
        if location := re.match(r"\.loc\s+\d+ (\d+)", row):
            line = int(location[1])
        elif line and row and not re.match(r"[.$\w]+:|[.#/]", row):
            found[line] = (*found.get(line, ()), " ".join(row.split()))
    return found


if __name__ == "__main__":
    print(compiled())
