"""A program as WebAssembly, in one page that needs neither a server nor a network."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mlhood.compiler.backends.c.bundle import PREFIX, Picture, filled, picture_of, picture_words
from mlhood.compiler.backends.c.source import write_source
from mlhood.compiler.lir.program import Program
from mlhood.errors import CompilerError

TIMEOUT = 600  # seconds
_INSTALL = {
    "clang": "apt-get install clang lld; on macOS brew install llvm lld; on Windows winget install LLVM.LLVM",
    "wasm-ld": "apt-get install lld; on macOS brew install lld; on Windows winget install LLVM.LLVM",
}


def find_program(name: str) -> str:
    """Return the path of clang or wasm-ld, whose name may end in a version.

    Raises:
        CompilerError: It is not installed.
    """
    for candidate in (name, *(f"{name}-{version}" for version in range(22, 10, -1))):
        path = shutil.which(candidate)
        if path is not None:
            return path
    raise CompilerError(
        "a program that is needed for WebAssembly is not installed",
        expected=f"{name} on the path",
        got="none",
        todo=f"{_INSTALL.get(name, 'install it')}; or write C alone: --target c",
    )


def run_program(command: Sequence[str | Path], folder: Path) -> None:
    """Run a compiler or a linker in a folder.

    Raises:
        CompilerError: It fails, or takes longer than ten minutes; the error has its first messages.
    """
    try:
        done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError("a compiler cannot be run", where=str(command[0]), got=error) from error
    if done.returncode:
        messages = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise CompilerError("a compiler refused the C of the model", where=str(command[0]), got=messages)


_TEMPLATES = Path(__file__).parent / "templates"
_FLAGS = (
    "--target=wasm32",
    "-O2",
    "-std=c99",
    "-ffreestanding",
    "-fno-builtin",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
)
MNIST_SIZE = 28
_EXPORTS = ("page_input", "page_output", "page_run")


def page_files(program: Program, levels: tuple[float, float] = (0.0, 1.0), grid: int | None = None) -> dict[str, str]:
    """Return index.html: a canvas to draw on, and the probability of each class.

    Args:
        program: A verified program without dynamic axes, with an input [1, 1, H, W] and an output of scores.
        levels: The numbers that the network knows as the ground and as a stroke.
        grid: The network knows digits on a grid of so many pixels, enlarged by 3 and framed, as those of scikit-learn;
            None for MNIST's, 20 of 28 pixels large around their centre of mass.

    Raises:
        CompilerError: The program takes or gives something else, has operators without C, or clang or wasm-ld is
            missing.
    """
    picture = picture_of(program, levels)
    if picture is None:
        raise CompilerError(
            "the page is for models that classify one grey picture",
            where=f"program {program.name!r}",
            expected="one float32 input [1, 1, H, W], and one float32 output of a score for each class",
            got=_operands(program),
            todo="write C: --target c",
        )
    binary = compile_to_wasm(program, picture)
    setup = {
        "height": picture.height,
        "width": picture.width,
        "classes": picture.classes,
        "softmax": picture.softmax,
        "black": picture.black,
        "white": picture.white,
        "grid": grid,
        "frame": MNIST_SIZE if picture.height == MNIST_SIZE + 4 else picture.height,  # the course pads MNIST by 2
    }
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    words = {"SCRIPT": script, "SETUP": json.dumps(setup), "WASM": base64.b64encode(binary).decode("ascii")}
    return {"index.html": filled("page.html", words)}


def _operands(program: Program) -> str:
    inputs = [weight for weight in program.weights.values() if weight.kind == "input"]
    groups = inputs, program.outputs.values()
    texts = [", ".join(f"{each.type.element}{list(each.type.shape)}" for each in group) or "none" for group in groups]
    return " -> ".join(texts)


def compile_to_wasm(program: Program, picture: Picture) -> bytes:
    """Return a program as a WebAssembly module that exports its memory and the functions of `page.c`.

    Raises:
        CompilerError: As `page_files`.
    """
    clang, linker = find_program("clang"), find_program("wasm-ld")
    source = write_source(program, PREFIX)
    words = {"PREFIX": PREFIX, **picture_words(source, picture)}
    with tempfile.TemporaryDirectory(prefix="mlhood-") as name:
        folder = Path(name)
        for file, text in source.files.items():
            (folder / file).write_text(text, encoding="ascii")
        for file in ("page.c", "math.h", "mathematics.c"):
            (folder / file).write_text(filled(file, words), encoding="ascii")
        sources = [f"{PREFIX}.c", "weights.c", "page.c", "mathematics.c"]
        run_program([clang, *_FLAGS, "-I.", "-c", *sources], folder)
        objects = [file.replace(".c", ".o") for file in sources]
        exports = [f"--export={export}" for export in _EXPORTS]
        run_program(
            [linker, "--no-entry", "--gc-sections", "--strip-all", *exports, *objects, "-o", "page.wasm"], folder
        )
        return (folder / "page.wasm").read_bytes()
