"""The page with WebAssembly, in a browser: digits are drawn on its canvas."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

import mlhood.compiler.backends.c as c
from mlhood.compiler.backends.c import wasm
from mlhood.compiler.bundle import write_bundle
from mlhood.errors import CompilerError
from mlhood.exchange import find_browser
from tests.compiler.backends.c.drawing import DRAW, drawn_digits, strokes_of
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[4]
TEMPLATES = Path(c.__file__).parent / "templates"
needs_clang = pytest.mark.skipif(
    not (shutil.which("clang") and shutil.which("wasm-ld")), reason="no clang and wasm-ld here: install clang and lld"
)
needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here")


@pytest.fixture
def page():
    """Return a function that opens a page, and fails on errors and on requests of anything else."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        try:
            tab = browser.new_page()
            tab.set_default_timeout(1000 * PATIENCE)
            problems: list[str] = []
            tab.on("pageerror", lambda error: problems.append(str(error)))
            tab.on("console", lambda message: problems.append(message.text))
            tab.on("request", lambda request: None if request.url.startswith("file:") else problems.append(request.url))

            def opened(path):
                tab.goto(path.as_uri())
                tab.wait_for_function("document.getElementById('answer').textContent")
                return tab

            yield opened
            assert problems == []
        finally:
            browser.close()


@needs_clang
@needs_browser
@pytest.mark.browser
def test_digits_that_are_drawn_are_read(trained_lenet, tmp_path, page):
    (path,) = write_bundle(trained_lenet, tmp_path, "wasm", "symmetric").paths
    tab = page(path)
    assert tab.inner_text("#answer") == "Nothing is drawn yet."
    tab.select_option("#pen", label="thin")
    images, labels = drawn_digits(40)
    answers = [tab.evaluate(DRAW, strokes_of(image)) for image in images]
    right = [answer.startswith(f"This is a {label} (") for answer, label in zip(answers, labels, strict=True)]
    assert sum(right) >= 38, [(answer, int(label)) for answer, label in zip(answers, labels, strict=True)]


@needs_clang
@needs_browser
@pytest.mark.browser
def test_the_page_by_mouse_and_keyboard(trained_lenet, tmp_path, page):
    (path,) = write_bundle(trained_lenet, tmp_path, "wasm").paths
    tab = page(path)
    angles = np.linspace(0, 2 * np.pi, 40)
    draw_by_mouse(tab, np.stack([140 + 60 * np.cos(angles), 140 + 90 * np.sin(angles)], axis=1))
    assert tab.inner_text("#answer").startswith("This is a 0 (")
    meters = tab.get_by_role("meter").all()
    values = [int(meter.get_attribute("aria-valuenow")) for meter in meters]
    assert [meter.get_attribute("aria-label") for meter in meters] == [f"Probability of {i}" for i in range(10)]
    assert np.argmax(values) == 0
    assert 97 <= sum(values) <= 103
    tab.get_by_role("button", name="Clear").focus()
    tab.keyboard.press("Enter")
    assert tab.inner_text("#answer") == "Nothing is drawn yet."
    assert tab.get_by_role("img", name="Area to draw a digit on").is_visible()
    assert tab.get_by_label("Pen").is_visible()


def draw_by_mouse(tab, points):
    """Draw one stroke through points [N, 2] of the canvas."""
    box = tab.locator("#pad").bounding_box()
    moved = points + np.array([box["x"], box["y"]])
    tab.mouse.move(*moved[0])
    tab.mouse.down()
    for point in moved:
        tab.mouse.move(*point)
    tab.mouse.up()


class Stripes(torch.nn.Module):
    """Scores of a picture of 28 x 28 by functions of <math.h>: 0 is least where the picture is light in the middle."""

    def forward(self, image):
        middle = image[:, 0, 10:18, 10:18].mean((1, 2))
        ring = image[:, 0, :4].mean((1, 2))
        scores = [torch.tanh(middle), torch.erf(ring), torch.sigmoid(ring) - 1, torch.exp(-middle) - 1, torch.sin(ring)]
        return torch.softmax(5 * torch.stack(scores, 1), 1)


@needs_clang
@needs_browser
@pytest.mark.browser
def test_another_size_another_number_of_classes_and_probabilities(tmp_path, page):
    from mlhood.exchange import export

    model = export(Stripes(), torch.zeros(1, 1, 28, 28), tmp_path / "stripes.onnx")
    (path,) = write_bundle(model, tmp_path / "page", "wasm", levels=(-0.4, 2.8)).paths
    tab = page(path)
    answer = tab.evaluate(DRAW, [[100, 180, y] for y in range(80, 200, 4)])
    assert answer.startswith("This is a 0 (")
    assert tab.get_by_role("meter").count() == 5


# -- functions of <math.h>

FUNCTIONS = {
    "exp": (-700, 700),
    "expm1": (-40, 40),
    "log": (1e-310, 1e300),
    "log1p": (-0.9, 100),
    "erf": (-7, 7),
    "sin": (-1e4, 1e4),
    "cos": (-1e4, 1e4),
    "tan": (-1.5, 1.5),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atan": (-50, 50),
    "sinh": (-50, 50),
    "cosh": (-50, 50),
    "tanh": (-30, 30),
    "asinh": (-1e6, 1e6),
    "acosh": (1, 1e6),
    "atanh": (-0.999, 0.999),
}


@pytest.fixture(scope="module")
def mathematics(tmp_path_factory):
    """Return the library of functions under names of their own, so that those of the system do not answer."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no gcc and no clang here")
    folder = tmp_path_factory.mktemp("mathematics")
    names = [*FUNCTIONS, *(f"{name}f" for name in FUNCTIONS), "pow", "powf", "memset", "memcpy"]
    renamed = [f"-D{name}=own_{name}" for name in names]
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-builtin", "-shared", "-fPIC"]
    source = TEMPLATES / "mathematics.c"
    command = [compiler, *flags, *renamed, f"-I{TEMPLATES}", str(source), "-o", str(folder / "m.so"), "-lm"]
    subprocess.run(command, check=True, timeout=PATIENCE)
    return ctypes.CDLL(str(folder / "m.so"))


def applied(library, name, *arrays):
    kind, dtype = (
        (ctypes.c_float, np.float32) if name.endswith("f") and name != "erf" else (ctypes.c_double, np.float64)
    )
    function = getattr(library, f"own_{name}")
    function.restype, function.argtypes = kind, [kind] * len(arrays)
    return np.array([function(*numbers) for numbers in zip(*(array.tolist() for array in arrays), strict=True)], dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_exact_as_stated(mathematics, name):
    low, high = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(low, high, 500), rng.uniform(max(low, -2), min(high, 2), 500) if low < 2 else []])
    if name == "log":
        x = np.concatenate([np.exp(rng.uniform(-713, 700, 500)), 1 + rng.uniform(-1e-3, 1e-3, 100), [5e-324, 1.0]])
    expected = getattr(torch, name)(torch.tensor(x)).numpy()
    absolute = 1e-12 if name in ("sin", "cos", "tan") else 0
    np.testing.assert_allclose(applied(mathematics, name, x), expected, rtol=1e-12, atol=absolute)
    single = np.float32(x[(np.abs(x) < 60) & (np.abs(x) > 1e-6)])
    expected = getattr(torch, name)(torch.tensor(single.astype(np.float64))).numpy().astype(np.float32)
    np.testing.assert_allclose(applied(mathematics, f"{name}f", single), expected, rtol=1.2e-7)


def test_powers(mathematics):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 10, 500), rng.uniform(-10, 10, 500)
    np.testing.assert_allclose(applied(mathematics, "pow", x, y), x**y, rtol=1e-12)
    special = np.array([-2.0, -2, -2, 0, 0, 0, 1, 5, np.nan, 3, 2, 2, np.inf, np.inf])
    powers = np.array([3.0, 2, 0.5, 2, -1, 0, np.nan, 0, 2, np.nan, np.inf, -np.inf, 2, -2])
    with np.errstate(all="ignore"):
        expected = special**powers
    np.testing.assert_allclose(applied(mathematics, "pow", special, powers), expected, rtol=1e-12)


SPECIAL = np.array([0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 1.0, -1.0])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_arguments(mathematics, name):
    x = SPECIAL[np.abs(SPECIAL) < 1e300] if name in ("sin", "cos", "tan", "acosh", "asinh") else SPECIAL
    expected = getattr(torch, name)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(applied(mathematics, name, x), expected, rtol=1e-12, atol=1e-300)


# -- errors


@pytest.mark.parametrize("missing", ["clang", "wasm-ld"])
def test_a_missing_compiler_is_named_with_what_to_install(lenet_onnx, tmp_path, monkeypatch, missing):
    found = wasm.shutil.which
    monkeypatch.setattr(wasm.shutil, "which", lambda name: None if name.startswith(missing) else found(name) or name)
    with pytest.raises(CompilerError) as caught:
        write_bundle(lenet_onnx, tmp_path, "wasm")
    assert caught.value.parts["expected"] == f"{missing} on the path"
    assert "apt-get install" in caught.value.parts["what to do"]
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_takes_no_picture_is_refused(new_model, tmp_path):
    model = new_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, [1, 3, 8, 8])})
    with pytest.raises(CompilerError, match="one grey picture"):
        write_bundle(model, tmp_path, "wasm")


def test_what_a_compiler_says_is_reported(tmp_path):
    with pytest.raises(CompilerError, match="a compiler refused"):
        wasm.run_program(["false"], tmp_path)
    with pytest.raises(CompilerError, match="cannot be run"):
        wasm.run_program(["does-not-exist"], tmp_path)
