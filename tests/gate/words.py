"""What is wrong with the English of an answer, by kinds: words that the glossary replaces, one of many and many of one,
two remarks in a row, a note that ends in the middle."""

import re
from collections.abc import Iterator

import polars as pl
from tests.docs.test_glossary import NOT_SAID
from tests.gate.answers import Answers, flat

from timesink.fixes.table import fixes_of
from timesink.knowledge.programs import ProgramKind
from timesink.measures.timeline.known import program_kind

_NOUNS = (
    "kernel|launche|block|step|copie|call|rank|stream|row|time|change|finding|operator|graph|region|event|window|GPU|"
    "record|channel|compilation|break|layer|batche|thread|multiprocessor|SM"
)
_ONE = "kernel|launch|block|step|copy|call|collective"
_NO_NAME = r"(?<!rank )(?<!GPU )(?<!step )(?<!stream )(?<!thread )(?<![\d.,/:#])"
KINDS = {
    "one of many": re.compile(rf"{_NO_NAME}\b1 (?:{_NOUNS})s\b"),
    "many of one": re.compile(rf"{_NO_NAME}\b(?:[2-9]|[1-9]\d+) (?:{_ONE})\b(?! [a-z]+s\b)"),
    "a count below nothing": re.compile(r"(?<![\w.)e-])-\d[\d,]* (?:kernels|launches|blocks|calls|steps)\b"),
    "two remarks in a row": re.compile(r"\([^()]*\d[^()]*\) \([^()]*\d[^()]*\)"),
    "or after or": re.compile(r"\b[a-z]+ or [a-z ]+ or [a-z ]+ or\b"),
    "two ends of a sentence": re.compile(r"[.;:] ?[.;:](?!\.)(?= |$)(?<!::)"),
    "a word twice": re.compile(r"\b(the|of|a|is|in|and|to|for) \1\b"),
    "a power of ten": re.compile(r"(?<![\w.])\d(?:\.\d+)?e[+-]?\d+\b"),
    "a number before a sentence": re.compile(
        r"(?:^|lost: |note: )\d[\d,]* (?:no|the|an?|one|several|[a-z]+ and|\d[\d,]*|[A-Z]\w+ [A-Z]\w+ [a-z]+ed\b)[ :]"
    ),
    "a number told twice": re.compile(r"\b(\d[\d,]*) [a-z][^\n]* \(\1 (?:times|rows?)\)"),
    "a sentence about that": re.compile(r"(?:^|\. )(?:That|This) (?:takes|is|was|costs|has)\b"),
    "a quality as a cause": re.compile(
        r"\b(?:bound|uncoalesced) may limit\b|\bcause, (?:[a-z]+ bound|uncoalesced)\b(?! accesses)"
        r"|\blimited by [^.;]*?(?:\b[a-z]+ bound|\buncoalesced)\b(?! accesses)"
    ),
    "a note cut short": re.compile(r"^(?:lost|note): [^\n]*…(?! \(-v\))", re.MULTILINE),
}


def unplain(text: str) -> Iterator[str]:
    """Which kinds the text shows, each with where."""
    for kind, pattern in KINDS.items():
        for found in pattern.finditer(text):
            yield f"{kind}: {text[max(found.start() - 40, 0) : found.end() + 20]}"


def plainly_said(of: Answers) -> Iterator[str]:
    """The screen and the sentences of every door."""
    messages = [finding.message for _, finding in of.diagnosis.findings]
    notes = [note.counted for note in of.diagnosis.notes]
    blocks = [flat(block) for block in re.split(r"\n\n|\n(?=lost: |note: |next: )", of.screen)]
    for text in (of.verdict, *messages, *notes, *of.diagnosis.statements, *blocks):
        yield from unplain(text)
        yield from (f"{found.group()!r}: {text[:120]}" for said in NOT_SAID.values() if (found := said.search(text)))


IDIOM = re.compile(
    r"torch|TORCH|DataLoader|DistributedDataParallel|non_blocking|empty_cache|foreach|persistent_workers|num_workers"
    r"|set_to_none|channels_last|fused=True|record_function|expandable_segments|autocast|GradScaler|no_sync|bucket_cap"
    r"|scaled_dot_product|detect_anomaly|no_grad|reduce-overhead|max-autotune|model\.to|\bDDP\b|\bFSDP"
)
_SAID_OF_PYTORCH = re.compile(r"with PyTorch: [^\n]*?(?=  |$|\n|\"|`| \w+\d{3})")


def told_in_its_idioms(of: Answers) -> Iterator[str]:
    """What only PyTorch has is said to its programs alone, at every door; where it is not, it is said to be PyTorch's.
    Kernels over lists of tensors are called by that name, fixes by their names."""
    if program_kind(of.trace) is ProgramKind.PYTORCH:
        return
    own = "\n".join((of.name, of.trace.source, *map(str, of.paths), *_names(of)))
    own = own.replace("multi_tensor", "foreach")
    named = re.compile(rf"\b(?:{'|'.join(fix.name for fix in fixes_of(ProgramKind.NATIVE))})\b")
    plans = {"plan": of.plan, "server's plan": str(of.plan_of_server)}
    for door, text in {**of.doors, **plans, "report": of.page}.items():
        for found in IDIOM.finditer(named.sub("", _SAID_OF_PYTORCH.sub("", text))):
            if found.group() not in own:
                yield f"{door}: {found.group()}: {flat(found.string[max(found.start() - 90, 0) : found.end() + 40])}"


def _names(of: Answers) -> Iterator[str]:
    """The texts that the capture itself holds."""
    for table in of.trace.tables.values():
        for column in table.iter_columns():
            if not column.dtype.is_numeric():
                yield from column.drop_nulls().cast(pl.String, strict=False).unique().drop_nulls()
