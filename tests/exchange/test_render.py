"""Rendering: the contents of the drawings, and that no process or file is left behind."""

import importlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import psutil
import pypdf
import pytest
from matplotlib import image

from mlhood.errors import BrowserError, ExchangeError, OutputError
from mlhood.exchange import find_browser, render
from tests.waiting import PATIENCE, wait_until

needs_browser = pytest.mark.skipif(
    find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one"
)
# The attribute `mlhood.exchange.render` is the function of this name.
MODULE = importlib.import_module("mlhood.exchange.render")
SVG = "{http://www.w3.org/2000/svg}"
NAMES = {"conv1", "conv2", "relu", "relu_1", "relu_2", "relu_3", "maxpool", "maxpool_1", "reshape", "fc1", "fc2", "fc3"}

RENDER_UNTIL_INTERRUPTED = """
import sys
from mlhood.exchange import render
try:
    print("ready", flush=True)
    render(sys.argv[1], sys.argv[2], timeout=600)
except KeyboardInterrupt:
    sys.exit(130)
"""

RENDER_IN_EVENT_LOOP = """
import asyncio, sys
from mlhood.exchange import render
async def cell():
    return render(sys.argv[1], sys.argv[2])
asyncio.run(cell())
"""


def descendants():
    """Names of the running descendants of this process, by process id."""
    names = {}
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                names[child.pid] = child.name()
        except psutil.NoSuchProcess:
            continue
    return names


def using(text):
    """Running processes on this machine with the text in their command line, such as a browser with its profile."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and any(str(text) in word for word in process.cmdline()):
                processes.append(process)
        except psutil.Error:
            continue
    return processes


@pytest.fixture
def scratch(monkeypatch):
    """A folder for temporary files; its path is short because the browser creates sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="m"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nothing_left(scratch):
    before = descendants()
    yield
    assert wait_until(lambda: descendants().keys() <= before.keys()), descendants()
    assert wait_until(lambda: not using(scratch)), using(scratch)
    # ONNX Runtime creates .ses there, which we must not remove.
    assert wait_until(lambda: {file.name for file in scratch.iterdir()} <= {".ses"}), list(scratch.iterdir())


@pytest.fixture(scope="module")
def svg(lenet_onnx, tmp_path_factory):
    """LeNet as SVG."""
    return render(lenet_onnx, tmp_path_factory.mktemp("svg") / "lenet.svg")


@pytest.mark.browser
@needs_browser
@pytest.mark.usefixtures("nothing_left")
class TestDrawing:
    def test_svg_is_self_contained(self, svg):
        root = ElementTree.parse(svg).getroot()
        assert root.tag == SVG + "svg"
        assert {"width", "height", "viewBox"} <= set(root.keys())
        words = {"".join(text.itertext()) for text in root.iter(SVG + "text")}
        assert {"Conv", "Relu", "MaxPool", "Reshape", "Gemm", "image", "logits"} <= words
        assert {f"node-name-{name}" for name in NAMES} <= {group.get("id") for group in root.iter(SVG + "g")}
        # Styles are inline: no style sheet is needed, and nothing is fetched.
        filled = [path.get("style", "") for path in root.iter(SVG + "path")]
        assert sum("fill: rgb(" in style for style in filled) >= len(NAMES)
        text = svg.read_text(encoding="utf-8")
        assert not any(word in text for word in ("http://127", "https://", "<script", "<image", "\u3008"))

    def test_png_has_twice_the_resolution_and_a_margin(self, lenet_onnx, svg, tmp_path, capfd):
        root = ElementTree.parse(svg).getroot()
        pixels = image.imread(io.BytesIO(render(lenet_onnx, tmp_path / "x.png").read_bytes()))
        assert capfd.readouterr() == ("", "")
        height, width = pixels.shape[:2]
        assert (width, height) == (2 * int(root.get("width")), 2 * int(root.get("height")))
        assert (pixels[..., 3] == 1).all()
        dark = np.argwhere(pixels[..., :3].min(axis=2) < 0.9)
        (top, left), (bottom, right) = dark.min(axis=0), dark.max(axis=0)
        margins = top, left, height - 1 - bottom, width - 1 - right
        assert all(4 <= margin <= 40 for margin in margins), margins

    def test_pdf_is_one_page_of_text_and_vectors(self, lenet_onnx, svg, tmp_path):
        document = pypdf.PdfReader(render(lenet_onnx, tmp_path / "lenet.pdf"))
        (page,) = document.pages
        words = page.extract_text().split()
        assert set(words) >= NAMES
        counts = {"Conv": 2, "Relu": 4, "MaxPool": 2, "Reshape": 1, "Gemm": 3}
        assert {op: words.count(op) for op in counts} == counts
        assert not page.images
        fonts = [font.get_object() for font in page["/Resources"]["/Font"].values()]
        assert fonts
        assert all(_embedded(font) for font in fonts)
        root = ElementTree.parse(svg).getroot()
        assert float(page.mediabox.width) == pytest.approx(int(root.get("width")) * 0.75, abs=1.5)
        assert float(page.mediabox.height) == pytest.approx(int(root.get("height")) * 0.75, abs=2.5)

    def test_proto_and_an_awkward_name(self, lenet_onnx, tf_lenet, tmp_path):
        path = tmp_path / ("a näme & 100%.onnx" if sys.platform == "win32" else 'a "quoted" näme & 100%.onnx')
        path.write_bytes(lenet_onnx.read_bytes())
        assert "node-name-conv1" in render(path, tmp_path / "x.svg").read_text(encoding="utf-8")
        assert "MatMul" in render(tf_lenet, tmp_path / "y.SVG").read_text(encoding="utf-8")

    def test_within_a_running_event_loop(self, lenet_onnx, tmp_path):
        command = [sys.executable, "-c", RENDER_IN_EVENT_LOOP, str(lenet_onnx), str(tmp_path / "x.pdf")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def _embedded(font):
    parts = [part.get_object() for part in font.get("/DescendantFonts", [font])]
    return font["/Subtype"] == "/Type3" or all(
        {"/FontFile", "/FontFile2", "/FontFile3"} & part["/FontDescriptor"].get_object().keys() for part in parts
    )


@pytest.mark.browser
@needs_browser
@pytest.mark.usefixtures("nothing_left")
class TestTermination:
    @pytest.mark.skipif(sys.platform == "win32", reason="Windows does not execute scripts")
    def test_after_a_timeout(self, lenet_onnx, tmp_path, monkeypatch):
        """A browser that hangs is killed."""
        script = tmp_path / "browser"
        script.write_text("#!/bin/sh\nexec sleep 600\n")
        script.chmod(0o755)
        monkeypatch.setenv("MLHOOD_BROWSER", str(script))
        with pytest.raises(BrowserError, match="in time") as caught:
            render(lenet_onnx, tmp_path / "x.svg", timeout=2)
        assert "2 s" in caught.value.parts["expected"]
        assert not (tmp_path / "x.svg").exists()

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
    @pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
    def test_after_a_signal(self, lenet_onnx, tmp_path, scratch, signal_number):
        command = [sys.executable, "-c", RENDER_UNTIL_INTERRUPTED, str(lenet_onnx), str(tmp_path / "x.svg")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            assert wait_until(lambda: using("--headless") and using(scratch)), "the browser did not start"
            process.send_signal(signal_number)
            _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == (130 if signal_number == signal.SIGINT else -signal.SIGKILL)
        assert errors == ""
        assert not (tmp_path / "x.svg").exists()
        assert wait_until(lambda: not using(scratch)), using(scratch)
        if signal_number == signal.SIGKILL:  # a killed process cannot remove its folders
            for folder in scratch.iterdir():
                shutil.rmtree(folder, ignore_errors=True)

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows does not execute scripts")
    def test_after_a_browser_failure(self, lenet_onnx, tmp_path, monkeypatch):
        script = tmp_path / "browser"
        script.write_text("#!/bin/sh\necho broken >&2; exit 7\n")
        script.chmod(0o755)
        monkeypatch.setenv("MLHOOD_BROWSER", str(script))
        with pytest.raises(BrowserError, match="did not draw") as caught:
            render(lenet_onnx, tmp_path / "x.svg")
        assert caught.value.parts["where"] == str(script)
        assert caught.value.parts["got"]


def test_a_missing_browser_raises(lenet_onnx, tmp_path, monkeypatch):
    monkeypatch.setattr(MODULE, "find_browser", lambda: None)
    with pytest.raises(BrowserError, match="no browser") as caught:
        render(lenet_onnx, tmp_path / "x.pdf")
    assert "install Chromium, Chrome or Edge" in caught.value.parts["what to do"]
    assert not list(tmp_path.iterdir())


def test_invalid_input_raises_before_a_browser_starts(lenet_onnx, tmp_path, monkeypatch):
    monkeypatch.setattr(MODULE, "find_browser", lambda: pytest.fail("too late"))
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(ExchangeError, match="not an ONNX file"):
        render(tmp_path / "bad.onnx", tmp_path / "x.svg")
    with pytest.raises(ExchangeError, match="SVG, PNG or PDF"):
        render(lenet_onnx, tmp_path / "x.gif")
    with pytest.raises(OutputError, match="does not exist"):
        render(lenet_onnx, tmp_path / "nowhere" / "x.svg")
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.browser
@needs_browser
def test_a_full_disk_leaves_no_partial_file(lenet_onnx, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("mlhood.files.atomic.os.fsync", full)
    with pytest.raises(OutputError, match="cannot be written"):
        render(lenet_onnx, tmp_path / "x.svg")
    assert not list(Path(tmp_path).iterdir())
