"""Checks of P2.9 and P2.10: two nodes as a program of the low-level IR, live ranges, and an allocator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlhood.compiler.hir import TensorType
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.lir.instructions import Alloc, Buffer, Compute, Copy, Dealloc, Instruction, TensorView
from mlhood.compiler.lir.parse import constants_by_digest
from mlhood.compiler.lir.program import Lifetime, Program, with_deallocs
from mlhood.compiler.lir.text import instruction_text, to_text
from mlhood.compiler.memory.plan import live_bytes, plan
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Check, Task, points
from mlhood.grading.projects.p2.libraries import COMPILER
from mlhood.grading.projects.p2.loops import PROBES
from mlhood.grading.projects.p2.shapes import arranged
from mlhood.grading.rpc.limited import IsolatedCallError
from mlhood.grading.variants.parameter import Parameter

# which of the two nodes has the strides `kernel`
KERNEL_STRIDES = Parameter("kernel_strides", ("pool", "conv", "both", "neither"))
RUNS = "mlhood.grading.projects.reference_runs:program_runs"
CASES = 3
REFUSED = "the verifier refuses the program of `by_hand`"
RESULT = "y = reshape(maxpool(relu(conv(x, w, b)))): which of the two has the strides `kernel`?"
RULES = """Alloc(buffer) comes before the instruction that writes it, Dealloc(buffer) after the last that names it, \
or a view of it; x, w, b and y are there already. infer_conv and infer_pool compute the types of results; y is \
flat: a TensorView gives its memory another type, for the last result"""
HELD = "the pooling can write where y is, if y's memory has a second name and the type of the pooled image"


class ProgramCase(NamedTuple):
    """Drawn inputs by name, pads in the variant's order, and kernel; the right y, and the bytes of the convolution."""

    arrays: dict[str, np.ndarray]
    pads: tuple[int, ...]
    kernel: tuple[int, int]
    want: np.ndarray
    bytes: int

    def __str__(self) -> str:
        x, w = self.arrays["x"].shape, self.arrays["w"].shape
        return f"x {list(x)}, w {list(w)}, pads {self.pads}, kernel {self.kernel}"


def _draw(submission: Submission) -> ProgramCase:
    rng = submission.rng
    channels, features, batch = (int(n) for n in rng.permutation([2, 3, 4, 5])[:3])
    rows, columns = (int(n) for n in rng.permutation(np.arange(11, 19))[:2])
    kernel, pads = ((2, 3), (3, 2))[int(rng.integers(2))], tuple(int(n) for n in rng.permutation(4))
    shapes = {"x": (batch, channels, rows, columns), "w": (features, channels, 3, 2), "b": (features,)}
    arrays = {name: submission.normal(*shape) for name, shape in shapes.items()}
    which = submission.parameters.kernel_strides
    conv_strides, pool_strides = (kernel if which in (each, "both") else (1, 1) for each in ("conv", "pool"))
    convolved = np.asarray(Conv(conv_strides, pads, (1, 1), 1, ("Relu",)).evaluate(*arrays.values()))
    pooled = np.asarray(MaxPool(kernel, pool_strides, (0, 0, 0, 0), (1, 1)).evaluate(convolved))
    return ProgramCase(arrays, arranged(submission, pads), kernel, pooled.reshape(batch, -1), convolved.nbytes)


def _run(submission: Submission) -> list[tuple[ProgramCase, dict[str, Any]]]:
    cases = [_draw(submission) for _ in range(CASES)]
    reports: list[dict[str, Any]] = []
    for case in cases:
        with expect.case(str(case), "return a list of instructions: [Alloc(...), Compute(...), ...]"):
            types = [TensorType("float32", array.shape) for array in (*case.arrays.values(), case.want)]
            inputs = dict(zip(case.arrays, types, strict=False))
            report = submission.probe(PROBES + "by_hand", "by_hand", inputs, types[-1], case.pads, case.kernel)
            reports.append(dict(expect.mapping(report, (), "the report on `by_hand`")))
            what = "`by_hand` does not return a list of instructions"
            expect.true("returned" not in report, what, got=report.get("returned"))
    texts = [report["text"] for report in reports if isinstance(report.get("text"), str)]
    if len(texts) < CASES:  # those that are refused first: the others have not been run
        return sorted(zip(cases, reports, strict=True), key=lambda pair: "error" not in pair[1])
    try:
        return list(zip(cases, submission.parser.call(RUNS, texts, [case.arrays for case in cases]), strict=True))
    except IsolatedCallError as failure:
        raise expect.CheckFailed(REFUSED, got=str(failure)) from None


def _check_runs(submission: Submission, check: Callable[[np.ndarray, ProgramCase, int], None]) -> None:
    """Check the result of the student's program for each drawn case, and the bytes that are live at once in it."""
    for case, report in submission.once("runs", lambda: _run(submission)):
        if "error" in report:
            what, parts = str(report["error"]), {name: report[name] for name in ("expected", "got") if name in report}
            expect.fail(f"{REFUSED}: {what}", **parts, given=report.get("where", str(case)), hint=RULES)
        with expect.case(str(case), RESULT):
            check(report["outputs"]["y"], case, report["peak"])


def _check_memory(y: np.ndarray, case: ProgramCase, peak: int) -> None:
    expect.resembles(y, case.want, "y")
    what = "more memory is live at once than the two nodes need"
    expect.true(peak <= case.bytes, what, expected=f"{case.bytes:,} bytes", got=f"{peak:,} bytes", hint=HELD)


@points(2)
def program_is_accepted(submission: Submission) -> None:
    """The verifier accepts the program of `by_hand`, for any sizes."""
    _check_runs(submission, lambda y, case, peak: expect.resembles(y, case.want, "y"))


@points(4)
def program_computes_both_nodes(submission: Submission) -> None:
    """The program computes what the interpreter computes for the two nodes, on unseen inputs and sizes."""
    _check_runs(submission, lambda y, case, peak: expect.close(y, case.want, "y"))


@points(2)
def nothing_is_held_too_long(submission: Submission) -> None:
    """No more than the convolution's result is live at once."""
    _check_runs(submission, _check_memory)


P2_9 = Task(
    "P2.9",
    "Lower two nodes by hand",
    libraries=COMPILER,
    minutes=25,
    builds_on=("P2.3",),
    varies=(KERNEL_STRIDES,),
)


# what `live_ranges` says of a buffer
RANGE_FORM = Parameter("range_form", ("first, last", "first, end", "first, length", "first, last, uses"))

IMAGE, FLAT = TensorType("float32", (2, 3, 4, 4)), TensorType("float32", (2, 48))
RANDOM_SETS, EQUAL_SETS = 40, 3
ALIGNMENT = 64


def draw_program(rng: np.random.Generator, views: bool) -> Program:
    """Draw a program of element-wise instructions, some of them in place.

    With views, if asked: of buffers and of what is declared, up to three deep, before the first use of their memory and
    after the last. Without them, there is a constant.
    """
    program, names = Program("drawn"), [f"w{i}" for i in rng.permutation(9)]
    x, y = program.declare_input(names[0], IMAGE), program.declare_output(names[1], IMAGE)
    rows, flat, target = (Buffer(name, FLAT) for name in ("rows", "flat", "target"))
    values: list[Buffer] = [x]
    late: list[Buffer] = []
    steps: list[Instruction] = []

    def add(operator: Operator, *reads: Buffer, views: Sequence[Buffer] = ()) -> Buffer:
        buffer = Buffer(f"v{len(steps)}", reads[0].type)
        before = [TensorView(*pair) for pair in zip(views, (buffer, *views), strict=False)]
        steps.extend([Alloc(buffer), *before, Compute(operator, (buffer,), reads)])
        return buffer

    if not views:
        values.append(add(Add(), x, program.declare_constant(names[2], np.ones((2, 3, 4, 4), np.float32))))
    for number in range(int(rng.integers(6, 12))):
        pair = [values[int(i)] for i in rng.integers(max(0, len(values) - 3), len(values), 2)]
        chain = [Buffer(f"view{number}.{i}", (FLAT, IMAGE)[i % 2]) for i in range(3)] if views else []
        values.append(add(Add(), *pair, views=chain))
        if rng.random() < 0.3:
            steps.append(Compute(Relu(), (values[-1],), (values[-1],)))
        if views and rng.random() < 0.6:
            late.append(chain[int(rng.integers(3))])
    if views:
        steps += [TensorView(rows, x), TensorView(flat, values[-1])]
        late += [rows, flat]
    for view in late:
        add(Relu(), view)
    steps.append(Copy(y, values[-1]))
    if views:  # y is written again, by a second name, and a view of what was read before is not used at all
        steps += [TensorView(target, y), Copy(target, flat), TensorView(Buffer("after", FLAT), rows)]
    program.instructions = steps
    program.instructions = with_deallocs(steps, program.memory())
    return program


def _check_ranges(submission: Submission, views: bool, hint: str) -> None:
    form = submission.parameters.range_form
    for _ in range(3):
        program = draw_program(submission.rng, views)
        steps = [each for each in program.instructions if not isinstance(each, (Alloc, Dealloc))]
        want = submission.solution("live_ranges", steps)
        with expect.case(f"{len(steps)} instructions", hint):
            answer = submission.probe(PROBES + "ranges", "live_ranges", to_text(program), constants_by_digest(program))
            got = expect.mapping(answer, tuple(want), "what `live_ranges` returns")
            extra, what = sorted(map(str, got.keys() - want.keys())), "`live_ranges` has a range for what has none"
            expect.true(not extra, what, got=extra, hint="weights are declared, and a view has no memory")
            for name, right in want.items():
                ends = right[0], {"first, end": right[1] - 1, "first, length": sum(right[:2]) - 1}.get(form, right[1])
                lines = "; ".join(f"{i}: {instruction_text(steps[i])}" for i in ends)
                what = f"the range of {name} in `live_ranges`"
                found = expect.sequence(got[name], tuple, what)
                is_right = found == right and {*map(type, found)} == {int}
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
    """Draw sets of lifetimes, each with a description."""
    sets = [("buffers of random lifetimes", random_buffers(rng)) for _ in range(RANDOM_SETS)]
    return sets + [("buffers of one size", random_buffers(rng, equal=True)) for _ in range(EQUAL_SETS)]


def _offsets(submission: Submission, buffers: list[Lifetime], alignment: int) -> dict[str, int]:
    """Return the student's offsets by name, of which each is a whole number of bytes."""
    lifetimes = [tuple(buffer) for buffer in buffers]
    answer = submission.probe(PROBES + "allocated", "allocate", lifetimes, alignment)
    got = expect.mapping(answer, tuple(buffer.name for buffer in buffers), "what `allocate` returns")
    offsets = {buffer.name: expect.integer(got[buffer.name], "the offsets of `allocate`") for buffer in buffers}
    expect.true(min(offsets.values()) >= 0, "an offset of `allocate` is negative", got=min(offsets.values()))
    return offsets


def _check_overlap(buffers: list[Lifetime], offsets: dict[str, int]) -> None:
    for one, other in itertools.combinations(buffers, 2):
        alive = one.first <= other.last and other.first <= one.last
        start, end = offsets[one.name], offsets[other.name]
        apart = start >= end + other.bytes or end >= start + one.bytes
        what = "`allocate` lets two buffers that are live at the same time share memory"
        got = "; ".join(f"{b.name} {offsets[b.name]} + {b.bytes}, live {b.first} to {b.last}" for b in (one, other))
        hint = "both ends belong to a lifetime; is every later buffer compared with every one that is placed?"
        expect.true(apart or not alive, what, expected="addresses apart", got=got, hint=hint)


@points(1)
def buffers_do_not_overlap(submission: Submission) -> None:
    """`allocate` gives no two buffers that are live at the same time a common byte."""
    for name, buffers in draw_sets(submission.rng)[::3]:
        with expect.case(f"{len(buffers)} buffers, {name}"):
            _check_overlap(buffers, _offsets(submission, buffers, ALIGNMENT))


@points(1)
def offsets_are_aligned(submission: Submission) -> None:
    """Every offset of `allocate` is a multiple of the alignment."""
    for alignment in submission.rng.permutation([16, 32, 64, 256]).tolist():
        buffers = random_buffers(submission.rng)
        given = f"alignment {alignment}, {len(buffers)} buffers of random lifetimes"
        with expect.case(given, "where does a buffer end, and where may the next one begin?"):
            offsets = _offsets(submission, buffers, alignment)
            wrong = [f"{name}: {offset}" for name, offset in offsets.items() if offset % alignment]
            what, expected = "an offset of `allocate` is not aligned", f"multiples of {alignment}"
            expect.true(not wrong, what, expected=expected, got=", ".join(wrong[:3]))
            expect.true(len(set(offsets.values())) > 1, "`allocate` gives all buffers one address")


def _measure(submission: Submission) -> tuple[float, float]:
    """Return the mean efficiency of the student's allocator on sets that nobody has seen, and the compiler's."""
    own, compiler = [], []
    for name, buffers in draw_sets(submission.rng):
        with expect.case(f"{len(buffers)} buffers, {name}"):
            offsets = _offsets(submission, buffers, ALIGNMENT)
            _check_overlap(buffers, offsets)
        arena = max(offsets[buffer.name] + buffer.bytes for buffer in buffers)
        own.append(int(live_bytes(buffers).max()) / arena)
        compiler.append(plan(buffers, ALIGNMENT).efficiency)
    return float(np.mean(own)), float(np.mean(compiler))


def _check_efficiency(submission: Submission, share: float, hint: str) -> None:
    own, compiler = submission.once("efficiencies", lambda: _measure(submission))
    what, got = "the arena of `allocate` is larger than it has to be", f"{own:.1%}; the compiler reaches {compiler:.1%}"
    expected = f"{share:.0%} of it live at once, on average"
    given = f"{RANDOM_SETS + EQUAL_SETS} drawn sets of lifetimes"
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
    varies=(RANGE_FORM,),
)
