"""Files that a hostile notebook leaves for the grader to read, and its attempts to write outside its folder."""

from __future__ import annotations

import pytest

from mlhood.grading.checks.expect import CheckFailed
from tests.attacks.attacked import SECRET, SMALL

INVALID = "is not a regular file of at most 64 MiB that can be read"


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "seed.txt"
    path.write_text(SECRET)
    return path


@pytest.fixture(autouse=True)
def clean(shared):
    yield
    shared.run("subprocess.run('rm -rf ..?* .[!.]* *', shell=True)")


def content(shared, name: str) -> str:
    """The content of a file that a check reads, or why it cannot be read."""
    try:
        return shared.submission.file(name).read_text()
    except CheckFailed as failure:
        return failure.what


def test_an_honest_file_is_read(shared):
    shared.run("Path('answer.txt').write_text('42')\nPath('sub').mkdir()\nPath('sub/b.txt').write_text('43')")
    assert content(shared, "answer.txt") == "42"
    assert content(shared, "sub/b.txt") == "43"
    shared.run("Path('answer.txt').write_text('44')")
    assert content(shared, "answer.txt") == "44"
    shared.run("Path('answer.txt').unlink()")
    assert content(shared, "answer.txt") == "there is no file `answer.txt`"


def test_a_link_to_a_file_of_the_grader_is_not_followed(shared, secret):
    shared.run(f"Path('answer.txt').symlink_to({str(secret)!r})")
    assert content(shared, "answer.txt") == "there is no file `answer.txt`"


def test_a_link_to_a_folder_of_the_grader_is_not_followed(shared, secret):
    shared.run(f"Path('sub').symlink_to({str(secret.parent)!r})")
    assert content(shared, "sub/seed.txt") == "there is no file `sub/seed.txt`"


@pytest.mark.parametrize("create", ["os.mkfifo('a')", "Path('a').mkdir()", "socket.socket(socket.AF_UNIX).bind('a')"])
def test_a_special_file_is_refused(shared, create):
    shared.run(create)
    assert content(shared, "a") == f"`a` {INVALID}"


def test_a_huge_file_is_not_read(shared):
    shared.run("with open('a', 'wb') as big: big.truncate(100 << 20)")
    assert content(shared, "a") == f"`a` {INVALID}"


def test_writing_through_a_link_does_not_reach_the_outside(shared, secret):
    shared.run(f"Path('link').symlink_to({str(secret)!r})\nPath('out').symlink_to({str(secret.parent)!r})")
    for write in ("open('link', 'w').write('mine')", "open('out/new.txt', 'w').write('mine')"):
        assert shared.eval(write) in {"FileNotFoundError", "OSError"}
    assert secret.read_text() == SECRET
    assert sorted(file.name for file in secret.parent.iterdir()) == ["seed.txt"]


def test_nothing_is_written_into_the_graders_copy_of_the_folders(shared):
    shared.run("Path('answer.txt').write_text('42')")
    shared.run(f"Path({str(shared.kernel.scratch / 'x')!r}).write_text('42')")
    assert not (shared.kernel.folder / "answer.txt").exists()
    assert not (shared.kernel.scratch / "x").exists()


def test_a_full_disk_affects_only_the_student(shared):
    outcome = shared.run(
        "for n in range(99):\n    with open(f'big{n}', 'wb') as big: os.posix_fallocate(big.fileno(), 0, 32 << 20)"
    )
    assert "No space left on device" in outcome.error
    assert shared.graded().earned == 1


def test_the_size_of_a_file_is_limited(shared):
    assert "OSError" in shared.run(f"with open('/dev/shm/big', 'wb') as big: big.truncate({SMALL.file + 1})").error


def test_files_are_copied_into_the_sandbox_and_back(shared):
    shared.run("def double(a, b): Path(b).write_text(2 * Path(a).read_text())")
    source, target = shared.kernel.scratch / "a.txt", shared.kernel.scratch / "b.txt"
    source.write_text("ab")
    submission = shared.submission
    submission.call("double", source, target)
    assert submission.written(target).read_text() == "abab"
    shared.run(f"Path({str(target)!r}).write_text('changed')")
    assert target.read_text() == "abab"


def test_plain_data_are_sent_in_both_directions(shared):
    shared.run("def same(x): return x")
    assert shared.submission.call("same", {"a": [1, 2.5, None]}) == {"a": [1, 2.5, None]}
