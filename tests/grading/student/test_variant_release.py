from __future__ import annotations

import json
import zipfile
from types import SimpleNamespace

import pytest

from mlhood.errors import GradingError, OutputError
from mlhood.grading.execution.grade_notebook import RunSettings, grade_file
from mlhood.grading.notebooks.notebook import read, write
from mlhood.grading.notebooks.source_notebook import source_of_variant
from mlhood.grading.notebooks.version import stored_signature
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import variant
from mlhood.grading.student.release import new_seed_file
from mlhood.grading.student.release import release as write_version
from mlhood.grading.student.variant_version import Variant
from mlhood.grading.variants.seed import make_seed_file, read_seed, verify
from tests.grading import varied_course

VARIANT_NAME = "autumn"


@pytest.fixture
def varied(course, monkeypatch, tmp_path):
    """The folder of a course that varies, and the variant's factor."""
    path = varied_course.install(monkeypatch, tmp_path / "course")
    factor = variant(PROJECTS["T9"], VARIANT_NAME).parameters["factor"]
    return SimpleNamespace(
        root=path.parent, source_notebook=path, factor=factor, out=tmp_path / "student", folder=tmp_path
    )


def release(varied, source_notebooks=None, **options):
    seed = varied.folder / "seed.txt"
    made_of = Variant(VARIANT_NAME, make_seed_file(seed), source_notebooks)
    return write_version(varied.root, varied.out, made_of=made_of, **options)


def test_the_version_asks_for_what_the_variant_does(varied):
    release(varied)
    cells = {cell.id: cell for cell in read(varied.out / "P1.ipynb").cells}
    assert cells["T9-1-text"].source == f"## Multiply by {varied.factor}"
    assert "YOUR CODE HERE" in cells["T9-1-solution"].source
    assert "varies" not in str(cells["T9-1-solution"].metadata) + str(cells["T9-1-text"].metadata)
    files = {path.relative_to(varied.out).as_posix() for path in varied.out.rglob("*.json")}
    projects = "mlhood/grading/projects"
    assert files == {f"{projects}/t9/cells.json", f"{projects}/variant.json"}
    values = json.loads((varied.out / projects / "variant.json").read_text())
    assert values["T9"] == {"factor": varied.factor}


def test_nothing_that_students_get_shows_the_word_or_the_seed(varied):
    done = release(varied)
    texts = [path.read_text(errors="replace") for path in varied.out.rglob("*") if path.is_file()]
    seed = done.made_of.seed_file.read_text().strip()
    assert not [text for text in texts if VARIANT_NAME in text or seed in text]
    assert f"--variant autumn --seed-file {done.made_of.seed_file}" in done.text()


def test_the_notebooks_are_signed_with_the_seed_of_the_course(varied):
    done = release(varied)
    signed = stored_signature(read(varied.out / "P1.ipynb"))
    assert verify(read_seed(done.made_of.seed_file), signed) == VARIANT_NAME
    assert verify(1, signed) is None


def test_the_seed_is_made_once_beside_the_version(varied):
    first = new_seed_file(varied.root, varied.out)
    assert (first.name, first.parent) == ("student-seed.txt", varied.folder)
    text = first.read_text()
    assert new_seed_file(varied.root, varied.out).read_text() == text


def test_the_autograder_has_the_variants_solutions_and_not_the_templates(varied):
    release(varied, gradescope=True)
    with zipfile.ZipFile(varied.folder / "student-gradescope.zip") as archive:
        names = archive.namelist()
        solutions = json.loads(archive.read("mlhood/grading/projects/t9/solutions.json"))
    assert f"return {varied.factor} * x" in solutions["T9.1"]
    assert "mlhood/grading/projects/variant.json" in names
    assert "mlhood/grading/projects/t9/variants.json" not in names


def test_the_public_solution_loses_the_task_and_the_variants_own_gets_it(varied, tmp_path):
    write(varied_course.notebook(), tmp_path / "public.ipynb")
    write(
        source_of_variant(read(varied.source_notebook), variant(PROJECTS["T9"], VARIANT_NAME)), tmp_path / "own.ipynb"
    )
    earned = {
        name: grade_file(tmp_path / f"{name}.ipynb", RunSettings(1), variant_name=VARIANT_NAME).tasks[0].earned
        for name in ("public", "own")
    }
    assert earned == {"own": 40, "public": 0}


def test_outputs_come_from_the_executed_sources(varied, tmp_path):
    executed = source_of_variant(read(varied.source_notebook), variant(PROJECTS["T9"], VARIANT_NAME))
    cells = {cell.id: cell for cell in executed.cells}
    cells["imports"].outputs[0].text = "of the variant"
    (tmp_path / "solved" / "P1").mkdir(parents=True)
    write(executed, tmp_path / "solved" / "P1" / "P1.ipynb")
    release(varied, source_notebooks=tmp_path / "solved")
    outputs = {cell.id: cell.get("outputs") for cell in read(varied.out / "P1.ipynb").cells}
    assert outputs["imports"][0].text == "of the variant"
    assert outputs["T9-1-solution"] == []


def test_sources_of_another_variant_are_refused(varied, tmp_path):
    (tmp_path / "solved" / "P1").mkdir(parents=True)
    write(varied_course.notebook(), tmp_path / "solved" / "P1" / "P1.ipynb")
    with pytest.raises(OutputError, match="not the source notebook of this variant"):
        release(varied, source_notebooks=tmp_path / "solved")
    assert not varied.out.exists()


def test_a_project_without_an_executed_source_has_no_outputs_of_cells_that_vary(varied, tmp_path):
    (tmp_path / "solved" / "P2").mkdir(parents=True)
    write(varied_course.notebook(), tmp_path / "solved" / "P2" / "P2.ipynb")
    release(varied, source_notebooks=tmp_path / "solved")
    outputs = {cell.id: cell.get("outputs") for cell in read(varied.out / "P1.ipynb").cells}
    assert outputs["T9-1-solution"] == []
    assert outputs["imports"][0].text == "from imports"


def test_a_folder_without_executed_sources_is_refused(varied, tmp_path):
    with pytest.raises(OutputError, match="no executed notebooks"):
        release(varied, source_notebooks=tmp_path / "elsewhere")


def test_the_course_itself_is_never_written_into(varied):
    with pytest.raises(OutputError, match="overwrite the course"):
        new_seed_file(varied.root, varied.root)
    assert not list(varied.folder.glob("*-seed.txt"))


def test_a_version_makes_no_variants(varied, monkeypatch):
    (varied.root / "mlhood/grading/projects/t9/variants.json").unlink()
    with pytest.raises(GradingError, match="student version cannot make"):
        variant(PROJECTS["T9"], VARIANT_NAME)
