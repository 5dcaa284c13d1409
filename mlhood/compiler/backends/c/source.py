"""A program as C99: model.h, model.c with a function for each instruction, weights.h and weights.c."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mlhood.compiler.backends.c.kernel import (
    TYPES,
    CKernel,
    Lines,
    c_type,
    indent,
    lines_of,
    number,
    size_of,
    used_helpers,
)
from mlhood.compiler.backends.c.rules import body_of
from mlhood.compiler.hir.text import type_text
from mlhood.compiler.lir.instructions import Alloc, Buffer, Compute, Copy, TensorView, Weight
from mlhood.compiler.lir.program import Program
from mlhood.compiler.memory.plan import plan
from mlhood.errors import CompilerError

MAX_BYTES = 2**26  # of constants: as text they are several times as long
ALIGNMENT = 8  # bytes: of the largest element type
_POINTER = re.compile(r"(?:const )?\w+ \*const (\w+) =")
_SNAKE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class Source:
    """The text of a program.

    Args:
        prefix: What all names at file scope begin with, but those of helpers.
        files: The texts by file name.
        inputs, outputs: The parameters in C, by name.
        arena_bytes: Size of the memory for activations.
        weight_bytes: Size of the constants.
    """

    prefix: str
    files: Mapping[str, str]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    arena_bytes: int
    weight_bytes: int


def write_source(program: Program, prefix: str = "model") -> Source:
    """Return a program as C.

    Args:
        program: A verified program without dynamic axes.
        prefix: A name for the files, the functions and the constants.

    Raises:
        CompilerError: The program has dynamic axes, more constants than 64 MiB, or operators that have no C; the error
            lists these.
    """
    return _Writer(program, identifier(prefix)).write()


@dataclass
class _Writer:
    program: Program
    prefix: str
    functions: dict[tuple[str, ...], str] = field(default_factory=dict)  # name of each by all its lines but the name
    texts: list[str] = field(default_factory=list)
    missing: dict[str, None] = field(default_factory=dict)  # ordered
    expressions: dict[Buffer, str] = field(default_factory=dict)  # how run() names a buffer

    def write(self) -> Source:
        self._check_lengths()
        constants = [weight for weight in self.program.weights.values() if weight.kind == "constant"]
        self.weight_bytes = sum(weight.bytes for weight in constants)
        if self.weight_bytes > MAX_BYTES:
            raise CompilerError(
                "the constants are too large for a program in C",
                expected=f"{MAX_BYTES:,} bytes at most",
                got=f"{self.weight_bytes:,} bytes",
                todo="quantise the model, or run it on target cpu",
            )
        self.names = Names(frozenset({"arena", "i", "run", f"{self.prefix}_run".lower()}))
        self.plan = plan(self.program.lifetimes(), ALIGNMENT)
        used = {buffer for instruction in self.program.instructions for buffer in instruction.buffers}
        self.constants = [weight for weight in constants if weight in used]
        for weight in (*self.constants, *self._external("input").values(), *self._external("output").values()):
            self._element(weight)
        for weight in self.constants:
            self.expressions[weight] = self.names.new(weight.name, f"{self.prefix}_")
        self.parameters = {
            kind: {name: self.names.new(name) for name in self._external(kind)} for kind in ("input", "output")
        }
        for kind in ("input", "output"):
            for name, weight in self._external(kind).items():
                self.expressions[weight] = self.parameters[kind][name]
        statements = self._statements()
        self._check_missing()
        files = {
            f"{self.prefix}.h": self._header(),
            f"{self.prefix}.c": self._model(statements),
            "weights.h": self._weights_header(),
            "weights.c": self._weights(),
        }
        inputs, outputs = self.parameters["input"], self.parameters["output"]
        return Source(self.prefix, files, inputs, outputs, self.plan.bytes, self.weight_bytes)

    def _check_lengths(self) -> None:
        buffers = dict.fromkeys(buffer for step in self.program.instructions for buffer in step.buffers)
        names = [buffer.name for buffer in buffers if any(isinstance(axis, str) for axis in buffer.type.shape)]
        if names:
            raise CompilerError(
                "a program in C has no dynamic axes",
                expected="lengths that are known when compiling",
                got=f"dynamic dimensions of {', '.join(names[:8])}{', ...' if names[8:] else ''}",
                todo="give the model's dynamic dimensions, or run it on target cpu if its data decide them",
            )

    def _external(self, kind: str) -> dict[str, Weight]:
        if kind == "output":
            return dict(self.program.outputs)
        return {name: weight for name, weight in self.program.weights.items() if weight.kind == kind}

    def _statements(self) -> Lines:
        lines: Lines = []
        fixed = {weight for weight in self.program.weights.values() if weight.kind != "output"}
        for instruction in self.program.instructions:
            match instruction:
                case Alloc(buffer):
                    memory = f"(void *)(arena.bytes + {self.plan.offsets[buffer.name]})"
                    lines.append(self._pointer(buffer, memory, ""))
                case TensorView(buffer, source):
                    constant = "const " if source in fixed else ""
                    fixed |= {buffer} if constant else set()
                    lines.append(self._pointer(buffer, f"({constant}void *){self.expressions[source]}", constant))
                case Copy(target, source):
                    lines += self._copy(target, source)
                case Compute():
                    lines += self._call(instruction)
        return _without_unused(lines)

    def _pointer(self, buffer: Buffer, memory: str, constant: str) -> str:
        name = self.expressions[buffer] = self.names.new(buffer.name)
        self._element(buffer)
        return f"{constant}{TYPES.get(buffer.type.element, '?')} *const {name} = {memory};"

    def _element(self, buffer: Buffer) -> None:
        if buffer.type.element not in TYPES:
            self.missing[buffer.type.element] = None

    def _copy(self, target: Buffer, source: Buffer) -> Lines:
        self._element(source)
        count = size_of(source.type)
        into, read = self.expressions[target], self.expressions[source]
        return [f"for (int i = 0; i < {count}; ++i) {{", f"    {into}[i] = {read}[i];", "}"] if count else []

    def _call(self, instruction: Compute) -> Lines:
        data = tuple(buffer.data if isinstance(buffer, Weight) else None for buffer in instruction.inputs)
        types = tuple(None if buffer is None else buffer.type for buffer in instruction.inputs)
        results = tuple(buffer.type for buffer in instruction.results)
        if not any(size_of(type) for type in results):
            return []
        kernel = CKernel(instruction.operator, types, results, data)
        try:
            body = body_of(kernel)
        except CompilerError as error:
            self.missing[error.what] = None
            return []
        operands = [(name, buffer) for name, buffer in zip(kernel.names, instruction.inputs, strict=True) if buffer]
        targets = [f"y{position or ''}" for position in range(len(results))]
        signature = ", ".join(
            [f"const {c_type(buffer.type)} *{name}" for name, buffer in operands]
            + [f"{c_type(type)} *{name}" for name, type in zip(targets, results, strict=True)]
        )
        text = "\n".join(body)
        unused = [name for name in [*(name for name, _ in operands), *targets] if not re.search(rf"\b{name}\b", text)]
        name = self._function(kernel, signature, [*(f"(void){name};" for name in unused), *body])
        arguments = [self.expressions[buffer] for _, buffer in operands]
        return [f"{name}({', '.join(arguments + [self.expressions[buffer] for buffer in instruction.results])});"]

    def _function(self, kernel: CKernel, signature: str, body: Lines) -> str:
        """Return the name of a function with this body; instructions that are equal share one."""
        key = (signature, *body)
        if key not in self.functions:
            name = self.functions[key] = self.names.new(
                _SNAKE.sub("_", kernel.operator.name).lower(), f"{self.prefix}_"
            )
            header = [f"/* {line} */" for line in _describe(kernel)]
            self.texts.append("\n".join([*header, f"static void {name}({signature})", "{", *indent(body), "}"]))
        return self.functions[key]

    def _check_missing(self) -> None:
        if self.missing:
            raise CompilerError(
                "some operators of the model have no C",
                where=f"program {self.program.name!r}",
                got="; ".join(self.missing),
                todo="run the model on target cpu; a rule for an operator is a function in "
                "mlhood/compiler/backends/c and a line in its rules.py",
            )

    def _signature(self) -> str:
        inputs, outputs = self._external("input"), self._external("output")
        parts = [f"const {c_type(inputs[name].type)} *{text}" for name, text in self.parameters["input"].items()]
        parts += [f"{c_type(outputs[name].type)} *{text}" for name, text in self.parameters["output"].items()]
        return f"void {self.prefix}_run({', '.join(parts) or 'void'})"

    def _header(self) -> str:
        guard, lines = f"{self.prefix.upper()}_H", []
        for kind in ("input", "output"):
            for name, weight in self._external(kind).items():
                text = self.parameters[kind][name]
                lines.append(f"/* {kind} {comment(repr(name))}: {comment(type_text(weight.type))} */")
                lines.append(f"#define {self.prefix.upper()}_{text.upper()}_LENGTH {size_of(weight.type)}")
        return "\n".join(
            [
                f"/* {comment(self.program.name)}: a neural network, compiled to C99. */",
                f"#ifndef {guard}",
                f"#define {guard}",
                "",
                "#include <stdint.h>",
                "",
                *lines,
                "",
                "/* Compute the outputs from the inputs, all in C order. It allocates nothing: activations lie in one",
                f"   static arena of {self.plan.bytes} bytes, so only one call may run at a time. */",
                f"{self._signature()};",
                "",
                "#endif",
                "",
            ]
        )

    def _model(self, statements: Lines) -> str:
        helpers = used_helpers(self.texts)
        uses_arena = any("arena.bytes" in line for line in statements)
        arena = f"""/* Memory of the activations: those that are needed at different times share it. */
static union {{
    double real;
    int64_t integer;
    unsigned char bytes[{max(self.plan.bytes, 1)}];
}} arena;
"""
        given = [*self.parameters["input"].values(), *self.parameters["output"].values()]
        text = "\n".join(statements)
        unused = [f"(void){name};" for name in given if not re.search(rf"\b{name}\b", text)]
        parts = [
            f"/* {comment(self.program.name)}: a function for each operator, then the program. */",
            "#include <math.h>\n#include <stdint.h>\n" + f'\n#include "{self.prefix}.h"\n#include "weights.h"\n',
            *([arena] if uses_arena else []),
            *(f"{helper}\n" for helper in helpers),
            *(f"{function}\n" for function in self.texts),
            "\n".join([self._signature(), "{", *indent([*unused, *statements]), "}", ""]),
        ]
        return "\n".join(parts)

    def _weights_header(self) -> str:
        guard = f"{self.prefix.upper()}_WEIGHTS_H"
        lines = [
            f"extern const {c_type(weight.type)} {self.expressions[weight]}[{max(size_of(weight.type), 1)}];"
            f" /* {comment(type_text(weight.type))} */"
            for weight in self.constants
        ]
        return "\n".join(
            [f"#ifndef {guard}", f"#define {guard}", "", "#include <stdint.h>", "", *lines, "", "#endif", ""]
        )

    def _weights(self) -> str:
        parts = ['#include <math.h>\n#include <stdint.h>\n\n#include "weights.h"\n']
        for weight in self.constants:
            data = np.zeros(1, weight.type.dtype) if weight.data is None or not weight.data.size else weight.data
            numbers = lines_of(number(value, weight.type.element) for value in data.ravel().tolist())
            declaration = f"const {c_type(weight.type)} {self.expressions[weight]}[{data.size}]"
            title = f"/* {comment(weight.name)}: {comment(type_text(weight.type))} */"
            parts.append("\n".join([title, f"{declaration} = {{", *indent(numbers), "};\n"]))
        return "\n".join(parts)


def _without_unused(statements: Lines) -> Lines:
    """Return statements without the pointers that no later statement names, which a compiler would warn of."""
    kept: Lines = []
    used: set[str] = set()
    for line in reversed(statements):
        declared = _POINTER.match(line)
        if declared is None or declared[1] in used:
            kept.append(line)
            used |= set(re.findall(r"\w+", line))
    return kept[::-1]


def _describe(kernel: CKernel) -> Lines:
    """Return a function's comment: the operator with its attributes, and the types of its operands."""
    attributes = ", ".join(f"{name}={value}" for name, value in kernel.operator.attributes.items())
    inputs = ", ".join("none" if type is None else _short(type_text(type)) for type in kernel.inputs)
    results = ", ".join(_short(type_text(type)) for type in kernel.results)
    return [comment(f"{kernel.operator.name}({_short(attributes)})"), comment(f"{inputs} -> {results}")]


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]} ..."


# Keywords of C and C++; and macros that, against the custom, are not in capitals, of the headers that a program may
# include with the model's.
_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while alignas "
    "alignof and and_eq asm bitand bitor bool catch class compl concept const_cast consteval constexpr constinit "
    "co_await co_return co_yield decltype delete dynamic_cast explicit export false friend mutable namespace new "
    "noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_assert "
    "static_cast template this thread_local throw true try typeid typename typeof typeof_unqual using virtual xor "
    "xor_eq complex imaginary errno stdin stdout stderr linux unix i386 near far main"
)
_MAX_CHARS = 40


def identifier(name: str) -> str:
    """Return a name as an identifier of C: letters, digits and single underscores of ASCII, at most 40.

    A name in capitals, as macros have them, becomes small.
    """
    text = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_MAX_CHARS].strip("_")
    text = text.lower() if text.isupper() else text
    return text if text[:1].isalpha() else f"v{text}"


class Names:
    """Distinct identifiers for names, also where capitals do not count, as in macros.

    None is a keyword, a type of an element, or a macro of a header, as those are in capitals. One may be a function of
    a header, or a type that is not used, which parameters and local variables are free to hide. At file scope, all
    follow the program's prefix.

    Args:
        taken: Identifiers that are not given out, in small letters.
    """

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = {*_KEYWORDS.split(), *TYPES.values(), *taken}
        self._counts: dict[str, int] = {}

    def new(self, name: str, prefix: str = "") -> str:
        """Return an identifier that is like the name, follows the prefix, and that no earlier call returned."""
        base = prefix + identifier(name)
        text = base
        while text.lower() in self._taken:
            self._counts[base] = self._counts.get(base, 0) + 1
            text = f"{base}_{self._counts[base]}"
        self._taken.add(text.lower())
        return text


def comment(text: str) -> str:
    """Return a text that neither ends a comment nor opens one, has no trigraph, line break or letter beyond ASCII."""
    text = re.sub(r"[^ -~]|\\", "_", text)
    text = re.sub(r"\*(?=/)|/(?=\*)", r"\g<0> ", text)
    return re.sub(r"\?(?=\?)", "? ", text)
