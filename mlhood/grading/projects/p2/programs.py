"""Checks of P2.9: two nodes as a program of the low-level IR, written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir import TensorType
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import COMPILER
from mlhood.grading.projects.p2.loops import PROBES, function
from mlhood.grading.projects.p2.shapes import PADS_ORDER, arranged
from mlhood.grading.rpc.limited import IsolatedCallError
from mlhood.grading.variants.parameter import Parameter

# which of the two nodes has the strides `kernel`
KERNEL_STRIDES = Parameter("kernel_strides", ("pool", "conv", "both", "neither"))
RUNS = "mlhood.grading.projects.reference_runs:program_runs"
CASES = 3
REFUSED = "the verifier refuses the program of `by_hand`"
RESULT = "y = reshape(maxpool(relu(conv(x, w, b)))): "
STRIDES = {
    "pool": "stride 1 and `pads`, then windows and strides of `kernel`",
    "conv": "strides of `kernel` and `pads`, then windows of `kernel` and stride 1",
    "both": "strides of `kernel` and `pads`, then windows and strides of `kernel`",
    "neither": "stride 1 and `pads`, then windows of `kernel` and stride 1",
}
TYPES = "another type"
RULES = {
    "never deallocated": "Dealloc(buffer) once, after the last instruction that names it, or a view of it",
    "before it is allocated": "Alloc(buffer) before the instruction that writes it; x, w, b and y are there already",
    "was deallocated": "Dealloc(buffer) comes after the last instruction that names it, or a view of it",
    TYPES: "infer_conv and infer_pool compute the types of results; y is flat: a TensorView gives it another",
    "never written": "the last result belongs into the memory of y",
}
"""Hints by what the verifier's error says."""
HELD = "the pooling can write where y is, if y's memory has a second name and the type of the pooled image"


@dataclass(frozen=True)
class ProgramCase:
    """A drawn size of the two nodes.

    Args:
        arrays: The inputs by name.
        pads: Of the convolution, in the order in which the variant hands them over.
        kernel: Of the pooling.
        want: The right result.
        bytes: Size of the convolution's result.
    """

    arrays: dict[str, np.ndarray]
    pads: tuple[int, ...]
    kernel: tuple[int, int]
    want: np.ndarray
    bytes: int

    @property
    def types(self) -> dict[str, TensorType]:
        """The types of the inputs, by name."""
        return {name: TensorType("float32", array.shape) for name, array in self.arrays.items()}

    def __str__(self) -> str:
        x, w = self.arrays["x"].shape, self.arrays["w"].shape
        return f"x {list(x)}, w {list(w)}, pads {self.pads}, kernel {self.kernel}"


def _draw(submission: Submission) -> ProgramCase:
    rng = submission.rng
    channels, features, batch = (int(n) for n in rng.permutation([2, 3, 4, 5])[:3])
    rows, columns = (int(n) for n in rng.permutation(np.arange(11, 19))[:2])
    (tall, wide), pads = (int(n) for n in rng.permutation([2, 3])), tuple(int(n) for n in rng.permutation(4))
    kernel = tall, wide
    shapes = {"x": (batch, channels, rows, columns), "w": (features, channels, 3, 2), "b": (features,)}
    arrays = {name: submission.normal(*shape) for name, shape in shapes.items()}
    conv_strides, pool_strides = _strides(submission, kernel)
    convolved = np.asarray(Conv(conv_strides, pads, (1, 1), 1, ("Relu",)).evaluate(*arrays.values()))
    pooled = np.asarray(MaxPool(kernel, pool_strides, (0, 0, 0, 0), (1, 1)).evaluate(convolved))
    return ProgramCase(arrays, arranged(submission, pads), kernel, pooled.reshape(batch, -1), convolved.nbytes)


def _strides(submission: Submission, kernel: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the strides of the convolution, and those of the pooling."""
    which = submission.parameters.kernel_strides
    return kernel if which in ("conv", "both") else (1, 1), kernel if which in ("pool", "both") else (1, 1)


def _pads_note(submission: Submission) -> str:
    order, usual = submission.parameters.pads_order, PADS_ORDER.default
    return "" if order == usual else f"; pads come as ({order}), and `Conv` takes ({usual})"


def _run(submission: Submission) -> list[tuple[ProgramCase, dict[str, Any]]]:
    by_hand, cases = function(submission, "by_hand"), [_draw(submission) for _ in range(CASES)]
    reports: list[dict[str, Any]] = []
    for case in cases:
        with expect.case(str(case)):
            y = TensorType("float32", case.want.shape)
            report = submission.call(PROBES + "by_hand", by_hand, case.types, y, case.pads, case.kernel)
            reports.append(dict(expect.mapping(report, (), "the report on `by_hand`")))
            if "returned" in report:
                what, hint = "`by_hand` does not return a list of instructions", "[Alloc(...), Compute(...), ...]"
                expect.fail(what, expected="a list of instructions", got=report["returned"], hint=hint)
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
            rule = next((rule for rule in RULES if rule in what), None)
            hint = RULES[rule] + (_pads_note(submission) if rule == TYPES else "") if rule else None
            expect.fail(f"{REFUSED}: {what}", **parts, given=report.get("where", str(case)), hint=hint)
        with expect.case(str(case), RESULT + STRIDES[submission.parameters.kernel_strides] + _pads_note(submission)):
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
