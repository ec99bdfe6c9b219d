"""The short form of an advice is all that the first screen shows: it says what to do, and begins with a verb."""

import re
from pathlib import Path

from timesink import rules
from timesink.render.brief import short_advice

_ADVICE = re.compile(r"^ *- Advice[ \w]*: (.*(?:\n    .*)*)", re.MULTILINE)
_NO_VERB = re.compile(r"(A|An|The|No|Some|Blocks|SMs|Kernels|Tail|Threads|It|This|These|There|Where|If|When)\b")


def test_the_short_form_of_every_advice_is_an_instruction() -> None:
    found = [
        (path.stem, short_advice(" ".join(told.split())))
        for path in Path(rules.__file__).parent.rglob("*.md")
        for told in _ADVICE.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 150
    short = [(rule, re.sub(r"^\[[^\]]*\]", "", told)) for rule, told in found if not told.startswith("{")]
    assert [one for one in short if _NO_VERB.match(one[1]) or not one[1][:1].isupper()] == []
    assert [one for one in short if len(one[1].split()) < 2] == []
