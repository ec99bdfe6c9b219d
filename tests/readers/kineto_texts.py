"""Small Kineto traces as text."""

import json
from typing import Any

from timesink.model.trace import NoteKind, Trace

OP = '{"ph":"X","cat":"cpu_op","name":"aten::add","pid":7,"tid":8,"ts":1,"dur":2,"args":{"External id":3}}'
KERNEL = (
    '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":2,'
    '"args":{"device":0,"context":1,"stream":7,"correlation":9}}'
)


def op(ts: str = "1", dur: str = "2", name: str = "a", cat: str = "cpu_op", args: str = "") -> str:
    return f'{{"ph":"X","cat":"{cat}","name":"{name}","pid":7,"tid":8,"ts":{ts},"dur":{dur},"args":{{{args}}}}}'


def events(*texts: str, **members: Any) -> str:
    rest = "".join(f", {json.dumps(key)}: {json.dumps(value)}" for key, value in members.items())
    return f'{{"traceEvents": [{", ".join(texts)}]{rest}}}'


def messages(trace: Trace, kind: NoteKind) -> list[tuple[str, int]]:
    return [(note.message, note.count) for note in trace.notes if note.kind is kind]
