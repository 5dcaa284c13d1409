from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlhood.errors import GradingError
from mlhood.grading.sandbox import bubblewrap
from mlhood.grading.sandbox.limits import Limits
from mlhood.grading.sandbox.warm import Sandboxes

FOLDERS = [Path("/tmp/a/work"), Path("/tmp/a/exchange")]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bubblewrap needs Linux")


def pairs(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_without_bubblewrap_it_is_refused_and_said_what_can_be_done(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GradingError) as caught:
        Sandboxes()
    assert "was not found" in caught.value.parts["got"]
    assert "apt-get install bubblewrap" in caught.value.parts["what to do"]
    assert "--no-sandbox, which runs every submission with your own rights" in caught.value.parts["what to do"]


def test_where_it_is_forbidden_its_own_words_are_told(monkeypatch, tmp_path):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GradingError) as caught:
        bubblewrap.require()
    assert "No permissions to create new namespace" in caught.value.parts["got"]
    assert "user namespaces" in caught.value.parts["what to do"]


def test_elsewhere_it_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(GradingError) as caught:
        bubblewrap.require()
    assert "WSL 2" in caught.value.parts["what to do"]


def test_the_environment_is_made_anew(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    words = bubblewrap.command(FOLDERS, Limits())
    assert "--clearenv" in words
    assert "SECRET_TOKEN" not in words
    assert words[words.index("OMP_NUM_THREADS") + 1] == "3"


def test_every_writable_place_has_a_size_and_the_rest_is_closed():
    words = bubblewrap.command(FOLDERS, Limits(disk=12345))
    mounted = pairs(words, "--tmpfs")
    assert mounted == ["/tmp", "/dev/shm", "/student", *map(str, FOLDERS)]
    assert pairs(words, "--size") == ["12345"] * len(mounted)
    assert not {"--bind", "--bind-try", "--dev-bind", "--share-net"} & set(words)
    assert pairs(words, "--remount-ro") == ["/dev", "/"]


def test_neither_the_home_nor_what_lies_beside_the_package_is_there():
    words = bubblewrap.command(FOLDERS, Limits())
    shown = {Path(place) for place in pairs(words, "--ro-bind-try") + pairs(words, "--ro-bind")}
    root = Path(bubblewrap.__file__).resolve().parents[3]
    assert root / "mlhood" in shown or any(root.is_relative_to(place) for place in shown)
    for hidden in (Path("/"), Path.home(), root, Path("/etc"), Path("/root"), Path("/home"), Path("/var")):
        assert hidden not in shown


def test_a_browser_in_the_home_does_not_show_the_home(monkeypatch, tmp_path):
    for folder in (tmp_path, tmp_path / "browser"):
        folder.mkdir(exist_ok=True)
        (folder / "chrome").write_text("#!/bin/sh\n")
        (folder / "chrome").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLHOOD_BROWSER", str(tmp_path / "chrome"))
    assert str(tmp_path) not in bubblewrap.command(FOLDERS, Limits())
    monkeypatch.setenv("MLHOOD_BROWSER", str(tmp_path / "browser" / "chrome"))
    assert str(tmp_path / "browser") in bubblewrap.command(FOLDERS, Limits())
