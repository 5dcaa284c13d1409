"""Bundles of C, built by their own Makefile and run on pictures."""

import re
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.compiler.bundle import write_bundle
from mlhood.errors import CompilerError, OutputError
from tests.compiler.backends.c.drawing import drawn_digits
from tests.compiler.backends.c.programs import SANITIZERS
from tests.waiting import PATIENCE

needs_make = pytest.mark.skipif(
    not (shutil.which("make") and shutil.which("gcc")) or sys.platform == "win32", reason="no make and gcc here"
)
STRICT_FLAGS = " ".join(["-O1", "-g", "-Werror", *SANITIZERS["gcc"]])
FILES = ["CMakeLists.txt", "Makefile", "README.md", "main.c", "model.c", "model.h", "weights.c", "weights.h"]


def make(folder, flags=STRICT_FLAGS):
    subprocess.run(["make", "-s", "-C", folder, "CC=gcc", f"CFLAGS={flags}"], check=True, timeout=PATIENCE)


def read(folder, *arguments):
    return subprocess.run([folder / "model", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


def pgm(path, pixels, maximum=255, *, text=False, comment=b"# a comment 5 5\n"):
    """Write a picture [H, W] of 0 to 1 as PGM."""
    numbers = np.rint(pixels * maximum).astype(int)
    height, width = numbers.shape
    header = b"P%d\n%b%d %d\n%d\n" % (2 if text else 5, comment, width, height, maximum)
    raw = numbers.astype(np.uint8 if maximum < 256 else ">u2").tobytes()
    path.write_bytes(header + (" ".join(map(str, numbers.ravel())).encode() if text else raw))
    return path


@pytest.fixture(scope="module")
def built(trained_lenet, tmp_path_factory):
    """Return the folders of the trained LeNet in float and in integers, built with sanitizers."""
    folders = {}
    for schema in (None, "symmetric"):
        folders[schema] = tmp_path_factory.mktemp("bundle") / "lenet"
        write_bundle(trained_lenet, folders[schema], "c", schema)
        make(folders[schema])
    return folders


@pytest.fixture(scope="module")
def pictures():
    images, labels = drawn_digits(60)
    return (images - images.min()) / (images.max() - images.min()), images, labels


@needs_make
@pytest.mark.parametrize("schema", [None, "symmetric"])
def test_lenet_reads_digits_from_pictures(built, pictures, tmp_path, schema):
    pixels, _, labels = pictures
    results = [read(built[schema], pgm(tmp_path / "digit.pgm", image)) for image in pixels]
    assert [result.returncode for result in results] == [0] * len(results)
    answers = [int(result.stdout.split()[0]) for result in results]
    assert np.mean(answers == labels) >= 0.95


@needs_make
def test_the_probabilities_are_those_of_onnx_runtime(built, trained_lenet, pictures, tmp_path):
    pixels, images, _ = pictures
    (logits,) = onnxruntime.InferenceSession(trained_lenet).run(None, {"image": images[:1, None]})
    powers = np.exp(logits[0] - logits[0].max())
    lines = read(built[None], pgm(tmp_path / "digit.pgm", pixels[0], 65535)).stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [str(i) for i in range(10)]
    np.testing.assert_allclose([float(line.split()[1]) for line in lines], powers / powers.sum(), atol=2e-4)


@needs_make
def test_the_same_picture_in_every_form(built, pictures, tmp_path):
    pixels, path = pictures[0][3], tmp_path / "digit.pgm"
    expected = read(built[None], pgm(path, pixels, 255)).stdout
    assert read(built[None], pgm(path, pixels, 255, text=True)).stdout == expected
    assert read(built[None], pgm(path, pixels, 255, comment=b"# one\n# two\n")).stdout == expected
    assert read(built[None], pgm(path, 1 - pixels, 255)).stdout == expected  # dark on light
    assert read(built[None], pgm(path, pixels.repeat(3, 0).repeat(3, 1), 255)).stdout == expected
    assert read(built[None], pgm(path, pixels, 51, text=True)).stdout.split()[0] == expected.split()[0]


INVALID = {
    "empty": b"",
    "no picture": b"GIF89a",
    "colours": b"P6\n1 1\n255\nabc",
    "no size": b"P5\n",
    "size of zero": b"P5\n0 3\n255\n",
    "too large": b"P5\n40000 40000\n255\n",
    "a number without end": b"P5\n" + b"9" * 5000,
    "negative": b"P5\n-1 3\n255\n",
    "no maximum": b"P5\n3 3\n",
    "maximum of zero": b"P5\n1 1\n0\na",
    "maximum too large": b"P5\n1 1\n65536\naa",
    "too short": b"P5\n3 3\n255\nabc",
    "half a pixel": b"P5\n1 1\n65535\na",
    "too light": b"P2\n1 1\n9\n10\n",
    "letters": b"P2\n1 1\n9\nx\n",
    "comment without end": b"P2\n# 1 1",
}


@needs_make
@pytest.mark.parametrize("content", INVALID.values(), ids=INVALID)
def test_invalid_pictures_are_refused_in_words(built, tmp_path, content):
    (tmp_path / "bad.pgm").write_bytes(content)
    result = read(built["symmetric"], tmp_path / "bad.pgm")
    assert (result.returncode, result.stdout) == (1, "")
    assert "bad.pgm: " in result.stderr
    assert "expected: a PGM picture" in result.stderr


@needs_make
@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["does/not/exist.pgm"]])
def test_invalid_arguments_are_refused_in_words(built, arguments):
    result = read(built["symmetric"], *arguments)
    assert (result.returncode, result.stdout) == (1, "")
    assert "expected: " in result.stderr


@needs_make
@pytest.mark.parametrize("size", [(1, 1), (1, 500), (7, 3), (300, 200)])
def test_a_picture_of_any_size_is_read(built, tmp_path, size):
    assert read(built["symmetric"], pgm(tmp_path / "any.pgm", np.full(size, 0.25))).returncode == 0


@needs_make
def test_the_quantised_lenet_is_less_than_100_kib(trained_lenet, tmp_path):
    write_bundle(trained_lenet, tmp_path, "c", "symmetric")
    make(tmp_path, "-Os")
    objects = [tmp_path / f"{name}.o" for name in ("main", "model", "weights")]
    sizes = subprocess.run(["size", *objects], capture_output=True, text=True, check=True).stdout
    text_and_data = sum(int(line.split()[0]) + int(line.split()[1]) for line in sizes.splitlines()[1:])
    assert 60_000 < text_and_data < 100 * 1024
    assert not re.search(r"\b(malloc|calloc|realloc|alloca)\b", (tmp_path / "model.c").read_text())


@needs_make
def test_a_model_without_pictures_reads_raw_numbers(new_model, tmp_path):
    nodes = [helper.make_node("Add", ["count", "b"], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=7)]
    model = new_model(nodes, {"count": (1, ["n", 3]), "b": (1, [3])})
    bundle = write_bundle(model, tmp_path, dims={"n": 2})
    assert dict(bundle.dims) == {"n": 2}
    assert sorted(path.name for path in bundle.paths) == FILES
    make(tmp_path)
    (tmp_path / "a.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    (tmp_path / "b.bin").write_bytes(np.full(3, 0.5, np.float32).tobytes())
    files = tmp_path / "a.bin", tmp_path / "b.bin"
    assert read(tmp_path, *files).stdout.split() == ["0", "1", "2", "3", "4", "5"]
    for wrong in (files[:1], files[::-1], (files[0], tmp_path / "c.bin")):
        result = read(tmp_path, *wrong)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr


# what C99's headers, POSIX, C and C++ define, in lower and in upper case
TAKEN = (
    "stdin stdout puts remove printf fopen getc environ asinh gamma y0 j1 index signal abs exp size_t uint8_t int64_t "
)
TAKEN += "errno EOF NULL NAN INFINITY INT8_MAX HUGE_VAL M_PI I FILE BUFSIZ assert true bool complex imaginary restrict "
TAKEN += (
    "inline auto class new delete this template operator and xor int main linux near arguments count read_file data "
)
TAKEN += "model_run run RUN arena i x X MODEL_H MODEL_X_LENGTH model_sum sum const float f32 max_f32 T E"
HEADERS = "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg stdbool stddef"
HEADERS += " stdint stdio stdlib string time wchar wctype"


@needs_make
def test_inputs_may_have_any_name(new_model, tmp_path):
    names = [*TAKEN.split(), "ä", "a b", "a-b", "a_b", "A_B", "x" * 500, "x" * 501, "*/", "0", "_", "%s"]
    inputs = {name: (1, [2]) for name in names}
    nodes = [helper.make_node("Sum", list(inputs), ["stderr"]), helper.make_node("Asinh", ["stderr"], ["y"])]
    bundle = write_bundle(new_model(nodes, inputs), tmp_path)
    make(tmp_path)
    for number in range(len(inputs)):
        (tmp_path / f"{number}.bin").write_bytes(np.full(2, number, np.float32).tobytes())
    result = read(tmp_path, *(tmp_path / f"{number}.bin" for number in range(len(inputs))))
    total = len(inputs) * (len(inputs) - 1) / 2
    np.testing.assert_allclose([float(line) for line in result.stdout.split()], np.arcsinh([total] * 2), rtol=1e-6)
    includes = "".join(f"#include <{header}.h>\n" for header in HEADERS.split())
    (tmp_path / "user.c").write_text(f'{includes}#include "model.h"\n')
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
    commands = [["gcc", "-std=c99"], ["gcc", "-std=gnu17"], ["g++", "-x", "c++"], ["clang", "-std=c99"]]
    for command in commands:
        if shutil.which(command[0]):
            subprocess.run([*command, *strict, tmp_path / "user.c"], check=True, timeout=60)
    assert len(bundle.paths) == len(FILES)


EXTREMES = {
    "float32": [np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4028235e38, 0.1],
    "float64": [np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1],
    **{name: [np.iinfo(name).min, np.iinfo(name).max, 0] for name in ("int8", "uint8", "int32", "int64", "uint64")},
    "bool": [False, True],
}


@needs_make
@pytest.mark.parametrize("element", EXTREMES)
def test_a_model_without_inputs_prints_every_number(new_model, tmp_path, element):
    value = np.array(EXTREMES[element], element)
    nodes = [helper.make_node("Identity", ["c"], ["y"]), helper.make_node("Slice", ["c", "z", "z"], ["none"])]
    weights = {"c": value, "z": np.array([0])}
    model = new_model(nodes, {}, weights, element=helper.np_dtype_to_tensor_dtype(value.dtype), outputs=("y", "none"))
    write_bundle(model, tmp_path)
    make(tmp_path)
    printed = read(tmp_path).stdout.split()
    convert = float if value.dtype.kind == "f" else int
    np.testing.assert_array_equal(np.array([convert(text) for text in printed], element), value)


@needs_make
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceProd"])
def test_a_reduction_of_nothing(new_model, tmp_path, operator):
    node = helper.make_node(operator, ["x", "axes"], ["y"], keepdims=0)
    write_bundle(new_model([node], {"x": (1, [2, 0])}, {"axes": np.array([1])}), tmp_path)
    make(tmp_path)
    (tmp_path / "x.bin").write_bytes(b"")
    expected = {"ReduceMean": np.nan, "ReduceSum": 0, "ReduceMax": -np.inf, "ReduceProd": 1}[operator]
    printed = read(tmp_path, tmp_path / "x.bin").stdout.split()
    np.testing.assert_array_equal([float(text) for text in printed], [expected] * 2)


def test_errors(lenet_onnx, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="folder"):
        write_bundle(lenet_onnx, tmp_path / "file")
    with pytest.raises(CompilerError, match="unknown kind"):
        write_bundle(lenet_onnx, tmp_path, "rust")
    with pytest.raises(CompilerError, match="no such dynamic axis"):
        write_bundle(lenet_onnx, tmp_path, dims={"time": 3})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "c"], "--out"),
        (["--target", "c", "--out", "x", "--text", "hir"], "--text"),
    ],
)
def test_options_that_do_not_go_together(lenet_onnx, monkeypatch, tmp_path, options, message):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["compile", str(lenet_onnx), *options])
    assert isinstance(result.exception, CompilerError)
    assert message in str(result.exception)


def test_the_command_writes_the_files(lenet_onnx, tmp_path):
    result = CliRunner().invoke(app, ["compile", str(lenet_onnx), "--target", "c", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "axis 'batch' has length 1; choose another with --dim batch=..." in result.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    assert "static const float black = -" in (tmp_path / "out" / "main.c").read_text()
