"""Claims: evaluated by confidence intervals, not by noise."""

import pytest

from mlhood.errors import MeasureError
from mlhood.measure import Claim, Count, Measurement, agree, faster
from mlhood.measure.claims import STATES, ratio

ROWS, COLUMNS = ("C1", "C2"), ("slow", "fast")


def rounds(*seconds, run="r", agreed=True):
    return Measurement(tuple(seconds), run=run, agreed=agreed)


def cells(**changes):
    measured = {
        ("C1", "slow"): rounds(*[2.0] * 21, run="1"),
        ("C1", "fast"): rounds(*[1.0] * 21, run="1"),
        ("C2", "slow"): rounds(*[6.0] * 21, run="2"),
        ("C2", "fast"): rounds(*[2.0] * 21, run="2"),
    }
    return measured | {(name[:2], name[3:]): cell for name, cell in changes.items()}


def evaluate(claim, cells):
    return claim.evaluate(cells, ROWS, COLUMNS)


def test_a_claim_holds_in_every_row():
    verdict = evaluate(faster("fast", "slow"), cells())
    assert verdict
    assert str(verdict) == "holds: fast is faster than slow in every row"


@pytest.mark.parametrize(("by", "state"), [(1.0, "holds"), (1.99, "holds"), (2.01, "fails"), (3.5, "fails")])
def test_a_claim_may_have_a_factor(by, state):
    assert evaluate(Claim("a factor", ("*", "slow"), ">", ("*", "fast"), by), cells()).state == state


def test_the_worst_row_decides_and_gives_the_reason():
    verdict = evaluate(faster("fast", "slow"), cells(C2_fast=rounds(*[7.0] * 21, run="2")))
    assert not verdict
    assert verdict.state == "fails"
    assert verdict.reasons == ("C2/slow against C2/fast: ratio 0.86 [0.86, 0.86], claimed > 1",)


def test_an_interval_around_the_threshold_is_open():
    noisy = rounds(*[1.9, 2.1] * 10, 2.0, run="1")
    verdict = evaluate(faster("fast", "slow"), cells(C1_fast=noisy))
    assert verdict.state == "open"
    assert "measure more rounds" in str(verdict)


def test_an_empty_cell_is_missing_but_does_not_hide_a_failure():
    partial = cells()
    del partial["C1", "fast"]
    assert evaluate(faster("fast", "slow"), partial).state == "missing"
    assert "C1/fast not measured yet" in str(evaluate(faster("fast", "slow"), partial))
    partial["C2", "fast"] = rounds(*[7.0] * 21, run="2")
    assert evaluate(faster("fast", "slow"), partial).state == "fails"


@pytest.mark.parametrize(
    ("cell", "state"),
    [
        (rounds(1.0, run="1"), "holds"),
        (rounds(1.0, run="1", agreed=False), "fails"),
        (rounds(1.0, run="3"), "fails"),
        (rounds(1.0, run=""), "fails"),
    ],
)
def test_agreement_comes_from_the_same_comparison(cell, state):
    assert evaluate(agree("fast", "slow"), cells(C1_fast=cell)).state == state


def test_claims_compare_any_cells():
    across = Claim("C2 takes longer", ("C2", "*"), ">", ("C1", "*"))
    assert evaluate(across, cells()).state == "holds"
    single = Claim("C1 slow is less than C2 fast", ("C1", "slow"), "<", ("C2", "slow"), 0.5)
    assert evaluate(single, cells()).state == "holds"


def test_counts_are_exact():
    counts = {("C1", "slow"): Count(10), ("C1", "fast"): Count(5), ("C2", "slow"): Count(4), ("C2", "fast"): Count(4)}
    assert evaluate(faster("fast", "slow"), counts).state == "fails"
    assert evaluate(Claim("half", ("C1", "fast"), "<", ("C1", "slow"), 0.51), counts).state == "holds"
    assert evaluate(Claim("same", ("C2", "fast"), "agree", ("C2", "slow")), counts).state == "holds"
    with pytest.raises(MeasureError, match="no ratio"):
        ratio(Count(1), rounds(1.0))


@pytest.mark.parametrize(
    "arguments",
    [
        ("x", ("C1", "*"), "<", ("C1", "fast")),
        ("x", ("C1", "slow"), "==", ("C1", "fast")),
        ("", ("C1", "slow"), "<", ("C1", "fast")),
        ("x", ("C1", "slow"), "<", ("C1", "fast"), 0.0),
    ],
)
def test_invalid_claims_are_refused(arguments):
    with pytest.raises(MeasureError):
        Claim(*arguments)


def test_a_claim_about_an_unknown_column_is_refused():
    with pytest.raises(MeasureError, match="unknown row or column"):
        evaluate(faster("fastest", "slow"), cells())


def test_claims_survive_a_round_trip():
    for claim in (Claim("twice", ("*", "slow"), ">", ("*", "fast"), 2.0), agree("fast", "slow")):
        assert Claim.from_dict(claim.to_dict()) == claim
    for change in ({"left": "ab"}, {"left": [1, 2]}, {"text": 3}, {"relation": []}, {"factor": "2"}):
        with pytest.raises(MeasureError):
            Claim.from_dict({**faster("a", "b").to_dict(), **change})
    assert STATES == ("fails", "missing", "open", "holds")
