"""One loop as LLVM IR, as assembly of this machine, and as PTX."""

import ctypes
import shutil
import subprocess

import llvmlite.binding as llvm
import numpy as np
import pytest

from mlhood.gpu import ptx


def test_each_instruction_belongs_to_one_of_the_ir():
    steps = {step.meaning: step for step in ptx.compiled().steps}
    assert any(text.startswith("fma.rn.f32") for text in steps["one multiply-add"].ptx)
    assert any("ld.global" in text for text in steps["a[k]"].ptx)
    assert any("bra" in text for text in steps["and again"].ptx)
    assert all(len(steps[meaning].host) > 0 for meaning in ("a[k]", "one multiply-add", "and again"))
    assert "fma.rn.f32" in str(ptx.compiled())


def test_the_loop_is_a_product_of_a_row_and_a_column():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(ptx.module(gpu=False))
    machine = llvm.Target.from_default_triple().create_target_machine(features="", cpu=llvm.get_host_cpu_name())
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function = ctypes.CFUNCTYPE(None, pointer, pointer, number, number, pointer)(engine.get_function_address(ptx.NAME))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 7), np.float32), rng.standard_normal((7, 5), np.float32)
    c = np.zeros(1, np.float32)
    function(a[1].ctypes.data, b[:, 2:].ctypes.data, 5, 7, c.ctypes.data)
    np.testing.assert_allclose(c[0], a[1] @ b[:, 2], rtol=1e-5)


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas here")
def test_ptxas_accepts_it(tmp_path):
    source = tmp_path / "dot.ptx"
    source.write_text(ptx.assembly(gpu=True))
    command = ["ptxas", "-v", f"--gpu-name={ptx.ARCHITECTURE}", str(source), "-o", str(tmp_path / "dot.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "registers" in done.stdout + done.stderr
