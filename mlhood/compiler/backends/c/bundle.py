"""A program as a folder of C: the network, a program that runs it, and what builds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlhood.compiler.backends.c.kernel import c_type, number, shape_of, size_of
from mlhood.compiler.backends.c.source import Source, write_source
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.lir.instructions import Compute
from mlhood.compiler.lir.program import Program
from mlhood.compiler.operators.normalization import LogSoftmax, Softmax

_TEMPLATES = Path(__file__).parent / "templates"
PREFIX = "model"


@dataclass(frozen=True)
class Picture:
    """What a program that takes one grey picture, and gives a score for each class, is about.

    Args:
        height, width: Of the picture.
        classes: How many scores there are.
        softmax: Whether the scores are still to be made probabilities.
        black, white: The numbers that the network knows as the darkest and the lightest pixel.
    """

    height: int
    width: int
    classes: int
    softmax: bool
    black: float
    white: float


def picture_of(program: Program, levels: tuple[float, float]) -> Picture | None:
    """Return what a program with an input [1, 1, H, W] and scores of classes is about; None for another program.

    Args:
        program: A program without dynamic axes.
        levels: The numbers for black and for white.
    """
    inputs = [weight.type for weight in program.weights.values() if weight.kind == "input"]
    outputs = list(program.outputs.values())
    if len(inputs) != 1 or len(outputs) != 1:
        return None
    (x,), y = inputs, outputs[0].type
    shape, classes = shape_of(x), size_of(y)
    takes = x.element == "float32" and len(shape) == 4 and shape[:2] == (1, 1) and min(shape) > 0
    if not takes or y.element != "float32" or classes < 2 or shape_of(y)[-1] != classes:
        return None
    makers = [each.operator for each in program.instructions if isinstance(each, Compute)]
    ends = bool(makers) and isinstance(makers[-1], Softmax) and not isinstance(makers[-1], LogSoftmax)
    return Picture(shape[2], shape[3], classes, not ends, *levels)


def bundle_files(program: Program, levels: tuple[float, float] = (0.0, 1.0)) -> dict[str, str]:
    """Return the files of a bundle by name.

    Args:
        program: A verified program without dynamic axes.
        levels: The numbers that the network knows as black and white, if it takes a picture.

    Raises:
        CompilerError: As `source.write_source`.
    """
    source, picture = write_source(program, PREFIX), picture_of(program, levels)
    words = {"PREFIX": PREFIX, "ARENA": f"{source.arena_bytes:,}", "WEIGHTS": f"{source.weight_bytes:,}"}
    if picture is not None:
        words |= {"MAIN": "reads a PGM picture, and prints its class and the probabilities"}
        words |= {"RUN": f"./{PREFIX} picture.pgm", **picture_words(source, picture)}
        main = filled("picture.c", words)
    else:
        words |= {"MAIN": "reads each input from a file of raw numbers, and prints the outputs"}
        words |= {"RUN": " ".join([f"./{PREFIX}", *(f"{name}.bin" for name in source.inputs.values())])}
        main = _tensors_main(program, source)
    others = {name: filled(name, words) for name in ("Makefile", "CMakeLists.txt", "README.md")}
    return {**source.files, "main.c": main, **others}


def picture_words(source: Source, picture: Picture) -> dict[str, str]:
    """Return what stands for the words of a template that is about a picture."""
    (x,), (y,) = source.inputs.values(), source.outputs.values()
    return {
        "HEIGHT": str(picture.height),
        "WIDTH": str(picture.width),
        "INPUT": f"{source.prefix.upper()}_{x.upper()}",
        "OUTPUT": f"{source.prefix.upper()}_{y.upper()}",
        "BLACK": number(picture.black, "float32"),
        "WHITE": number(picture.white, "float32"),
        "SOFTMAX": str(int(picture.softmax)),
    }


def filled(name: str, words: Mapping[str, str]) -> str:
    """Return a template with each @WORD@ replaced."""
    text = (_TEMPLATES / name).read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def _tensors_main(program: Program, source: Source) -> str:
    """Return a program that reads each input from a file, and prints each output."""
    inputs = {name: weight.type for name, weight in program.weights.items() if weight.kind == "input"}
    arrays, reads, prints, names = [], [], [], []
    for position, (name, text) in enumerate(source.inputs.items()):
        names.append(f"{source.prefix}_{text}")
        arrays.append(_array(inputs[name], names[-1]))
        size = f"{size_of(inputs[name])} * sizeof *{names[-1]}"
        reads += [f"    if (read_file(arguments[{position + 1}], {names[-1]}, {size}))", "        return 1;"]
    for name, text in source.outputs.items():
        type = program.outputs[name].type
        names.append(f"{source.prefix}_{text}")
        arrays.append(_array(type, names[-1]))
        prints += [f"    for (int i = 0; i < {size_of(type)}; ++i)", f"        {_print(type, f'{names[-1]}[i]')}"]
    words = {"PREFIX": source.prefix, "COUNT": str(len(inputs)), "ARRAYS": "\n".join(arrays)}
    words |= {"READS": "\n".join(reads), "PRINTS": "\n".join(prints), "ARGUMENTS": ", ".join(names)}
    return filled("tensors.c", words)


def _print(type: TensorType, element: str) -> str:
    """Return the statement that prints an element, with as many digits as tell it from its neighbours."""
    if type.is_float:
        return f'printf("%.{9 if type.element == "float32" else 17}g\\n", (double){element});'
    form, cast = ("llu", "unsigned long long") if type.element == "uint64" else ("lld", "long long")
    return f'printf("%{form}\\n", ({cast}){element});'


def _array(type: TensorType, name: str) -> str:
    return f"static {c_type(type)} {name}[{max(size_of(type), 1)}];"
