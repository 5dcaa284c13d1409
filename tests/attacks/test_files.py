"""Files that a hostile notebook leaves for the grader to read, and its attempts to write outside its folder."""

from __future__ import annotations

import pytest

from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.rpc.transport import NoReply
from tests.attacks.attacked import SECRET, SMALL, Attacked


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
    assert content(shared, "answer.txt") == "`answer.txt` is not a regular file"


def test_a_link_to_a_folder_of_the_grader_is_not_followed(shared, secret):
    shared.run(f"Path('sub').symlink_to({str(secret.parent)!r})")
    assert content(shared, "sub/seed.txt") == "`sub/seed.txt` is not a regular file"


def test_a_link_within_the_folder_is_not_followed_either(shared):
    shared.run("Path('b').write_text('42')\nPath('answer.txt').symlink_to('b')")
    assert content(shared, "answer.txt") == "`answer.txt` is not a regular file"


@pytest.mark.parametrize(
    "create", ["os.mkfifo('a')", "Path('a').mkdir()", "socket.socket(socket.AF_UNIX).bind('a')", "os.symlink('a', 'a')"]
)
def test_a_special_file_is_refused(shared, create):
    shared.run(create)
    assert content(shared, "a") == "`a` is not a regular file"


def test_a_huge_file_is_not_read(shared):
    shared.run("with open('a', 'wb') as big: big.truncate(100 << 20)")
    assert content(shared, "a") == "`a` is larger than 64 MiB"


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


REPLIES = {
    "a link to a file of the grader": "Path(p).symlink_to({secret!r})",
    "a pipe": "os.mkfifo(p)",
    "a folder": "Path(p).mkdir()",
    "a huge file": "open(p, 'wb').truncate(600 << 20)",
    "no JSON": "Path(p).write_text('{{')",
    "deep": "Path(p).write_text('[' * 100000)",
    "nothing": "pass",
}


@pytest.mark.parametrize("forged", REPLIES.values(), ids=REPLIES)
def test_a_forged_reply_is_no_answer(shared, secret, forged):
    create = forged.format(secret=str(secret))
    shared.run(
        "import mlhood.grading.rpc.server as server\nhonest = server.serve\n"
        f"def serve(folder, number):\n    p = f'{{folder}}/reply-{{number}}'\n    {create}\n"
        "server.serve = serve"
    )
    try:
        with pytest.raises((NoReply, CheckFailed)) as caught:
            shared.submission.value("f")
        assert SECRET not in str(caught.value) + str(getattr(caught.value, "parts", ""))
    finally:
        shared.run("server.serve = honest")
    assert shared.graded().earned == 1


def test_a_link_and_a_pipe_at_the_paths_of_a_request_are_replaced(shared, secret):
    number = shared.kernel._requests + 1
    shared.run(
        f"p = {str(shared.kernel.scratch)!r}\nPath(f'{{p}}/request-{number}').symlink_to({str(secret)!r})\n"
        f"os.mkfifo(f'{{p}}/request-{number + 1}')"
    )
    assert shared.graded().earned == 1
    assert secret.read_text() == SECRET


def test_files_are_copied_into_the_sandbox_and_back(shared):
    shared.run("def double(a, b): Path(b).write_text(2 * Path(a).read_text())")
    source, target = shared.kernel.scratch / "a.txt", shared.kernel.scratch / "b.txt"
    source.write_text("ab")
    submission = shared.submission
    submission.call("double", source, target)
    assert submission.written(target).read_text() == "abab"
    shared.run(f"Path({str(target)!r}).write_text('changed')")
    assert target.read_text() == "abab"


def test_only_regular_files_are_kept(pool, tmp_path, secret):
    target = tmp_path / "kept"
    target.mkdir()
    with pool.kernel(target) as kernel:
        Attacked(kernel).run(
            "import os\nfrom pathlib import Path\nPath('a/b').mkdir(parents=True)\nPath('a/b/c').write_text('c')\n"
            f"os.symlink({str(secret)!r}, 'link')\nos.symlink('/', 'root')\nos.mkfifo('pipe')\n"
            "Path('top').write_text('t')\nPath('hidden').write_text('h')\nos.chmod('hidden', 0)\n"
            "for n in range(300):\n    os.mkdir('d')\n    os.chdir('d')\nopen('deep', 'w').close()"
        )
    kept = {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file() or file.is_symlink()}
    assert kept - {"hidden"} == {"a/b/c", "top"}
    assert not kernel.folder.exists()


def test_plain_data_are_sent_in_both_directions(shared):
    shared.run("def same(x): return x")
    assert shared.submission.call("same", {"a": [1, 2.5, None]}) == {"a": [1, 2.5, None]}
    assert not list(shared.kernel.scratch.glob("re*"))
