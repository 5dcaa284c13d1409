"""Attacks on the memory of the grader: all of them in one process, whose peak stays small."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.attacks.test_messages import forging

MAX_PEAK_MIB = 600
CELLS = {
    "one large reply": "send(b'\"' + b'x' * (90 << 20) + b'\"')",
    "small objects": "send(b'{\"outputs\": [' + b'{},' * 900_000 + b'0]}')",
    "a wide character": "send('{\"outputs\": \"\U0001f600'.encode() + b'x' * (15 << 20) + b'\"}')",
    "many keys": "send(json.dumps({str(n): n for n in range(150_000)}).encode())",
    "a large execution count": "send(json.dumps({'outputs': [], 'execution_count': 'x' * (9 << 20)}).encode())",
}
FORGE_CELLS = """
import json
output = {'output_type': 'display_data', 'metadata': {}, 'data': {'application/json': [{}] * 90_000}}
text = json.dumps({'execution_count': 1, 'outputs': [output]}).encode()
get_ipython().reply_to_cell = lambda source: text
"""

# replies that the student's process encodes in place of those of the server
FORGE = """
import json
import mlhood.grading.rpc.server as server
def forge(value, elements=b''):
    text = b'{"$dict": [["called", []], ["value", %s]]}' % value.encode()
    server.encode = lambda *arguments: len(text).to_bytes(8) + text + elements
"""
REPLIES = {
    "as much as is allowed": f"forge(json.dumps({{'$array': ['|u1', {70 << 20}]}}), bytes(70 << 20))",
    "as many bytes as are allowed": f"forge(json.dumps({{'$bytes': ['|u1', {70 << 20}]}}), bytes(70 << 20))",
    "too many bytes": f"forge(json.dumps({{'$bytes': ['|u1', {200 << 20}]}}), bytes(200 << 20))",
    "bytes of no array": "forge('1', bytes(70 << 20))",
    "a text of another length": "forge('1' + ' ' * (60 << 20))",
    "more elements than bytes": f"forge(json.dumps({{'$array': ['<f8', {1 << 23}]}}), bytes(1 << 20))",
    "many arrays": "forge(json.dumps([{'$array': ['|u1', 1]}] * 60_000), bytes(60_000))",
    "no elements": f"forge(json.dumps({{'$array': ['<f8', 0, {1 << 50}]}}))",
    "small objects": "forge('[' + '{},' * 2_000_000 + '0]')",
    "short texts": "forge('[' + '\"a\",' * 1_900_000 + '0]')",
    "wide text": "forge('\"' + chr(0x1f600) + 'x' * 8_000_000 + '\"')",
    "keys of one hash": "forge(json.dumps({'$set': [n * (2**61 - 1) for n in range(90_000)]}))",
    "columns of different rows": "forge(json.dumps({'$frame': {'$dict': [[str(n), {'$dict': [[n * 99 + m, 1]"
    " for m in range(60)]}] for n in range(900)]}}))",
}
READ = {
    "as much as is allowed": "value ndarray",
    "as many bytes as are allowed": "value bytes",
    "wide text": "value str",
}


def test_no_reply_takes_the_memory_of_the_grader(bubblewrap):
    attacks = [[name, forging(source), "1", False] for name, source in CELLS.items()]
    attacks += [["forged cells", FORGE_CELLS, "pass", False]] * 30
    report = run([*attacks, *([f"reply: {name}", FORGE, source, True] for name, source in REPLIES.items())])
    assert report["peak"] < MAX_PEAK_MIB, report
    for name in set(CELLS) - {"a large execution count"}:
        assert report[name][0].startswith(("put out more than 16 MiB", "sent invalid outputs")), report
    for name in REPLIES:
        assert report[f"reply: {name}"][0].startswith(READ.get(name, "`f` gave no usable answer")), report


def run(attacks: list[list[object]]) -> dict:
    """The report of a grader in a process of its own (see `memory.main`)."""
    grader = subprocess.run(
        [sys.executable, "-m", "tests.attacks.memory"],
        input=json.dumps(attacks),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert grader.returncode == 0, grader.stderr
    return json.loads(grader.stdout)
