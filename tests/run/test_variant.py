from __future__ import annotations

import os

import pytest
from nbformat.v4 import new_code_cell

from mlhood.errors import GradingError, OutputError
from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.projects.collect import VARIANT
from mlhood.run.run import kernels_of_variant, require_for_variant, variant_folder
from tests.run.test_run import run


def test_the_kernels_of_a_run_know_the_variant_and_later_ones_do_not(solved, tmp_path):
    notebook = read(solved)
    notebook.cells.append(new_code_cell(f"import os\nprint(os.environ['{VARIANT}'])"))
    write(notebook, solved)
    outcome = run([solved], tmp_path / "out", variant="autumn")
    executed = read(outcome.runs[0].folder / "T9.ipynb")
    assert executed.cells[-1].outputs[0].text == "autumn\n"
    assert VARIANT not in os.environ


def test_an_earlier_variant_is_restored(monkeypatch):
    monkeypatch.setenv(VARIANT, "spring")
    with kernels_of_variant("autumn"):
        assert os.environ[VARIANT] == "autumn"
    assert os.environ[VARIANT] == "spring"
    with pytest.raises(GradingError, match="name of a variant"), kernels_of_variant("?"):
        pass


def test_the_sources_of_a_variant_are_kept_out_of_the_course(solved, tmp_path):
    folder = variant_folder(tmp_path, "autumn/B")
    assert folder.name == f"{tmp_path.name}-autumn-B"
    assert folder.parent == tmp_path.parent
    require_for_variant([solved], folder, write_back=False)
    for inside in (tmp_path, tmp_path / "out"):
        with pytest.raises(OutputError, match="do not belong"):
            require_for_variant([solved], inside, write_back=False)
    with pytest.raises(GradingError, match="written back"):
        require_for_variant([solved], folder, write_back=True)
