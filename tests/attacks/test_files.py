"""What a hostile notebook leaves for us to read, and where it tries to write."""

from __future__ import annotations

import pytest

from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import NoAnswer
from mlhood.grading.rpc.codec import encode
from tests.attacks.attacked import SECRET, SMALL


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "seed.txt"
    path.write_text(SECRET)
    return path


@pytest.fixture(autouse=True)
def clean(lasting):
    yield
    lasting.run("subprocess.run('rm -rf ..?* .[!.]* *', shell=True)")


def handed_in(lasting, name: str) -> str:
    """What a check reads of a file, or why it does not."""
    try:
        return lasting.submission.file(name).read_text()
    except CheckFailed as failure:
        return failure.what


def test_an_honest_file_is_read(lasting):
    lasting.run("Path('answer.txt').write_text('42')\nPath('sub').mkdir()\nPath('sub/b.txt').write_text('43')")
    assert handed_in(lasting, "answer.txt") == "42"
    assert handed_in(lasting, "sub/b.txt") == "43"
    lasting.run("Path('answer.txt').write_text('44')")
    assert handed_in(lasting, "answer.txt") == "44"
    lasting.run("Path('answer.txt').unlink()")
    assert handed_in(lasting, "answer.txt") == "there is no file `answer.txt`"


def test_a_link_to_a_file_of_ours_is_not_followed(lasting, secret):
    lasting.run(f"Path('answer.txt').symlink_to({str(secret)!r})")
    assert handed_in(lasting, "answer.txt") == "`answer.txt` is not a plain file of its own"


def test_a_link_to_a_folder_of_ours_is_not_followed(lasting, secret):
    lasting.run(f"Path('sub').symlink_to({str(secret.parent)!r})")
    assert handed_in(lasting, "sub/seed.txt") == "`sub/seed.txt` is not a plain file of its own"


def test_a_link_within_the_folder_is_not_followed_either(lasting):
    lasting.run("Path('b').write_text('42')\nPath('answer.txt').symlink_to('b')")
    assert handed_in(lasting, "answer.txt") == "`answer.txt` is not a plain file of its own"


@pytest.mark.parametrize(
    "made", ["os.mkfifo('a')", "Path('a').mkdir()", "socket.socket(socket.AF_UNIX).bind('a')", "os.symlink('a', 'a')"]
)
def test_what_is_no_file_is_told(lasting, made):
    lasting.run(made)
    assert handed_in(lasting, "a") == "`a` is not a plain file of its own"


def test_a_huge_file_is_not_read(lasting):
    lasting.run("with open('a', 'wb') as big: big.truncate(100 << 20)")
    assert handed_in(lasting, "a") == "`a` is larger than 64 MiB"


def test_what_is_written_through_a_link_does_not_land_outside(lasting, secret):
    lasting.run(f"Path('way').symlink_to({str(secret)!r})\nPath('out').symlink_to({str(secret.parent)!r})")
    for write in ("open('way', 'w').write('mine')", "open('out/new.txt', 'w').write('mine')"):
        assert lasting.says(write) in {"FileNotFoundError", "OSError"}
    assert secret.read_text() == SECRET
    assert sorted(file.name for file in secret.parent.iterdir()) == ["seed.txt"]


def test_nothing_lands_in_our_own_copy_of_the_folders(lasting):
    lasting.run("Path('answer.txt').write_text('42')")
    lasting.run(f"Path({str(lasting.kernel.scratch / 'x')!r}).write_text('42')")
    assert not (lasting.kernel.folder / "answer.txt").exists()
    assert not (lasting.kernel.scratch / "x").exists()


def test_a_full_disk_is_the_students_own(lasting):
    outcome = lasting.run(
        "for n in range(99):\n    with open(f'big{n}', 'wb') as big: os.posix_fallocate(big.fileno(), 0, 32 << 20)"
    )
    assert "No space left on device" in outcome.error
    assert lasting.judged().earned == 1


def test_one_file_has_an_end(lasting):
    assert "OSError" in lasting.run(f"with open('/dev/shm/big', 'wb') as big: big.truncate({SMALL.file + 1})").error


REPLIES = {
    "a link to a file of ours": "Path(p).symlink_to({secret!r})",
    "a pipe": "os.mkfifo(p)",
    "a folder": "Path(p).mkdir()",
    "a huge file": "open(p, 'wb').truncate(600 << 20)",
    "no JSON": "Path(p).write_text('{{')",
    "deep": "Path(p).write_text('[' * 100000)",
    "nothing": "pass",
}


@pytest.mark.parametrize("forged", REPLIES.values(), ids=REPLIES)
def test_a_forged_reply_is_no_answer(lasting, secret, forged):
    made = forged.format(secret=str(secret))
    lasting.run(
        "import mlhood.grading.rpc.server as bridge\nhonest = bridge.serve\n"
        f"def serve(folder, number, names=None):\n    for s in ('npz', 'json'):\n"
        f"        p = f'{{folder}}/reply-{{number}}.{{s}}'\n        {made}\n"
        "bridge.serve = serve"
    )
    try:
        with pytest.raises((NoAnswer, CheckFailed)) as caught:
            lasting.submission.value("f")
        assert SECRET not in str(caught.value) + str(getattr(caught.value, "parts", ""))
    finally:
        lasting.run("bridge.serve = honest")
    assert lasting.judged().earned == 1


def test_a_request_in_the_way_of_a_folder_or_a_link(lasting, secret):
    number = lasting.kernel._requests + 1
    lasting.run(
        f"p = {str(lasting.kernel.scratch)!r}\nPath(f'{{p}}/request-{number}.json').symlink_to({str(secret)!r})\n"
        f"os.mkfifo(f'{{p}}/request-{number}.npz')"
    )
    assert lasting.judged().earned == 1
    assert secret.read_text() == SECRET


def test_a_file_that_we_hand_over_arrives_and_one_that_comes_back_is_ours(lasting):
    lasting.run("def double(a, b): Path(b).write_text(2 * Path(a).read_text())")
    ours, theirs = lasting.kernel.scratch / "a.txt", lasting.kernel.scratch / "b.txt"
    ours.write_text("ab")
    submission = lasting.submission
    submission.call("double", ours, theirs)
    assert submission.written(theirs).read_text() == "abab"
    lasting.run(f"Path({str(theirs)!r}).write_text('changed')")
    assert theirs.read_text() == "abab"


def test_what_is_kept_are_plain_files_and_no_others(sandboxes, tmp_path, secret):
    from mlhood.grading.sandbox.kernel import SandboxedKernel
    from tests.attacks.attacked import Attacked

    target = tmp_path / "kept"
    target.mkdir()
    with SandboxedKernel(target, sandboxes) as kernel:
        Attacked(kernel).run(
            "import os\nfrom pathlib import Path\nPath('a/b').mkdir(parents=True)\nPath('a/b/c').write_text('c')\n"
            f"os.symlink({str(secret)!r}, 'link')\nos.symlink('/', 'root')\nos.mkfifo('pipe')\n"
            "Path('top').write_text('t')\nPath('hidden').write_text('h')\nos.chmod('hidden', 0)\n"
            "for n in range(300):\n    os.mkdir('d')\n    os.chdir('d')\nopen('deep', 'w').close()"
        )
    kept = {str(file.relative_to(target)) for file in target.rglob("*") if file.is_file() or file.is_symlink()}
    assert kept - {"hidden"} == {"a/b/c", "top"}
    assert not kernel.folder.exists()


def test_plain_data_cross_in_both_directions(lasting):
    lasting.run("def same(x): return x")
    assert lasting.submission.call("same", {"a": [1, 2.5, None]}) == {"a": [1, 2.5, None]}
    assert encode(1).text == "1"
    assert not list(lasting.kernel.scratch.glob("re*"))
