"""Checks of P2.10: live ranges of buffers and their views, and an allocator that shares memory between them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from mlhood.compiler.hir import TensorType
from mlhood.compiler.lir.instructions import Alloc, Buffer, Compute, Copy, Dealloc, TensorView
from mlhood.compiler.lir.parse import constants_by_digest
from mlhood.compiler.lir.program import Lifetime, Program, with_deallocs
from mlhood.compiler.lir.text import instruction_text, to_text
from mlhood.compiler.memory.plan import live_bytes, plan
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Relu
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Check, Task, points
from mlhood.grading.projects.p2.libraries import COMPILER
from mlhood.grading.projects.p2.loops import PROBES, function
from mlhood.grading.variants.parameter import Parameter

# what `live_ranges` says of a buffer, and the last argument of `allocate`
RANGE_FORM = Parameter("range_form", ("first, last", "first, end", "first, length", "first, last, uses"))
ALLOCATE_ARGUMENT = Parameter("allocate_argument", ("none", "reserved", "gap", "pinned"))

IMAGE, FLAT = TensorType("float32", (2, 3, 4, 4)), TensorType("float32", (2, 48))
RANDOM_SETS, EQUAL_SETS, U_NETS = 24, 14, 8
ALIGNMENT = 64


def draw_program(rng: np.random.Generator, views: bool) -> Program:
    """Draw a program of element-wise instructions, some of them in place.

    With views, if asked: of buffers and of what is declared, up to three deep, before the first use of their memory and
    after the last. Without them, there is a constant.
    """
    program, taken = Program("drawn"), 0
    names = [f"w{i}" for i in rng.permutation(9)]
    x, y = program.declare_input(names[0], IMAGE), program.declare_output(names[1], IMAGE)
    values: list[Buffer] = [x]
    late, instructions = [], []
    if not views:
        constant = program.declare_constant(names[2], np.ones((2, 3, 4, 4), np.float32))
        early = Buffer("v", IMAGE)
        instructions += [Alloc(early), Compute(Add(), (early,), (x, constant))]
        values.append(early)
    for taken in range(int(rng.integers(6, 12))):
        buffer = Buffer(f"v{taken}", IMAGE)
        pair = [values[int(i)] for i in rng.integers(max(0, len(values) - 3), len(values), 2)]
        before = [TensorView(Buffer(f"v{taken}.unused", FLAT), buffer)] if views and rng.random() < 0.5 else []
        instructions += [Alloc(buffer), *before, Compute(Add(), (buffer,), tuple(pair))]
        if rng.random() < 0.3:
            instructions.append(Compute(Relu(), (buffer,), (buffer,)))
        values.append(buffer)
        if views and rng.random() < 0.6:
            flat, again = Buffer(f"v{taken}.flat", FLAT), Buffer(f"v{taken}.again", IMAGE)
            third = Buffer(f"v{taken}.third", FLAT)
            instructions += [TensorView(flat, buffer), TensorView(again, flat), TensorView(third, again)]
            late.append((flat, again, third)[int(rng.integers(3))])
    if views:
        rows, flat = Buffer("rows", FLAT), Buffer("flat", FLAT)
        instructions += [TensorView(rows, x), TensorView(flat, values[-1])]
        late += [rows, flat]
    for view in late:
        taken += 1
        result = Buffer(f"v{taken}", view.type)
        instructions += [Alloc(result), Compute(Relu(), (result,), (view,))]
    instructions.append(Copy(y, values[-1]))
    if views:  # y is written again, by a second name, and a view of what was read before is not used at all
        target = Buffer("target", FLAT)
        instructions += [TensorView(target, y), Copy(target, late[-1]), TensorView(Buffer("after", FLAT), late[0])]
    program.instructions = instructions
    program.instructions = with_deallocs(instructions, program.memory())
    return program


FORM_HINTS = {
    "first, last": "",
    "first, end": "; the end is the number after that of the last instruction",
    "first, length": "; both ends count for the length",
    "first, last, uses": "; an instruction is one use, however often it names the buffer",
}


def _check_ranges(submission: Submission, views: bool, hint: str) -> None:
    ranges, form = function(submission, "live_ranges"), submission.parameters.range_form
    hint += FORM_HINTS[form]
    for _ in range(3):
        program = draw_program(submission.rng, views)
        steps = [each for each in program.instructions if not isinstance(each, (Alloc, Dealloc))]
        want = submission.solution("live_ranges", steps)
        with expect.case(f"{len(steps)} instructions", hint):
            answer = submission.call(PROBES + "ranges", ranges, to_text(program), constants_by_digest(program))
            got = expect.mapping(answer, tuple(want), "what `live_ranges` returns")
            extra = ", ".join(str(name) for name in got if name not in want)
            what, weights = "`live_ranges` has a range for what is not allocated", "weights are declared"
            expect.true(not extra, what, got=extra, hint=f"{weights}, and a view has no memory")
            for name, right in want.items():
                what = f"the range of {name} in `live_ranges`"
                ends = right[0], {"first, end": right[1] - 1, "first, length": sum(right[:2]) - 1}.get(form, right[1])
                lines = "; ".join(f"{i}: {instruction_text(steps[i])}" for i in ends)
                found = expect.sequence(got[name], tuple, what)
                is_right = found == right and all(type(number) is int for number in found)
                expect.true(is_right, f"{what} is wrong", expected=f"{right}: {lines}", got=found)


@points(2, solved=True)
def ranges_are_found(submission: Submission) -> None:
    """`live_ranges` finds {{ "the first and the last instruction that read or write" if range_form == "first, last" else "(%s) of" % range_form }} each buffer."""  # noqa: E501 a template
    hint = "instructions are numbered from 0; a buffer that is written and never read has a range, too"
    _check_ranges(submission, False, hint)


@points(2, solved=True)
def views_keep_their_owner_alive(submission: Submission) -> None:
    """`live_ranges` counts a use of a view, or of a view of a view, as a use of the buffer that owns the memory."""
    hint = "to whom does the memory of a view belong, if its source is a view itself?"
    _check_ranges(submission, True, hint)


def draw_sets(rng: np.random.Generator) -> list[tuple[str, list[Lifetime]]]:
    """Draw sets of lifetimes, each with a description: at random, and those of networks of drawn widths."""
    sets = [("buffers of random lifetimes", random_buffers(rng)) for _ in range(RANDOM_SETS)]
    sets += [("a U-Net", u_net(rng)) for _ in range(U_NETS)]
    return sets + [("buffers of one size", random_buffers(rng, equal=True)) for _ in range(EQUAL_SETS)]


def _argument(submission: Submission, buffers: list[Lifetime], unit: int) -> dict[str, Any]:
    """Draw the last argument of `allocate` in a variant; a gap is a multiple of a unit."""
    rng, name = submission.rng, submission.parameters.allocate_argument
    if name == "none":
        return {}
    if name == "pinned":
        return {name: buffers[int(rng.integers(len(buffers)))].name}
    return {name: int(rng.integers(100, 5000)) if name == "reserved" else unit * int(rng.integers(1, 2500 // unit))}


def _offsets(submission: Submission, buffers: list[Lifetime], alignment: int, extra: dict[str, Any]) -> dict[str, int]:
    """Return the student's offsets by name, of which each is a whole number of bytes."""
    arguments = [tuple(buffer) for buffer in buffers], alignment, *((extra,) if extra else ())
    answer = submission.call(PROBES + "allocated", function(submission, "allocate"), *arguments)
    got = expect.mapping(answer, tuple(buffer.name for buffer in buffers), "what `allocate` returns")
    offsets = {buffer.name: expect.integer(got[buffer.name], "the offsets of `allocate`") for buffer in buffers}
    wrong = {name: offset for name, offset in offsets.items() if offset < 0}
    expect.true(not wrong, "an offset of `allocate` is negative", expected="whole numbers, 0 or more", got=wrong)
    return offsets


def _given(text: str, extra: dict[str, Any]) -> str:
    return text + "".join(f", {name} {value}" for name, value in extra.items())


def _check_overlap(buffers: list[Lifetime], offsets: dict[str, int], extra: dict[str, Any]) -> None:
    gap, reserved = extra.get("gap", 0), extra.get("reserved", 0)
    for one, other in itertools.combinations(buffers, 2):
        alive = one.first <= other.last and other.first <= one.last
        start, end = offsets[one.name], offsets[other.name]
        if alive and start < end + other.bytes + gap and end < start + one.bytes + gap:
            what = "`allocate` lets two buffers that are live at the same time share memory"
            what += ", or keeps no gap between them" if gap else ""
            expected = f"addresses apart, with {gap} bytes or more between them" if gap else "addresses apart"
            got = "; ".join(f"{b.name} {offsets[b.name]} + {b.bytes}, live {b.first} to {b.last}" for b in (one, other))
            hint = "both ends belong to a lifetime; is every later buffer compared with every one that is placed?"
            expect.fail(what, expected=expected, got=got, hint=hint)
    lowest = min(offsets, key=offsets.__getitem__)
    what, hint = "`allocate` uses what is reserved", "which is the first address that is free and aligned?"
    got = f"{lowest} at {offsets[lowest]}"
    expect.true(offsets[lowest] >= reserved, what, expected=f"{reserved} or more", got=got, hint=hint)
    if "pinned" in extra:
        what, hint = "the pinned buffer is not at 0", "which buffer has to be placed before all others?"
        expect.equal(offsets[extra["pinned"]], 0, what, hint=hint)


@points(1)
def buffers_do_not_overlap(submission: Submission) -> None:
    """`allocate` gives no two buffers that are live at the same time a common byte{{ {'reserved': ', nor any a reserved one', 'gap': ', and keeps gaps between them', 'pinned': '; the pinned one is at 0'}.get(allocate_argument, '') }}."""  # noqa: E501
    for i, (name, buffers) in enumerate(draw_sets(submission.rng)[::3]):
        extra = _argument(submission, buffers, 1) if i else {}  # it may be left out
        with expect.case(_given(f"{len(buffers)} buffers, {name}", extra)):
            _check_overlap(buffers, _offsets(submission, buffers, ALIGNMENT, extra), extra)


@points(1)
def offsets_are_aligned(submission: Submission) -> None:
    """Every offset of `allocate` is a multiple of the alignment."""
    for alignment in (int(n) for n in submission.rng.permutation([16, 32, 64, 256])):
        buffers = random_buffers(submission.rng)
        extra = _argument(submission, buffers, 1)
        given = _given(f"alignment {alignment}, {len(buffers)} buffers of random lifetimes", extra)
        with expect.case(given, "where does a buffer end, and where may the next one begin?"):
            offsets = _offsets(submission, buffers, alignment, extra)
            wrong = [f"{name}: {offset}" for name, offset in offsets.items() if offset % alignment]
            what, expected = "an offset of `allocate` is not aligned", f"multiples of {alignment}"
            expect.true(not wrong, what, expected=expected, got=", ".join(wrong[:3]))
            distinct = len(set(offsets.values()))
            expect.true(distinct > 1, "`allocate` gives all buffers one address", got=distinct)


def _measure(submission: Submission) -> tuple[float, float]:
    """Return the mean efficiency of the student's allocator on sets that nobody has seen, and the compiler's."""
    own, compiler = [], []
    for i, (name, buffers) in enumerate(draw_sets(submission.rng)):
        extra = _argument(submission, buffers, ALIGNMENT) if i else {}  # it may be left out
        with expect.case(_given(f"{len(buffers)} buffers, {name}", extra)):
            offsets = _offsets(submission, buffers, ALIGNMENT, extra)
            _check_overlap(buffers, offsets, extra)
        # a gap counts as part of the buffer below it, and what is reserved does not count
        counted = [buffer._replace(bytes=buffer.bytes + extra.get("gap", 0)) for buffer in buffers]
        reserved = -(-extra.get("reserved", 0) // ALIGNMENT) * ALIGNMENT
        arena = max(offsets[buffer.name] + buffer.bytes for buffer in counted) - reserved
        own.append(int(live_bytes(counted).max()) / arena)
        compiler.append(plan(counted, ALIGNMENT).efficiency)
    return float(np.mean(own)), float(np.mean(compiler))


def _check_efficiency(submission: Submission, share: float, hint: str) -> None:
    own, compiler = submission.once("efficiencies", lambda: _measure(submission))
    what, got = "the arena of `allocate` is larger than it has to be", f"{own:.1%}; the compiler reaches {compiler:.1%}"
    expected = f"{share:.0%} of it live at once, on average"
    given = f"{RANDOM_SETS + EQUAL_SETS} random sets of lifetimes, and those of {U_NETS} U-Nets"
    expect.true(own >= share, what, expected=expected, got=got, given=given, hint=hint)


TITLE = "At least {} % of the arena is live at once, on average over unseen lifetimes"
# The compiler's own reaches 0.999. The lowest address where a buffer fits gives 0.92 in the order of allocation or with
# the smallest first, 0.99 by size times lifetime, 0.995 by size.
STEPS = (
    (0.75, "which of the placed buffers are in the way of the next, and which are dead or not yet alive?"),
    (0.85, "there may be room between two buffers that are already placed, also for one that fits exactly"),
    (0.96, "the order in which buffers are placed decides: which of them are hard to place late?"),
)


def random_buffers(rng: np.random.Generator, *, equal: bool = False) -> list[Lifetime]:
    """Draw 25 to 50 buffers of 64 bytes to 64 KiB, most of which live for a few instructions.

    Buffers of equal size, such as those between layers of one shape, fit exactly where another one was.
    """
    count = int(rng.integers(25, 50))
    firsts, lengths = np.sort(rng.integers(0, 2 * count, count)).tolist(), rng.geometric(0.18, count).tolist()
    sizes = [64 * int(rng.integers(8, 512))] * count if equal else (2 ** rng.uniform(6, 16, count)).astype(int).tolist()
    rows = zip(sizes, firsts, lengths, strict=True)
    return [Lifetime(f"v{i}", size, first, first + length) for i, (size, first, length) in enumerate(rows)]


def u_net(rng: np.random.Generator) -> list[Lifetime]:
    """Draw a U-Net of another width and resolution: on its way up, it joins what it computed on its way down.

    It is that of Ronneberger et al. (2015, figure 1): one buffer for each fused operator, float32, one image.
    """
    lifetimes: list[Lifetime] = []

    def add(channels: int, size: int, *inputs: int) -> int:
        """Add the result of an instruction that reads earlier ones, [channels, size, size], and return its number."""
        step = len(lifetimes)
        for number in inputs:
            lifetimes[number] = lifetimes[number]._replace(last=step)
        lifetimes.append(Lifetime(f"v{step}", 4 * channels * size * size, step, step))
        return step

    channels, size = int(rng.integers(24, 80)), int(rng.integers(96, 200))
    x, waiting = add(3, size), []
    for _ in range(4):
        x = add(channels, size, add(channels, size, x))
        waiting.append((x, channels, size))
        channels, size = 2 * channels, (size + 1) // 2
        x = add(channels // 2, size, x)
    x = add(channels, size, add(channels, size, x))
    for shortcut, channels, size in reversed(waiting):
        joined = add(2 * channels, size, add(channels, size, x), shortcut)
        x = add(channels, size, add(channels, size, joined))
    add(2, size, x)
    return lifetimes


P2_10 = Task(
    "P2.10",
    "Live ranges and a memory allocator",
    checks=(
        ranges_are_found,
        views_keep_their_owner_alive,
        buffers_do_not_overlap,
        offsets_are_aligned,
        Check("memory_is_used_again", TITLE.format(75), 1, _check_efficiency, STEPS[0]),
        Check("gaps_are_filled", TITLE.format(85), 1, _check_efficiency, STEPS[1]),
        Check("hardly_a_byte_is_wasted", TITLE.format(96), 2, _check_efficiency, STEPS[2]),
    ),
    libraries=COMPILER,
    minutes=35,
    builds_on=("P2.9",),
    varies=(RANGE_FORM, ALLOCATE_ARGUMENT),
)
