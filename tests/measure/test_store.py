"""Results in a file: appended, loaded by tags, compared with later ones; a damaged line is named."""

import json

import pytest

from mlhood.errors import MeasureError, OutputError
from mlhood.measure import compare_runs, load, machine, save
from mlhood.measure.measurement import Comparison, Measurement
from mlhood.measure.store import fingerprint


def comparison(slow=2.0, fast=1.0, **machine):
    cells = {name: Measurement((seconds,) * 21, run=f"{slow}") for name, seconds in (("slow", slow), ("fast", fast))}
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


def test_an_incomplete_line_is_named_and_the_next_one_is_complete(tmp_path):
    path = tmp_path / "runs.jsonl"
    save(path, comparison())
    path.write_text(path.read_text(encoding="utf-8") + '{"format": 1, "ti', encoding="utf-8")
    save(path, comparison(), late=True)
    with pytest.raises(MeasureError, match="invalid JSON") as caught:
        load(path)
    assert "line 2" in str(caught.value)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], "", lines[2]]), encoding="utf-8")
    assert [record.tags for record in load(path)] == [{}, {"late": True}]


@pytest.mark.parametrize(
    "change", [{"format": 2}, {"tags": []}, {"result": {}}, {"more": 1}, {"result": [1]}, {"format": None}]
)
def test_an_invalid_line_is_named(tmp_path, change):
    path = tmp_path / "runs.jsonl"
    data = save(path, comparison()).to_dict()
    path.write_text(json.dumps({**data, **change}), encoding="utf-8")
    with pytest.raises(MeasureError) as caught:
        load(path)
    assert "line 1" in str(caught.value)


def test_files_that_cannot_be_read_or_written_are_reported(tmp_path):
    with pytest.raises(MeasureError, match="cannot be read"):
        load(tmp_path / "nothing")
    with pytest.raises(OutputError):
        save(tmp_path / "no folder" / "runs", comparison())
    with pytest.raises(MeasureError, match="not JSON-serializable"):
        save(tmp_path / "runs", comparison(), what=object())
    with pytest.raises(MeasureError, match="not JSON-serializable"):
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
    table = compare_runs(before, after)
    assert list(table["alternative"]) == ["slow", "fast"]
    assert [ratio.value for ratio in table["time"]] == [1.5, 1.0]
    assert table["speedup_before"][1].value == 2.0
    assert table["speedup_after"][1].value == 3.0
    assert not table["same_machine"].any()
    assert compare_runs([], after).empty
