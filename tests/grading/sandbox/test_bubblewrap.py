from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from mlhood.grading.sandbox import bubblewrap, seccomp, visible

DISK = 1 << 30
FOLDERS = [Path("/tmp/a/work"), Path("/tmp/a/exchange")]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bubblewrap needs Linux")


def pairs(words: list[str], option: str) -> list[str]:
    return [words[i + 1] for i, word in enumerate(words) if word == option]


def without_permission(folder: Path) -> None:
    """Write a bubblewrap into a folder that fails for want of permission, as in a container."""
    program = folder / "bwrap"
    program.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)


def test_without_bubblewrap_the_advice_is_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "was not found" in bubblewrap.problem()
    for command in ("apt-get install bubblewrap", "dnf install bubblewrap", "pacman -S bubblewrap"):
        assert command in bubblewrap.advice()


def test_without_permission_bubblewraps_own_message_is_shown(monkeypatch, tmp_path):
    without_permission(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "No permissions to create new namespace" in bubblewrap.problem()
    assert "user namespaces" in bubblewrap.advice()


def test_other_systems_have_no_sandbox(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert bubblewrap.problem() == "bubblewrap needs Linux, and this is darwin"
    assert "WSL 2" in bubblewrap.advice()


def test_the_self_test_uses_the_same_options_as_the_sandbox(monkeypatch, tmp_path):
    """With fewer options the doctor would promise a sandbox that does not start."""
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(tmp_path))}/tried\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert bubblewrap.problem() == ""
    with seccomp.opened() as filters:
        used = bubblewrap.command(FOLDERS, DISK, filters=filters)[1:]
    tried = (tmp_path / "tried").read_text().splitlines()
    assert {word for word in used if word.startswith("--")} == {word for word in tried if word.startswith("--")}


def test_every_writable_folder_has_a_size_and_all_others_are_read_only():
    words = bubblewrap.command(FOLDERS, 12345)
    mounted = pairs(words, "--tmpfs")
    hidden = str(visible.package() / "grading")
    assert mounted == ["/tmp", "/dev/shm", "/student", hidden, *map(str, FOLDERS)]
    assert pairs(words, "--size") == ["12345"] * (len(mounted) - 1)
    assert not {"--bind", "--bind-try", "--dev-bind", "--share-net"} & set(words)
    assert pairs(words, "--remount-ro") == [hidden, "/dev", "/"]


def test_the_grading_of_every_installed_copy_is_hidden(monkeypatch, tmp_path):
    """Also of one in the base environment, which is not on the path."""
    copy = tmp_path / "lib" / "python3.11" / "site-packages" / "mlhood" / "grading"
    copy.mkdir(parents=True)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    words = bubblewrap.command(FOLDERS, DISK)
    for folder in (copy, visible.package() / "grading"):
        assert words[words.index(str(folder)) - 1] == "--tmpfs"
        assert str(folder) in pairs(words, "--remount-ro")
    assert words.index(str(tmp_path)) < words.index(str(copy))
    shown = [path for path in pairs(words, "--ro-bind-try") if "/mlhood/grading/" in path]
    assert shown == [str(visible.package() / "grading" / name) for name in visible.VISIBLE]


@pytest.mark.parametrize("environment", [".", ".venv", ".."])
def test_the_folder_around_the_package_is_not_visible_wherever_the_environment_is(monkeypatch, tmp_path, environment):
    course = tmp_path / "course"
    prefix = (course / environment).resolve()
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").touch()
    (course / "mlhood").mkdir(parents=True, exist_ok=True)
    for module in (visible, bubblewrap):
        monkeypatch.setattr(module, "package", lambda: course / "mlhood")
    monkeypatch.setattr(sys, "path", [])
    for name, value in (("prefix", prefix), ("base_prefix", prefix), ("executable", prefix / "bin" / "python")):
        monkeypatch.setattr(sys, name, str(value))
    words = bubblewrap.command(FOLDERS, DISK)
    shown = pairs(words, "--ro-bind-try")
    assert str(course) not in shown
    assert str(course / "mlhood") in shown
    assert str(prefix / "bin") in shown or str(prefix) in shown
    if environment == "..":
        binds = words[len(words) - words[::-1].index("--setenv") :]
        assert binds[binds.index(str(course)) - 1] == "--tmpfs"
        assert binds.index(str(prefix)) < binds.index(str(course)) < binds.index(str(course / "mlhood"))
        assert str(course) in pairs(words, "--remount-ro")


def test_a_browser_in_the_home_does_not_show_the_home(monkeypatch, tmp_path):
    for folder in (tmp_path, tmp_path / "browser"):
        folder.mkdir(exist_ok=True)
        (folder / "chrome").write_text("#!/bin/sh\n")
        (folder / "chrome").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLHOOD_BROWSER", str(tmp_path / "chrome"))
    assert str(tmp_path) not in bubblewrap.command(FOLDERS, DISK)
    monkeypatch.setenv("MLHOOD_BROWSER", str(tmp_path / "browser" / "chrome"))
    assert str(tmp_path / "browser") in bubblewrap.command(FOLDERS, DISK)
