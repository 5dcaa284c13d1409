"""Results in a file: added, found again, compared with later ones; a damaged line is named."""

import json

import pytest

from mlhood.errors import MeasureError, OutputError
from mlhood.measure import compare_runs, load, machine, save
from mlhood.measure.measurement import Measurement
from mlhood.measure.result import Comparison
from mlhood.measure.store import fingerprint


def comparison(slow=2.0, fast=1.0, **machine):
    cells = {name: Measurement((lasts,) * 21, run=f"{slow}") for name, lasts in (("slow", slow), ("fast", fast))}
    return Comparison(cells, "slow", machine=machine)


def test_results_are_found_by_their_tags(tmp_path):
    path = tmp_path / "runs.jsonl"
    saved = [save(path, comparison(n), bench="gemm", n=n) for n in (1.0, 2.0)]
    save(path, comparison(), bench="conv")
    assert load(path)[:2] == saved
    assert load(path, bench="gemm", n=2.0) == [saved[1]]
    assert load(path, bench="gemm", other=None) == saved
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3
    assert saved[0].time.endswith("+00:00")


def test_a_line_that_was_cut_off_is_named_and_the_next_one_is_whole(tmp_path):
    path = tmp_path / "runs.jsonl"
    save(path, comparison())
    path.write_text(path.read_text(encoding="utf-8") + '{"format": 1, "ti', encoding="utf-8")
    save(path, comparison(), late=True)
    with pytest.raises(MeasureError, match="no JSON") as found:
        load(path)
    assert "line 2" in str(found.value)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], "", lines[2]]), encoding="utf-8")
    assert [record.tags for record in load(path)] == [{}, {"late": True}]


@pytest.mark.parametrize(
    "change", [{"format": 2}, {"tags": []}, {"result": {}}, {"more": 1}, {"result": [1]}, {"format": None}]
)
def test_a_line_that_is_no_result_is_named(tmp_path, change):
    path = tmp_path / "runs.jsonl"
    data = save(path, comparison()).to_dict()
    path.write_text(json.dumps({**data, **change}), encoding="utf-8")
    with pytest.raises(MeasureError) as found:
        load(path)
    assert "line 1" in str(found.value)


def test_what_cannot_be_read_or_written_is_told(tmp_path):
    with pytest.raises(MeasureError, match="cannot be read"):
        load(tmp_path / "nothing")
    with pytest.raises(OutputError):
        save(tmp_path / "no folder" / "runs", comparison())
    with pytest.raises(MeasureError, match="no plain data"):
        save(tmp_path / "runs", comparison(), what=object())
    with pytest.raises(MeasureError, match="no plain data"):
        save(tmp_path / "runs", comparison(), what=float("nan"))
    assert not (tmp_path / "runs").exists()


def test_the_fingerprint_is_that_of_the_hardware():
    facts = machine().as_dict()
    assert fingerprint() == fingerprint(facts) == fingerprint({**facts, "python": "4", "memory": {}})
    assert fingerprint({**facts, "cpu": "other"}) != fingerprint(facts)
    assert len(fingerprint()) == 12


def test_runs_are_compared_by_tags(tmp_path):
    before = [save(tmp_path / "a", comparison(2.0, 1.0, cpu="x"), n=n) for n in (1, 2)]
    after = [save(tmp_path / "b", comparison(3.0, 1.0, cpu="y"), n=2), save(tmp_path / "b", comparison(), n=3)]
    found = compare_runs(before, after)
    assert list(found["alternative"]) == ["slow", "fast"]
    assert [ratio.value for ratio in found["time"]] == [1.5, 1.0]
    assert found["speedup_before"][1].value == 2.0
    assert found["speedup_after"][1].value == 3.0
    assert not found["same_machine"].any()
    assert compare_runs([], after).empty
