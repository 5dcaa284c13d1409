"""The commands of a student version, on the synthetic project, without the parts that only instructors have."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from mlhood.grading.notebooks.notebook import read, write
from tests.grading import synthetic_course
from tests.grading.student.student_version import run, write_student_version

WRONG = synthetic_course.SOLUTIONS | {"T9.3": "def quadruple(x):\n    return 5"}
# in one process, since most of the time is that of imports
CALLS = """
import json, sys
from typer.testing import CliRunner
from mlhood.cli import app
from mlhood.doctor import environment

assert environment.sandbox() is None
results = [CliRunner().invoke(app, arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([(result.exit_code, f"{result.output}{result.exception!r}") for result in results]))
"""
COMMANDS = (
    (("validate", "P1.ipynb"), 0, "ready to hand in"),
    (("check", "P1.ipynb", "--hints"), 1, "60 of 80"),
    (("run", "P1.ipynb"), 1, "60 of 80"),
    (("compile", "tiny.onnx", "--text", "hir"), 0, "rectify"),
    (("--help",), 0, "The instructor's version has more commands."),
    (("grade", "submissions"), 2, "No such command 'grade'."),
    (("bench", "gemm"), 2, "No such command 'bench'."),
)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with a notebook in which one task is wrong, and a model."""
    write(synthetic_course.notebook(WRONG), tmp_path / "P1.ipynb")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "rectify")], "tiny", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, tmp_path / "tiny.onnx")
    return tmp_path


def test_the_commands_of_students_work_and_no_others_are_there(folder, tmp_path_factory):
    version = write_student_version(tmp_path_factory.mktemp("course"))
    done = run(version, "-c", CALLS, json.dumps([arguments for arguments, _, _ in COMMANDS]), folder=folder)
    assert done.returncode == 0, done.stderr
    for (arguments, code, text), (exit_code, output) in zip(COMMANDS, json.loads(done.stdout), strict=True):
        assert (exit_code, text in output) == (code, True), (arguments, output)
    executed = {cell.id: cell for cell in read(folder / "out" / "P1" / "P1.ipynb").cells}
    (points,) = executed["T9-1-check"].outputs  # of `mlhood.check`
    assert points.data["text/plain"] == "40"
