"""What a task forbids does not exist where its functions run, however a solution tries to reach it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nbformat.v4 import new_code_cell

import mlhood
from mlhood.grading.bare.libraries import ARRAYS, LOOPS
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Task, points
from tests.attacks.attacked import LIMIT

PACKAGE = Path(mlhood.__file__).parent


@points(1)
def multiplies(submission):
    """`product` multiplies matrices."""
    a, b = submission.normal(3, 4), submission.normal(4, 2)
    if not np.allclose(submission.call("product", a, b), a @ b, atol=1e-5):
        raise AssertionError


PRODUCT = Task("T9.1", "Multiply", (multiplies,), libraries=LOOPS, seconds=LIMIT)


@pytest.fixture(scope="module")
def bare(pool, tmp_path_factory):
    """Bare kernels by what exists in them."""
    folder = tmp_path_factory.mktemp("bare")
    with pool.kernel(folder, LOOPS) as loops, pool.kernel(folder, ARRAYS) as arrays:
        yield {LOOPS: loops, ARRAYS: arrays}


def run(kernel, source):
    cell = new_code_cell(source)
    outcome = kernel.run(cell, LIMIT)
    return outcome, "".join(output.get("text", "") for output in cell.outputs)


def earned(kernel, source):
    run(kernel, "import numpy as np\nproduct = None")
    run(kernel, source)
    return grade_task(PRODUCT, Session(kernel, kernel.folder, kernel.scratch), 4711)


RIGHT = {
    "loops": "def product(a, b): return np.array([[sum(x * y for x, y in zip(r, c)) for c in b.T] for r in a])",
    "compiled loops": (
        "import numba\n@numba.njit\ndef product(a, b):\n    c = np.zeros((a.shape[0], b.shape[1]), np.float32)\n"
        "    for i in range(a.shape[0]):\n        for j in range(b.shape[1]):\n"
        "            for k in range(a.shape[1]): c[i, j] += a[i, k] * b[k, j]\n    return c"
    ),
    "broadcasting": "def product(a, b): return (a[:, :, None] * b).sum(1)",
    "an import of what is missing": (
        "import torch, scipy.signal\nfrom torch import nn\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\n"
        "def product(a: torch.Tensor | None, b): return (a[:, :, None] * b).sum(1)\ntorch.manual_seed(0)"
    ),
}


@pytest.mark.parametrize("source", RIGHT.values(), ids=RIGHT)
def test_a_solution_with_the_libraries_of_the_task_is_right(bare, source):
    assert earned(bare[LOOPS], source).full


CHEATS = {
    "an operator": "def product(a, b): return a @ b",
    "a method": "def product(a, b): return a.dot(b)",
    "a function of numpy": "def product(a, b): return np.matmul(a, b)",
    "a class attribute": "class A:\n    f = np.dot\ndef product(a, b): return A.f(a, b)",
    "a slot": "def product(a, b): return np.ndarray.__matmul__(a, b)",
    "the operator module": "import operator\ndef product(a, b): return operator.matmul(a, b)",
    "the core of numpy": "def product(a, b): return np._core._multiarray_umath.matmul(a, b)",
    "numpy anew": "import importlib\ndef product(a, b): return importlib.reload(np).matmul(a, b)",
    "masked arrays": "def product(a, b): return np.ma.dot(a, b)",
    "einsum": "def product(a, b): return np.einsum('ij,jk', a, b)",
    "the matrix class": "def product(a, b): return np.asarray(np.matrix(a) * np.matrix(b))",
    "a subclass of arrays": (
        "def product(a, b):\n    a, b = (x.astype(np.longdouble).view(np.recarray) for x in (a, b))\n"
        "    return np.asarray(a @ b, np.float32)"
    ),
    "linear algebra": "def product(a, b): return np.linalg.multi_dot([a, b])",
    "a solver": "def product(a, b): return np.linalg.solve(np.linalg.inv(a @ a.T), b)",
    "a product of numba": "import numba\n@numba.njit\ndef product(a, b): return a @ b",
    "torch by name": "def product(a, b): return __import__('torch').from_numpy(a).matmul(b)",
    "torch in a comprehension": "import torch\n[0 for torch in ()]\ndef product(a, b): return torch.mm(a, b)",
    "the kernels' file": f"exec(open({str(PACKAGE / 'kernels' / 'gemm.py')!r}).read())\nproduct = blas",
    "a magic": "%run mine.py\n%%python\nproduct = 1",
    "a child program": (
        "import subprocess, sys\ndef product(a, b): return subprocess.run([sys.executable, '-c', 'import numpy'])"
    ),
    "a spawned process": (
        "import multiprocessing as m\ndef product(a, b): return m.get_context('spawn').Process(target=print).start()"
    ),
    "a forged error": "raise ModuleNotFoundError(\"No module named 'mine'\", name='mine')\nproduct = np.matmul",
    "another path": "import sys\nsys.path[:] = ['/usr/lib/python3/dist-packages']\nimport scipy\nproduct = scipy.dot",
    "a finder that is removed": "import sys\nsys.meta_path.pop(0)\nimport torch\nproduct = torch.mm",
    "the library behind numpy": (
        "import ctypes, glob\nblas = ctypes.CDLL(glob.glob('/site/numpy.libs/*openblas*')[0])\n"
        "sgemm = next(getattr(blas, n) for n in ('scipy_cblas_sgemm64_', 'cblas_sgemm64_', 'cblas_sgemm') "
        "if hasattr(blas, n))\nP = ctypes.POINTER(ctypes.c_float)\n"
        "def product(a, b):\n    c, n = np.zeros((3, 2), np.float32), ctypes.c_int64\n"
        "    a, b, p = np.ascontiguousarray(a), np.ascontiguousarray(b), [x.ctypes.data_as(P) for x in (a, b, c)]\n"
        "    f, m = ctypes.c_float, n(4)\n"
        "    sgemm(101, 111, 111, n(3), n(2), m, f(1), p[0], m, p[1], n(2), f(0), p[2], n(2))\n"
        "    return c"
    ),
    "the library behind the library": (
        "import ctypes, glob\nS = ctypes.c_ssize_t\nclass Axis(ctypes.Structure):\n"
        "    _fields_ = [('stride', S), ('low', S), ('high', S)]\nclass Array(ctypes.Structure):\n"
        "    _fields_ = [('base', ctypes.c_void_p), ('offset', S), ('length', S), ('version', ctypes.c_int),\n"
        "                ('rank', ctypes.c_byte), ('type', ctypes.c_byte), ('flags', ctypes.c_short), ('span', S),\n"
        "                ('axes', Axis * 2)]\ndef described(x):\n"
        "    axes = (Axis(step // 4, 0, size - 1) for step, size in zip(x.strides, x.shape))\n"
        "    return ctypes.byref(Array(x.ctypes.data, 0, 4, 0, 2, 3, 0, 4, (Axis * 2)(*axes)))\n"
        "library = ctypes.CDLL(glob.glob('/site/numpy.libs/*gfortran*')[0])\ndef product(a, b):\n"
        "    a, b, c = np.asfortranarray(a), np.asfortranarray(b), np.zeros((3, 2), np.float32, order='F')\n"
        "    library._gfortran_matmul_r4(*map(described, (c, a, b)), 0, 0, None)\n    return c"
    ),
    "a library of the system": (
        "import ctypes.util\ndef product(a, b): return ctypes.CDLL('libblas.so.3').cblas_sgemm(a, b)"
    ),
}


@pytest.mark.parametrize("source", CHEATS.values(), ids=CHEATS)
def test_what_a_task_forbids_earns_nothing(bare, source):
    assert earned(bare[LOOPS], source).earned == 0


def test_the_message_says_what_is_missing_and_what_exists(bare):
    result = earned(bare[LOOPS], "import torch\ndef product(a, b): return torch.mm(a, b)")
    assert "`torch.mm` is not available where this is graded" in result.checks[0].what
    assert "numpy and numba" in result.checks[0].parts["expected"]


def test_a_function_that_could_not_be_defined_says_why(bare):
    run(bare[LOOPS], "del product")
    run(bare[LOOPS], "import torch\n@torch.jit.script\ndef product(a, b): return a")
    result = grade_task(PRODUCT, Session(bare[LOOPS], bare[LOOPS].folder, bare[LOOPS].scratch), 1)
    assert "defines no `product`: `torch.jit.script` is not available" in result.checks[0].what


def test_only_what_the_libraries_need_is_on_the_disk(bare):
    _, text = run(bare[ARRAYS], "import os\nprint(sorted(os.listdir('/site/mlhood/grading')))")
    assert text.strip() == "['__init__.py', 'bare', 'rpc', 'sandbox']"
    for path in ("/usr/bin", "/bin", "/usr/lib/python3", "/site/torch", "/site/scipy", PACKAGE, Path.home() / ".cache"):
        assert run(bare[ARRAYS], f"print(os.path.exists({str(path)!r}))")[1] == "False\n"


def test_other_libraries_keep_the_products_of_numpy(bare):
    assert run(bare[ARRAYS], "import numpy as np\nprint((np.ones((2, 3)) @ np.ones((3, 2))).sum())")[1] == "12.0\n"


def test_a_file_replaces_no_library(shared):
    shared.run("from pathlib import Path\nPath('wave.py').write_text('x = 1')\nPath('mine.py').write_text('x = 1')")
    assert shared.eval("__import__('wave').__name__ and hasattr(__import__('wave'), 'x')") == "False"
    assert shared.eval("__import__('mine').x") == "1"


STARTS = {
    "a program": "import subprocess; subprocess.run(['/proc/self/exe', '-c', ''])",
    "another program": "import os; os.execv('/proc/self/exe', ['python'])",
    "fork": "import os; os.fork()",
    "a pool": "import multiprocessing; multiprocessing.get_context('fork').Pool(2)",
    "a spawned process": "import os; os.posix_spawn('/proc/self/exe', ['python'], {})",
    "the system call": (
        "import ctypes, platform\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "number = {'x86_64': 56, 'aarch64': 220}[platform.machine()]\n"
        "if libc.syscall(number, 17, 0, 0, 0, 0) < 0: raise OSError(ctypes.get_errno(), 'refused')"
    ),
}


@pytest.mark.parametrize("source", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("libraries", [LOOPS, ARRAYS], ids=["without products", "with products"])
def test_a_bare_kernel_starts_no_process(bare, libraries, source):
    outcome, _ = run(bare[libraries], source)
    assert outcome.error.startswith("OSError: [Errno 38]")
    assert run(bare[libraries], "print(6 * 7)")[1] == "42\n"


def test_the_cpu_time_of_a_bare_kernel_is_that_of_all_its_threads(bare):
    spent = {}
    work = "import time\ndef spin():\n    stop = time.thread_time() + 0.2\n    while time.thread_time() < stop: pass\n"
    threads = "import threading\nt = [threading.Thread(target=spin) for _ in range(3)]\n[x.start() for x in t]"
    for name, source in {"threads": f"{threads}\n[x.join() for x in t]", "sleep": "time.sleep(0.5)"}.items():
        run(bare[ARRAYS], work)
        before = bare[ARRAYS].cpu_seconds()
        run(bare[ARRAYS], source)
        spent[name] = bare[ARRAYS].cpu_seconds() - before
    assert spent["threads"] >= 0.6
    assert spent["sleep"] < 0.2


def test_the_cpu_time_of_a_kernel_that_may_start_processes_is_unknown(attacked):
    assert attacked.kernel.cpu_seconds() is None
