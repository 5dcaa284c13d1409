"""Many programs in C, compiled into one executable with sanitizers, and run once."""

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mlhood.compiler.backends.c.source import Source, write_source
from mlhood.compiler.hir.lengths import product
from mlhood.compiler.lir.program import Program
from tests.waiting import PATIENCE

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fno-strict-aliasing", "-ffp-contract=off"]
# clang's sanitizers need a library that is packaged apart; its checks of undefined behaviour can do without
SANITIZERS = {
    "gcc": ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"],
    "clang": ["-fsanitize=undefined,float-cast-overflow", "-fsanitize-trap=undefined,float-cast-overflow"],
}
COMPILERS = [
    pytest.param(name, marks=[*marks, pytest.mark.skipif(not shutil.which(name), reason=f"no {name} here")])
    for name, marks in (("gcc", []), ("clang", [pytest.mark.exhaustive]))
]

UNIT = 40  # programs in one file: most of a compiler's time goes into headers and start

Case = tuple[Program, dict[str, np.ndarray]]


def run_all(
    cases: list[Case], folder: Path, compiler: str, flags: list[str] | None = None
) -> list[dict[str, np.ndarray]]:
    """Return the outputs of each program for its inputs, by name; a program that occurs again is compiled once."""
    programs = {id(program): program for program, _ in cases}
    sources = {key: write_source(program, f"case{number}") for number, (key, program) in enumerate(programs.items())}
    folder.mkdir(exist_ok=True)
    units = list(sources.values())
    for start in range(0, len(units), UNIT):
        texts = [as_unit(source) for source in units[start : start + UNIT]]
        (folder / f"unit{start}.c").write_text("\n".join(texts), encoding="ascii")
    main = driver([program for program, _ in cases], [sources[id(program)] for program, _ in cases])
    (folder / "main.c").write_text(main, encoding="ascii")
    data = [np.ascontiguousarray(inputs[name]).tobytes() for _, inputs in cases for name in inputs]
    (folder / "inputs").write_bytes(b"".join(data))
    build(folder, compiler, SANITIZERS[compiler] if flags is None else flags)
    subprocess.run([folder / "all"], cwd=folder, check=True, timeout=PATIENCE)
    return read_outputs([program for program, _ in cases], (folder / "outputs").read_bytes())


def as_unit(source: Source) -> str:
    """Return a program's files as one text, whose static names are distinct from those of other programs."""
    order = [f"{source.prefix}.h", "weights.h", f"{source.prefix}.c", "weights.c"]
    text = "\n".join(re.sub(r'^#include ".*$', "", source.files[name], flags=re.MULTILINE) for name in order)
    names = [*re.findall(r"^static (?!const)\w+ (\w+)\(", text, re.MULTILINE), "arena"]
    return re.sub(rf"\b({'|'.join(names)})\b(?=\(|;|\.bytes)", rf"{source.prefix}_static_\1", text)


def build(folder: Path, compiler: str, flags: list[str]) -> None:
    command = [compiler, *STRICT, *flags]

    def compiled(path: Path) -> Path:
        subprocess.run([*command, "-c", str(path), "-o", str(path.with_suffix(".o"))], check=True, timeout=PATIENCE)
        return path.with_suffix(".o")

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sorted(folder.rglob("*.c"))))
    subprocess.run([*command, *map(str, objects), "-o", str(folder / "all"), "-lm"], check=True, timeout=PATIENCE)


def driver(programs: list[Program], sources: list[Source]) -> str:
    headers = "\n".join(dict.fromkeys(source.files[f"{source.prefix}.h"] for source in sources))
    calls = []
    for program, source in zip(programs, sources, strict=True):
        inputs = [weight for weight in program.weights.values() if weight.kind == "input"]
        buffers = [(f"a{i}", weight.bytes) for i, weight in enumerate([*inputs, *program.outputs.values()])]
        lines = [f"void *{name} = malloc({size} + !{size});" for name, size in buffers]
        lines += [f"if (fread({name}, 1, {size}, in) != {size}) return 1;" for name, size in buffers[: len(inputs)]]
        lines += [f"{source.prefix}_run({', '.join(name for name, _ in buffers)});"]
        lines += [f"fwrite({name}, 1, {size}, out);" for name, size in buffers[len(inputs) :]]
        calls += ["{", *lines, *(f"free({name});" for name, _ in buffers), "}"]
    opened = 'FILE *in = fopen("inputs", "rb"), *out = fopen("outputs", "wb");'
    includes = f"#include <stdio.h>\n#include <stdlib.h>\n{headers}"
    return "\n".join(
        [includes, "int main(void)", "{", opened, *calls, "fclose(in); fclose(out);", "return 0;", "}", ""]
    )


def read_outputs(programs: list[Program], data: bytes) -> list[dict[str, np.ndarray]]:
    results, start = [], 0
    for program in programs:
        results.append({})
        for name, weight in program.outputs.items():
            count = int(product(weight.type.shape))
            array = np.frombuffer(data, weight.type.dtype, count, start) if count else np.zeros(0, weight.type.dtype)
            results[-1][name] = array.reshape([int(axis) for axis in weight.type.shape])
            start += weight.bytes
    assert start == len(data)
    return results
