"""Attacks on the memory of the grader: all of them in one process, whose peak stays small."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.attacks.test_messages import SEND

MAX_PEAK_MIB = 600
MESSAGES = {
    "many frames": "send(extra=[bytes(1 << 20)] * 700)",
    "many small frames": "send(extra=[b''] * 300_000)",
    "many frames to every channel": "for s in (kernel.shell_stream.socket, kernel.control_stream.socket,"
    " kernel.stdin_socket): send(socket=s, route=True, extra=[bytes(1 << 20)] * 200)",
    "one large frame": "send(content=b'\"' + b'x' * (90 << 20) + b'\"')",
    "small objects": "send(content=b'{\"a\": [' + b'{},' * 900_000 + b'0]}')",
    "small objects in the header": "send(header=b'{\"msg_id\": [' + b'[],' * 900_000 + b'0]}')",
    "many keys in the metadata": "send(metadata={str(n): n for n in range(150_000)})",
    "a wide character": "send(content={'name': 'stdout', 'text': '\\U0001f600' + 'x' * (15 << 20)}, ascii=False)",
    "a large signature": "for n in range(5): send(signature=bytes(15 << 20))",
    "messages to nobody": "for n in range(300): send(parent={'msg_id': 'a'}, content={'text': str(n) * 99_000})",
    "many small messages": "for n in range(3_000): send(content={'name': 'stdout', 'text': ''})",
    "outputs of small objects": "for n in range(300):\n    send('display_data', {'data': {'application/json':"
    " [{}] * 99_000}, 'metadata': {}})",
    "an output that is updated": "shown = {'data': {'application/json': [[]] * 10}, 'metadata': {}, 'transient':"
    " {'display_id': 'a'}}\nfor n in range(4_000): send('display_data', shown)\n"
    "send('update_display_data', {**shown, 'data': {'application/json': [[]] * 60_000}})",
    "a large execution count": "send('execute_input', {'execution_count': 'x' * (9 << 20)})",
}

# replies that the student's process writes in place of the server's
FORGE = """
import json
import mlhood.grading.rpc.server as server
def forge(value, elements=b''):
    text = b'{"$dict": [["called", []], ["value", %s]]}' % value.encode()
    def serve(folder, number):
        open(f'{folder}/reply-{number}', 'wb').write(len(text).to_bytes(8) + text + elements)
    server.serve = serve
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


def test_neither_messages_nor_replies_take_the_memory_of_the_grader(bubblewrap):
    attacks = [[name, SEND, source, False] for name, source in MESSAGES.items()]
    report = run([*attacks, *([f"reply: {name}", FORGE, source, True] for name, source in REPLIES.items())])
    assert report["peak"] < MAX_PEAK_MIB, report
    # the others end their cell at most, or are dropped
    for name in ("many frames", "many small frames", "one large frame", "small objects", "many keys in the metadata"):
        assert report[name][0].startswith("put out more than 16 MiB at once"), report
    for name in ("outputs of small objects", "an output that is updated"):
        assert report[name][0].startswith("put out more than 16 MiB and"), report
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
