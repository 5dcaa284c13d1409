"""One loop as LLVM IR, as assembly of this machine, and as PTX; and the ladder in the hands of NVIDIA's compilers.

What they need is optional: the wheels nvidia-cuda-nvcc, nvidia-nvvm and nvidia-cuda-runtime, or `ptxas` on the path.
"""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from mlhood.gpu import ptx

_NVIDIA = importlib.util.find_spec("nvidia")
WHEELS = [Path(root) / "cu13" for root in (_NVIDIA.submodule_search_locations or () if _NVIDIA else ())]
PTXAS = shutil.which("ptxas", path=os.pathsep.join([*(f"{root}/bin" for root in WHEELS), os.environ["PATH"]]))
NVVM = next((path for root in WHEELS for path in root.glob("lib/libnvvm.so.*")), None)

# Prints the PTX of a kernel. Numba looks for a GPU only where a kernel calls a function that it has to compile as well.
COMPILE = """
import sys, numba.cuda
from mlhood.gpu import ladder
kernel = getattr(ladder, sys.argv[1])
matrices = (numba.float32[:, ::1],) * kernel.py_func.__code__.co_argcount
print(numba.cuda.compile_ptx(kernel.py_func, matrices, cc=(7, 5))[0])
"""


def assembled(text, folder):
    """What `ptxas` says of the registers and memories that a kernel needs."""
    (folder / "kernel.ptx").write_text(text)
    command = [PTXAS, "-v", f"--gpu-name={ptx.ARCHITECTURE}", folder / "kernel.ptx", "-o", folder / "kernel.cubin"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


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


@pytest.mark.skipif(PTXAS is None, reason="no ptxas here")
def test_ptxas_accepts_it(tmp_path):
    assert re.search(r"Used \d+ registers", assembled(ptx.assembly(gpu=True), tmp_path))


@pytest.mark.skipif(PTXAS is None or NVVM is None, reason="no ptxas or no libnvvm here")
@pytest.mark.parametrize(("kernel", "shared"), [("naive", 0), ("coalesced", 0), ("tiled", 2048), ("registers", 9216)])
def test_the_ladder_compiles_for_a_gpu(kernel, shared, tmp_path):
    (tmp_path / "nvvm").mkdir()
    for name, target in (("lib64", "lib"), ("nvvm/lib64", "lib"), ("nvvm/libdevice", "nvvm/libdevice")):
        (tmp_path / name).symlink_to(NVVM.parents[1] / target)  # where Numba looks for them
    environment = {**os.environ, "CUDA_HOME": str(tmp_path), "NUMBA_ENABLE_CUDASIM": "0"}
    command = [sys.executable, "-c", COMPILE, kernel]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = assembled(done.stdout, tmp_path)
    assert int(re.search(r"Used (\d+) registers", told)[1]) < 128
    assert "0 bytes spill stores" in told
    assert (re.findall(r"(\d+) bytes smem", told) or ["0"]) == [str(shared)]
