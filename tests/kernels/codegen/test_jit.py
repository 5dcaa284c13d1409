"""Just-in-time compilation: the cache of object code, and cross-compilation."""

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest

from mlhood.kernels import vectorised
from mlhood.kernels.codegen import direct_kernel, jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.direct_kernel import DirectVariant
from mlhood.kernels.codegen.ir_builder import INDEX
from mlhood.kernels.codegen.microkernel import candidates, cheapest
from mlhood.kernels.codegen.target import AARCH64, PORTABLE, Target
from mlhood.kernels.direct import Direct
from mlhood.kernels.geometry import geometry


def build_seven(_: Target, index: int) -> str:
    """Generate a kernel that writes 7 to a word of its argument block."""
    arguments = Arguments(())
    arguments.words.at(index).store(INDEX(7))
    return arguments.finished()


def call(index: int) -> list[int]:
    jit._load.cache_clear()
    arguments = np.zeros(4, np.int64)
    jit.load(build_seven, PORTABLE, index)(arguments.ctypes.data, 0)
    return arguments.tolist()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLHOOD_CACHE", str(tmp_path / "kernels"))
    yield tmp_path / "kernels"
    jit._load.cache_clear()


def test_code_is_cached_and_reused(folder, monkeypatch):
    assert call(2) == [0, 0, 7, 0]
    (cached,) = folder.iterdir()
    monkeypatch.setattr(jit, "compile_ir", None)
    assert call(2) == [0, 0, 7, 0]
    assert list(folder.iterdir()) == [cached]


def test_other_arguments_have_another_file(folder):
    assert call(1) == [0, 7, 0, 0]
    assert call(3) == [0, 0, 0, 7]
    assert len(list(folder.iterdir())) == 2


def test_a_modified_generator_is_compiled_again(folder, tmp_path):
    generator = tmp_path / "generator.py"
    for value in (7, 8):
        generator.write_text(inspect.getsource(build_seven).replace("INDEX(7)", f"INDEX({value})"))
        names = {"Target": Target, "Arguments": Arguments, "INDEX": INDEX}
        exec(compile(generator.read_text(), generator, "exec"), names)
        jit._source_digest.cache_clear()  # as in another process
        arguments = np.zeros(1, np.int64)
        jit.load(names["build_seven"], PORTABLE, 0)(arguments.ctypes.data, 0)
        assert arguments.tolist() == [value]


@pytest.mark.parametrize("damage", [lambda code: code[:100], lambda code: b"", lambda code: code[:-1] + b"\xff"])
def test_damaged_code_is_compiled_again(folder, damage):
    call(2)
    (cached,) = folder.iterdir()
    intact = cached.read_bytes()
    cached.write_bytes(damage(intact))
    assert call(2) == [0, 0, 7, 0]
    assert cached.read_bytes() == intact


def test_a_read_only_folder_is_ignored(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLHOOD_CACHE", str(tmp_path / "file" / "kernels"))
    assert call(2) == [0, 0, 7, 0]


@pytest.mark.parametrize(
    ("platform", "variable", "parts"),
    [
        ("linux", "XDG_CACHE_HOME", ("mlhood", "kernels")),
        ("win32", "LOCALAPPDATA", ("mlhood", "kernels")),
    ],
)
def test_the_cache_folder_is_the_users(platform, variable, parts, tmp_path, monkeypatch):
    monkeypatch.delenv("MLHOOD_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert jit.cache_folder() == tmp_path.joinpath(*parts)


def test_a_second_process_compiles_nothing(folder):
    program = """
import sys
import numpy as np
from mlhood.kernels import CONV2D
from mlhood.kernels.codegen import jit
compiled = []
compile_ir = jit.compile_ir
jit.compile_ir = lambda *arguments: compiled.append(arguments) or compile_ir(*arguments)
y = CONV2D["direct"](np.ones((1, 3, 9, 20), np.float32), np.ones((5, 3, 3, 3), np.float32), padding=1, threads=1)
print(len(compiled), float(y.sum()), "numba" in sys.modules)
"""
    environment = {**os.environ, "MLHOOD_CACHE": str(folder)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert int(outputs[0][0]) > 0
    assert outputs[1][0] == "0"
    assert outputs[0][1:] == outputs[1][1:]
    assert outputs[1][2] == "False"


# -- cross-compilation


def test_a_convolution_for_arm_is_assembled():
    tile = cheapest(AARCH64, 1000, 1000)
    variant = DirectVariant(tile.rows, tile.vectors, 1)
    text = jit.compile_ir(direct_kernel.build(AARCH64, variant), AARCH64, assembly=True)
    assert text.count("fmla") >= tile.rows * tile.vectors
    assert tile.registers <= 32
    code = jit.compile_ir(direct_kernel.build(AARCH64, variant), AARCH64)
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == 183  # EM_AARCH64


def test_a_product_for_arm_is_assembled():
    text = jit.compile_ir(vectorised.build(AARCH64, 6, 4, True, False), AARCH64, assembly=True)
    assert text.count("fmla") >= 24


def test_the_microkernel_uses_the_targets_registers(target):
    tile = max(candidates(target), key=lambda tile: tile.rows * tile.vectors)
    text = jit.compile_ir(direct_kernel.build(target, DirectVariant(tile.rows, tile.vectors, 1)), target, assembly=True)
    register = {"amx": "zmm", "avx512": "zmm", "avx2": "ymm", "neon": ".4s", "portable": "xmm"}[target.name]
    multiply = "mulps" if target.name == "portable" else "fmla" if target.name == "neon" else "vfmadd"
    lines = [line for line in text.splitlines() if multiply in line and register in line]
    assert len(lines) >= 2 * tile.rows * tile.vectors  # in the partial and in the final microkernel


def test_the_variant_fits_the_layer():
    wide = Direct(geometry((1, 64, 56, 56), (64, 64, 3, 3), padding=1), np.zeros((64, 64, 3, 3), np.float32))
    assert wide.variant.lanes == "channels"
    deep = Direct(geometry((1, 64, 56, 56), (64, 1, 3, 3), 1, 1, 1, 64), np.zeros((64, 1, 3, 3), np.float32))
    assert deep.variant.lanes == "pixels"
