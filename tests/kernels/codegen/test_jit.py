"""Machine code: kept on disk between processes, whole or not at all; and written for processors that are not here."""

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
from llvmlite import ir

from mlhood.kernels.codegen import direct_kernel, gemm_kernel, jit
from mlhood.kernels.codegen.arguments import kernel_function
from mlhood.kernels.codegen.direct_kernel import Variant
from mlhood.kernels.codegen.ir_builder import INDEX
from mlhood.kernels.codegen.microkernel import candidates, cheapest
from mlhood.kernels.codegen.target import AARCH64, PORTABLE, Target
from mlhood.kernels.direct import Direct
from mlhood.kernels.geometry import geometry


def build_seven(_: Target, where: int) -> str:
    """A kernel that writes 7 into a word of its plan."""
    module = ir.Module()
    code = kernel_function(module)
    code.pointer("arguments", INDEX).at(where).store(INDEX(7))
    code.ret()
    return str(module)


def call(where: int) -> list[int]:
    jit._load.cache_clear()
    plan = np.zeros(4, np.int64)
    jit.load(build_seven, PORTABLE, where)(plan.ctypes.data, 0)
    return plan.tolist()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLHOOD_CACHE", str(tmp_path / "kernels"))
    yield tmp_path / "kernels"
    jit._load.cache_clear()


def test_code_is_kept_and_used_again(folder, monkeypatch):
    assert call(2) == [0, 0, 7, 0]
    (kept,) = folder.iterdir()
    monkeypatch.setattr(jit, "compile_ir", None)
    assert call(2) == [0, 0, 7, 0]
    assert list(folder.iterdir()) == [kept]


def test_other_arguments_are_another_file(folder):
    assert call(1) == [0, 7, 0, 0]
    assert call(3) == [0, 0, 0, 7]
    assert len(list(folder.iterdir())) == 2


def test_a_generator_that_was_changed_makes_new_code(folder, tmp_path):
    generator = tmp_path / "generator.py"
    for value in (7, 8):
        generator.write_text(inspect.getsource(build_seven).replace("INDEX(7)", f"INDEX({value})"))
        names = {"Target": Target, "ir": ir, "kernel_function": kernel_function, "INDEX": INDEX}
        exec(compile(generator.read_text(), generator, "exec"), names)
        jit._source_digest.cache_clear()  # as in another process
        plan = np.zeros(1, np.int64)
        jit.load(names["build_seven"], PORTABLE, 0)(plan.ctypes.data, 0)
        assert plan.tolist() == [value]


@pytest.mark.parametrize("damage", [lambda code: code[:100], lambda code: b"", lambda code: code[:-1] + b"\xff"])
def test_damaged_code_is_compiled_again(folder, damage):
    call(2)
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    assert call(2) == [0, 0, 7, 0]
    assert kept.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
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
def test_where_code_is_kept(platform, variable, parts, tmp_path, monkeypatch):
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
jit.compile_ir = lambda *asked: compiled.append(asked) or compile_ir(*asked)
y = CONV2D["direct"](np.ones((1, 3, 9, 20), np.float32), np.ones((5, 3, 3, 3), np.float32), padding=1, threads=1)
print(len(compiled), float(y.sum()), "numba" in sys.modules)
"""
    environment = {**os.environ, "MLHOOD_CACHE": str(folder)}
    said = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert int(said[0][0]) > 0
    assert said[1][0] == "0"
    assert said[0][1:] == said[1][1:]
    assert said[1][2] == "False"


# -- processors that are not here


def test_a_convolution_for_arm_is_assembled():
    tile = cheapest(AARCH64, 1000, 1000)
    variant = Variant(tile.rows, tile.vectors, 1)
    text = jit.compile_ir(direct_kernel.build(AARCH64, variant), AARCH64, assembly=True)
    assert text.count("fmla") >= tile.rows * tile.vectors
    assert tile.registers <= 32
    code = jit.compile_ir(direct_kernel.build(AARCH64, variant), AARCH64)
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == 183  # EM_AARCH64


def test_a_product_for_arm_is_assembled():
    text = jit.compile_ir(gemm_kernel.build(AARCH64, 6, 4, True, False), AARCH64, assembly=True)
    assert text.count("fmla") >= 24


def test_the_microkernel_uses_the_registers_that_it_was_made_for(target):
    tile = max(candidates(target), key=lambda tile: tile.rows * tile.vectors)
    text = jit.compile_ir(direct_kernel.build(target, Variant(tile.rows, tile.vectors, 1)), target, assembly=True)
    register = {"avx512": "zmm", "avx2": "ymm", "neon": ".4s", "portable": "xmm"}[target.name]
    multiply = "mulps" if target.name == "portable" else "fmla" if target.name == "neon" else "vfmadd"
    lines = [line for line in text.splitlines() if multiply in line and register in line]
    assert len(lines) >= 2 * tile.rows * tile.vectors  # in the kernel that leaves sums and in the one that finishes


def test_the_variant_fits_the_layer():
    wide = Direct(geometry((1, 64, 56, 56), (64, 64, 3, 3), padding=1), np.zeros((64, 64, 3, 3), np.float32))
    assert wide.variant.lanes == "channels"
    deep = Direct(geometry((1, 64, 56, 56), (64, 1, 3, 3), 1, 1, 1, 64), np.zeros((64, 1, 3, 3), np.float32))
    assert deep.variant.lanes == "pixels"
