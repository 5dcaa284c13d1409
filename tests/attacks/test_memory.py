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


def test_no_message_takes_the_memory_of_the_grader(bubblewrap):
    attacks = [[name, SEND, source, False] for name, source in MESSAGES.items()]
    report = run(attacks)
    assert report["peak"] < MAX_PEAK_MIB, report
    # the others end their cell at most, or are dropped
    for name in ("many frames", "many small frames", "one large frame", "small objects", "many keys in the metadata"):
        assert report[name][0].startswith("put out more than 16 MiB at once"), report
    for name in ("outputs of small objects", "an output that is updated"):
        assert report[name][0].startswith("put out more than 16 MiB and"), report


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
