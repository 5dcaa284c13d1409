"""The facts of a machine: read on this one, and parsed from samples of other systems."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import mlhood.measure
from mlhood.measure.machine import binary_size, describe_cores, describe_vector, hardware
from mlhood.measure.machine.facts import Blas, CacheSizes, Cores, Hardware, Vector
from mlhood.measure.machine.hardware import vector
from mlhood.measure.machine.software import choose_blas

APPLE = """\
hw.l1dcachesize: 65536
hw.l2cachesize: 4194304
hw.perflevel0.l1dcachesize: 131072
hw.perflevel0.l2cachesize: 16777216
hw.cachelinesize: 128
machdep.cpu.brand_string: Apple M2
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def cache_files(index: int, level: int, kind: str, size: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
    return {
        f"{folder}/level": f"{level}\n",
        f"{folder}/type": f"{kind}\n",
        f"{folder}/size": f"{size}\n",
        f"{folder}/coherency_line_size": "64\n",
    }


# -- this machine


def test_this_machine_survives_json():
    facts = mlhood.measure.machine().as_dict()
    assert json.loads(json.dumps(facts)) == facts


def test_what_control_groups_allow_bounds_what_the_machine_has(monkeypatch):
    monkeypatch.setattr(hardware, "read", lambda: Hardware(quotas=(0.5, 10_000), limits=(2**62, 2**20)))
    machine = mlhood.measure.machine()
    assert machine.cores.logical > machine.cores.usable == 0.5
    assert machine.memory.total > machine.memory.limit == 2**20


# -- Linux


def test_linux_reads_processor_and_caches(tmp_path):
    root = write(
        tmp_path,
        {
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t: sse2\n",
            **cache_files(0, 1, "Data", "48K"),
            **cache_files(1, 1, "Instruction", "32K"),
            **cache_files(2, 2, "Unified", "1024K"),
            **cache_files(3, 3, "Unified", "32M"),
        },
    )
    found = hardware.read_linux(root)
    assert found.cpu == "Some CPU @ 3 GHz"
    assert found.caches == CacheSizes(l1d=48 * 2**10, l2=2**20, l3=32 * 2**20, line=64)


def test_linux_without_its_files_leaves_everything_unknown(tmp_path):
    assert hardware.read_linux(tmp_path) == Hardware()


@pytest.mark.parametrize(
    ("text", "size"),
    [("48K", 49152), ("8M\n", 8 * 2**20), ("512", 512), ("", None), ("max", None), ("-1", None)],
)
def test_sizes(text, size):
    assert hardware.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "quota"),
    [("150000 100000\n", 1.5), ("max 100000", None), ("-1 100000", None), ("", None), ("5 0", None)],
)
def test_processor_quotas(text, quota):
    assert hardware.parse_cpu_max(text) == quota


def test_cgroup_v2_limits_of_ancestors_apply(tmp_path):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/class/student\n",
            "sys/fs/cgroup/class/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/class/student/cpu.max": "max 100000\n",
            "sys/fs/cgroup/class/student/memory.max": "max\n",
            "sys/fs/cgroup/memory.max": "2147483648\n",
        },
    )
    found = hardware.read_linux(root)
    assert found.quotas == (0.5,)
    assert found.limits == (2 * 2**30,)


# -- macOS


def test_apple_silicon_reports_the_performance_cores_and_no_third_level():
    found = hardware.parse_sysctl(APPLE)
    assert found.cpu == "Apple M2"
    assert found.caches == CacheSizes(l1d=131072, l2=16 * 2**20, l3=None, line=128)


def test_empty_output_of_sysctl_is_unknown():
    assert hardware.parse_sysctl("") == Hardware()


# -- Windows


def record(relation: int, body: bytes) -> bytes:
    return struct.pack("<II", relation, 8 + len(body)) + body


def cache_record(level: int, size: int, kind: int) -> bytes:
    return record(2, struct.pack("<BBHII", level, 8, 64, size, kind) + bytes(36))


def test_windows_takes_the_first_data_cache_of_a_level():
    records = b"".join(
        [
            record(0, bytes(40)),
            cache_record(1, 49152, 2),
            cache_record(1, 32768, 1),
            cache_record(2, 1310720, 0),
            record(0, bytes(40)),
            cache_record(1, 32768, 2),
            cache_record(3, 12582912, 0),
            record(3, bytes(16)),
        ]
    )
    assert hardware.parse_caches(records) == CacheSizes(l1d=49152, l2=1310720, l3=12582912, line=64)


@pytest.mark.parametrize("records", [b"", b"\0" * 7, bytes(64), record(2, b"")], ids=len)
def test_truncated_windows_records_are_unknown(records):
    assert hardware.parse_caches(records) == CacheSizes()


# -- vectors


@pytest.mark.parametrize(
    ("features", "architecture", "widest", "lanes"),
    [
        ({"sse2": True, "avx": True, "avx2": True, "avx512f": True}, "x86_64", "AVX-512", 16),
        ({"sse2": True, "avx": True, "avx2": True, "avx512f": False}, "AMD64", "AVX2", 8),
        ({"sse2": True, "avx": True}, "x86_64", "AVX", 8),
        ({"sse2": True}, "x86_64", "SSE2", 4),
        ({"neon": True, "sve": True}, "aarch64", "NEON", 4),
        ({}, "arm64", "NEON", 4),
    ],
)
def test_the_widest_vector_set_gives_the_lanes(features, architecture, widest, lanes):
    widest_vector = vector(features, architecture)
    assert widest_vector.sets[0] == widest
    assert widest_vector.float32_lanes == lanes


def test_a_processor_that_llvm_does_not_know_has_an_unknown_width():
    assert vector({}, "riscv64") == Vector()
    assert describe_vector(Vector()) == "vector width unknown"


# -- BLAS


def loaded(path: str, api: str = "openblas", threads: int = 2) -> dict[str, object]:
    return {
        "user_api": "blas",
        "internal_api": api,
        "version": "1.2",
        "num_threads": threads,
        "filepath": path,
    }


def test_numpys_blas_is_distinguished_from_scipys():
    libraries = [loaded("/lib/scipy.libs/libblas.so", threads=7), loaded("/lib/numpy.libs/libblas.so")]
    assert choose_blas(libraries, {"name": "scipy-openblas"}) == Blas("openblas", "1.2", 2)


def test_a_shared_blas_is_recognised_by_its_api():
    libraries = [{"user_api": "openmp", "internal_api": "openmp"}, loaded("/conda/libmkl_rt.so", "mkl", 4)]
    assert choose_blas(libraries, {"name": "mkl", "version": "2025"}) == Blas("mkl", "1.2", 4)


@pytest.mark.parametrize(
    ("kernel", "lanes"), [("Haswell", 8), ("SkylakeX", 16), ("SapphireRapids", 16), ("armv8", 4), ("a new one", None)]
)
def test_the_kernels_of_a_blas_have_a_vector_width(kernel, lanes):
    blas = choose_blas([loaded("/numpy.libs/libblas.so") | {"architecture": kernel}], {})
    assert blas == Blas("openblas", "1.2", 2, kernel, lanes)
    assert str(blas) == f"openblas 1.2 for {kernel}" + (f" ({lanes} float32)" if lanes else "")


def test_accelerate_is_known_from_the_build_only():
    assert choose_blas([], {"name": "accelerate", "version": "unknown"}) == Blas("accelerate", "unknown", None)
    assert choose_blas([], {}) == Blas()


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "unknown"), (0, "0 B"), (512, "512 B"), (49152, "48 KiB"), (3 * 2**19, "1.5 MiB")],
)
def test_sizes_as_text(size, text):
    assert binary_size(size) == text


# -- text


@pytest.mark.parametrize(
    ("cores", "text"),
    [
        (Cores(1, 1, 1), "1 core"),
        (Cores(4, 8, 8), "4 cores, 8 hardware threads"),
        (Cores(4, 8, 1.5), "4 cores, 8 hardware threads, 1.5 usable here"),
        (Cores(), "cores unknown"),
    ],
)
def test_cores_as_text(cores, text):
    assert describe_cores(cores) == text
