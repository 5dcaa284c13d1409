"""Text that is shown: nothing in it acts on the terminal, and every command prints by the function that escapes it."""

import ast
import sys
import unicodedata
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from mlhood import cli
from mlhood.errors import CompilerError, printable
from mlhood.files.terminal import echo

ROOT = Path(__file__).parents[2]
HOSTILE = {
    "colour": "\x1b[31mred",
    "cursor": "\x1b[2Jx",
    "title": "\x1b]0;x\x07",
    "eight-bit control": "\x9b31m",
    "delete": "a\x7f",
    "return": "safe\rfalse",
    "right to left": "\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "mark": "a\u200fb",
    "nothing to see": "a\u200bb",
    "tag": "a\U000e0041",
    "line separator": "a\u2028b",
}


def acts(text: str) -> bool:
    """Return whether a character is a control other than line end and tab, or has no width, by Unicode's categories."""
    return any(unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"} for char in text if char not in "\n\t")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_acts_on_the_terminal(text, capsys):
    assert acts(text)
    echo(f"{text}\n\tnext")
    echo(text, err=True)
    shown = capsys.readouterr()
    assert not acts(shown.out + shown.err)
    assert shown.out.endswith("\n\tnext\n")
    assert not acts(str(CompilerError(text, where=text, expected=text, got=text, todo=text)))
    assert not acts(CompilerError(text, got=text).one_line())


def test_other_text_is_shown_as_it_is():
    text = "Größe 漢字 λ → 3×3 🙂 naïve é"
    assert printable(text) == text


@pytest.mark.parametrize(
    "options", [[], ["--stop-after", "hir"], ["--stop-after", "lir"]], ids=["summary", "hir", "lir"]
)
def test_names_of_a_model_do_not_act_on_the_terminal(options, tmp_path, monkeypatch, capsys):
    text = "".join(HOSTILE.values())
    nodes = [helper.make_node("Relu", [text], [f"{text}1"], text), helper.make_node("Nope", [f"{text}1"], ["y"], text)]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{text}n", 2]) for name in (text, "y", f"{text}1")
    ]
    for count, outputs in ((1, infos[2:]), (2, infos[1:2])):
        graph = helper.make_graph(nodes[:count], text, infos[:1], outputs)
        path = tmp_path / f"{count}.onnx"
        opsets = [helper.make_opsetid("", 18)]
        path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
        monkeypatch.setattr(sys, "argv", ["mlhood", "compile", str(path), *options])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        shown = capsys.readouterr()
        assert not acts(shown.out + shown.err)
        assert (exit.value.code == 0) == (count == 1), shown.err


def test_commands_print_only_so():
    for path in sorted((ROOT / "mlhood").rglob("*.py")):
        if path.name == "terminal.py":
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "echo" in text else ():  # most files have none, and parsing takes long
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called not in {"typer.echo", "click.echo", "typer.secho"}, f"{path}:{node.lineno}"
