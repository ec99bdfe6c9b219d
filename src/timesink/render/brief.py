"""A diagnosis in one screen: 24 lines of 80 columns, whatever the trace.

The verdict, where the step goes, what to change and what that saves, what was lost, and the command to type next.
`text.py` writes all there is to say.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from textwrap import wrap
from typing import Final, Self

from timesink.diagnosis.saving import is_unpriced
from timesink.diagnosis.verdicts import Clear, Diagnosis, Finding, NotApplicable, Note, Quantity, Undecided
from timesink.diagnosis.words import apart
from timesink.knowledge.step_parts import IDLE_WORDS, OF_KERNELS, OF_MEMORY, WORK_WORDS, Bottleneck
from timesink.knowledge.vendors import NVIDIA, vendor_of_product
from timesink.render import Style
from timesink.render.parts import Group, grouped, short_place, verdict_colour
from timesink.render.tables import printed, tied
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.untrusted import scrub, scrub_sentence, shortened

MOST_LINES: Final = 24
WIDEST: Final = 100
_STATEMENT_LINES, _NOTE_LINES, _LOST_LINES, _CELL_LINES = 4, 3, 2, 3
_SHOWN_NOTES, _BAR_LINES = 2, 2
_SAVES, _SHARE, _GAP = 9, 11, 2
_BLOCKS: Final = "█▓▒░"
_COLOURS: Final = ("green", "yellow", "blue", "red")
_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_PATH, _LEAST_PATH = 4_000, 16  # characters
_NOTHING_MS = 1e-6
_AT_END = " by the end of the window"
_NOTHING = 0.000_05  # a share that would read 0.00 %
_SMALL = 0.01  # parts of the step below it are told together
_CLAUSE_END: Final = re.compile(r"[;:.](?=\s|$)")  # of an advice
_LOST: Final = "data_loss"
_ASSUMED_OF_GPU: Final = "assumed", "device_ops"
_DEVICE_BOUND: Final = 0.9  # of the step: the rest is too short to be what to look at
_OPTION: Final = "--unprofiled-step-ms"
_COUNTED: Final = "no more"
_OF_STEP: Final = {"unprofiled": "of the recorded step", "mean": "of the mean step"}  # what a bar is of


class StyledLine(tuple[tuple[str, str], ...]):
    """A line for a terminal: texts, each with its style, as Rich names it. Rich itself takes longer to import than all
    of a small trace to be read."""

    @classmethod
    def of(cls, text: str, style: str = "") -> Self:
        """A line in one style."""
        return cls(((text, style),))

    @property
    def plain(self) -> str:
        """Without styles."""
        return "".join(text for text, _ in self)

    def drawn(self, colour: bool) -> str:
        """The line as written; without colour it holds no escape sequence."""
        if not colour:
            return self.plain
        drawn = ""
        for style, run in groupby(self, key=itemgetter(1)):
            text, codes = "".join(text for text, _ in run), ";".join(_CODES[word] for word in style.split())
            drawn += f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
        return drawn


def render_diagnosis(diagnosis: Diagnosis, style: Style) -> str:
    """One screen, or with `verbose` all there is to say; without colour it holds no escape sequence."""
    if style.verbose:
        from timesink.render.text import render_whole

        return render_whole(diagnosis, style)
    return printed("".join(f"{line.drawn(style.colour)}\n" for line in brief_lines(diagnosis, style.width)))


def brief_lines(diagnosis: Diagnosis, width: int) -> list[StyledLine]:
    """At most 24 lines of that width; the last ones are commands, which may be longer."""
    width = min(width, WIDEST)
    head = [*_verdict(diagnosis, width), StyledLine(), _source(diagnosis, width), *_bar(diagnosis, width)]
    tail = [*_counts(diagnosis), *_notes(diagnosis.notes, width), *_next(diagnosis)]
    room = MOST_LINES - 1 - sum(max(-(-len(line.plain) // width), 1) for line in (*head, *tail))
    return [*head, *_findings(diagnosis, width, room), StyledLine(), *tail]


def _verdict(diagnosis: Diagnosis, width: int) -> list[StyledLine]:
    colour, name = verdict_colour(diagnosis.bottleneck), diagnosis.bottleneck.value.replace("_", " ")
    first = f"{'no bottleneck' if diagnosis.bottleneck is Bottleneck.NONE else name}: "
    told = scrub_sentence(diagnosis.statement)
    told = told[:1].lower() + told[1:] if told[1:2].islower() else told  # it goes on after a colon
    lines = _few_lines(first + told, width, _STATEMENT_LINES)
    head = StyledLine(((lines[0][: len(first)], f"bold {colour}"), (lines[0][len(first) :], "bold")))
    return [head, *(StyledLine.of(line, "bold") for line in lines[1:])]


def _source(diagnosis: Diagnosis, width: int) -> StyledLine:
    """The file, the steps and the GPUs in one line."""
    names = Counter(device.name or "GPU" for device in diagnosis.devices)
    gpus = ", ".join(f"{count} × {scrub(name)}" if count > 1 else scrub(name) for name, count in names.items())
    profiled = diagnosis.profiled_kernels
    kernels = f"{profiled} profiled kernel{'s' if profiled != 1 else ''}" if profiled else ""
    paths = list(dict.fromkeys(str(source.get("path") or "?") for source in diagnosis.sources))
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    for counted in _counted(diagnosis):
        facts = " · ".join(filter(None, (gpus and counted, gpus, kernels))) or "no GPU work"
        if (room := width - len(facts) - len(more) - 3) >= _LEAST_PATH:
            break
    path = _end_of(scrub(paths[0]), max(room, _LEAST_PATH)) if paths else ""
    return StyledLine.of(shortened(f"{path}{more} · {facts}", width), "dim")


def _counted(diagnosis: Diagnosis) -> Iterator[str]:
    """How many steps there are and how long they take, each time with one fact less: as long as the bar is, and the
    median where that is another."""
    steps = diagnosis.steps
    if not steps.count:
        dropped = ", ".join(why.removesuffix(_AT_END) for why in steps.dropped)
        yield f"no complete step ({dropped})" if dropped else "no steps found"
        return
    mean_ns, median_ns = _longest_ns(diagnosis), (steps.p50_ms or 0.0) * NS_PER_MS
    usual = max((budget.steps for budget in diagnosis.budgets), default=0)
    if not usual or not median_ns:
        length = f"{', median' if steps.count > 1 else ' of'} {time_text(median_ns)}" if median_ns else ""
    elif usual < steps.count:
        length = f", the usual {usual:,} of {time_text(mean_ns)}"
    elif apart(mean_ns, median_ns):
        length = f", mean {time_text(mean_ns)}, median {time_text(median_ns)}"
    else:
        length = f" of {time_text(mean_ns)}"
    spread = " ({} to {})".format(*(time_text(ms * NS_PER_MS) for ms in steps.spread_ms)) if steps.spread_ms else ""
    covered = "" if (ratio := steps.little_ratio) is None else f", {share_text(ratio)} of the recording"
    for told in (f"{length}{spread}{covered}", f"{length}{covered}", length):
        yield f"{steps.count:,} {steps.noun}{told}"


def _longest_ns(diagnosis: Diagnosis) -> float:
    """The mean step of the device where it is longest, or the window; 0 without device work."""
    return max((budget.period_ns for budget in diagnosis.budgets), default=0.0)


def _bar(diagnosis: Diagnosis, width: int) -> list[StyledLine]:
    """The mean step over all devices as one bar, and in words what it is made of."""
    parts: Counter[str] = Counter()
    for budget in diagnosis.budgets:
        parts.update({part.kind: part.time_ns for part in budget.parts})
    total_ns = sum(budget.period_ns for budget in diagnosis.budgets)
    if not total_ns:
        return []
    groups = [*WORK_WORDS, "idle"]
    in_groups = [parts[kind] / total_ns for kind in WORK_WORDS]
    in_groups.append(max(1.0 - sum(in_groups), 0.0))
    ends = [0, *(round(width * min(sum(in_groups[: at + 1]), 1.0)) for at in range(len(in_groups)))]
    sizes = [end - start for start, end in pairwise(ends)]  # characters, which sum to the width
    bar = StyledLine((block * size, colour) for block, colour, size in zip(_BLOCKS, _COLOURS, sizes, strict=True))
    window = time_text(_longest_ns(diagnosis))
    which = diagnosis.findings[0][1].which if diagnosis.findings else ""
    of_step = _OF_STEP.get(which, "of the step")
    of_step = of_step if any(budget.steps for budget in diagnosis.budgets) else f"of the {window} window"
    over = f"{of_step}, mean of {len(diagnosis.budgets)} GPUs" if len(diagnosis.budgets) > 1 else of_step
    words = [
        f"{block} {WORK_WORDS.get(group, group)} {share_text(share)}"
        for group, block, share in zip(groups, _BLOCKS, in_groups, strict=True)
        if share > _NOTHING
    ]
    causes = [(kind, ns / total_ns) for kind, ns in parts.most_common() if kind not in WORK_WORDS]
    causes = [(IDLE_WORDS.get(kind, kind), share) for kind, share in causes if share >= _SMALL]
    for told in range(len(causes), -1, -1):
        named = [f"{words} {share_text(share)}" for words, share in causes[:told]]
        if left := sum(share for _, share in causes[told:]):
            named.append(f"other {share_text(left)}")
        lines = wrap(tied(f"{'  '.join(words)}{': ' if named else ''}{', '.join(named)} ({over})"), width)
        if len(lines) <= _BAR_LINES:
            break
    return [bar, *map(StyledLine.of, lines)]


def _findings(diagnosis: Diagnosis, width: int, room: int) -> list[StyledLine]:
    """The findings as a table, as many as there is room for; the others by name."""
    groups = grouped(diagnosis)
    if not groups:
        return []
    several = len(diagnosis.devices) > 1
    first = groups[0].first
    whole = " ".join(filter(None, ("of", first.which, first.period)))
    of = whole if any(saved_share(group.first, first.which) for group in groups) else ""
    figures = _SAVES + max(_SHARE, len(of) + _GAP)
    rest = width - figures - 2 * _GAP
    widths = figures, (where := rest * 9 // 20), rest - where - _GAP
    told_with_others = [
        group
        for at, group in enumerate(groups)
        if _is_part(group, diagnosis) or (at and _is_tiny(group.first)) or _is_named_above(group, groups[:at])
    ]
    groups = [group for group in groups if group not in told_with_others]
    names = {card.code: finding.name for card, finding in reversed(diagnosis.findings)}
    blocks = [_row(group, first.which, widths, names, several) for group in groups]
    shown, every = 0, len(groups) + len(told_with_others)
    while shown < len(blocks) and sum(map(len, blocks[: shown + 1])) + 2 + (shown + 1 < every) <= room:
        shown += 1
    head = f"{'saves':>{_SAVES}}{of:>{figures - _SAVES}}{' ' * _GAP}{'finding, where':{where + _GAP}}what to do"
    lines = [StyledLine(), StyledLine.of(head, "bold"), *(line for block in blocks[:shown] for line in block)]
    if left := [*groups[shown:], *told_with_others]:
        lines.append(
            StyledLine.of(_in_line(f"{len(left)} more (-v): ", [*_named_once(one.first for one in left)], width), "dim")
        )
    return lines


def _is_part(group: Group, diagnosis: Diagnosis) -> bool:
    """Whether another finding names it as its cause and has all of its time: it is told with that one."""
    rule, rank = group.card.name, group.first.where.rank
    wholes = (one for _, one in diagnosis.findings if one.cause == rule and one.where.rank == rank)
    return short_saving(group.first) == _COUNTED and any(wholes)


def _is_named_above(group: Group, above: Sequence[Group]) -> bool:
    """Whether other findings have all of its time, and one of its name is told above: of one cause, one row."""
    return short_saving(group.first) == _COUNTED and any(one.first.name == group.first.name for one in above)


def _named_once(findings: Iterable[Finding]) -> Iterator[str]:
    """Each name once, with how often it comes, and what the first of them saves."""
    by_name: dict[str, list[Finding]] = {}
    for finding in findings:
        by_name.setdefault(finding.name, []).append(finding)
    for name, same in by_name.items():
        times = f" ×{len(same)}" if len(same) > 1 else ""
        saving = short_saving(same[0])
        yield f"{name}{times} {'(counted above)' if saving == _COUNTED else saving}".strip()


def _in_line(head: str, names: Sequence[str], width: int) -> str:
    """As many of the names as one line holds, each whole."""
    for count in range(len(names), 0, -1):
        line = f"{head}{', '.join(names[:count])}{', …' if count < len(names) else ''}"
        if len(line) <= width:
            return line
    return shortened(f"{head}{names[0]}", width)


def _row(
    group: Group, which: str, widths: tuple[int, int, int], names: Mapping[str, str], several: bool
) -> list[StyledLine]:
    """A finding on two or three lines: what it saves, its name above its place, what to do beside them, each in its
    width. `which` step the column of shares is of; `names` are those of findings by their rules."""
    figures_width, where_width, do_width = widths
    finding, times = group.first, f" ×{len(group.others) + 1}" if group.others else ""
    where = [f"{shortened(group.first.name, where_width - len(times))}{times}"]
    if place := short_place(finding.where, several):
        where.append(_end_of(place, where_width) if finding.where.file else shortened(place, where_width))
    if finding.which != which and (share := saved_share(finding, finding.which)):
        where.append(f"{share} of the {' '.join(filter(None, (finding.which, finding.period)))}")
    if finding.counted_in and short_saving(finding) == _COUNTED:
        taker = finding.counted_in[0]
        where.append(shortened(f"counted in {names.get(taker, taker)}", where_width))
    do = _few_lines(short_advice(finding.advice), do_width, _CELL_LINES)
    lines = []
    for at in range(max(len(where), len(do))):
        figures = (
            " " * figures_width
            if at
            else f"{short_saving(finding):>{_SAVES}}{saved_share(finding, which):>{figures_width - _SAVES}}"
        )
        place = f"{where[at] if at < len(where) else '':{where_width}}"
        rest = f"{' ' * _GAP}{do[at] if at < len(do) else ''}".rstrip()
        place = place if rest else place.rstrip()
        own = "bold green"  # of the line, but for the name
        lines.append(StyledLine(((f"{figures}{' ' * _GAP}", own), (place, own if at else "bold cyan"), (rest, own))))
    return lines


def short_saving(finding: Finding) -> str:
    """`3.15 ms`; `≤ 3.15 ms` where it is a bound; `no more` where another finding has all of its time; `memory` where
    a fix saves memory and no time."""
    if finding.recoverable is None:
        return "nothing" if finding.bottleneck is Bottleneck.PROFILER_OVERHEAD else "not known"
    bound, saved_ms = _saved_ms(finding)
    if saved_ms:
        return f"{bound}{time_text(saved_ms * NS_PER_MS)}"
    if finding.counted_in:
        return _COUNTED
    if finding.bottleneck in OF_MEMORY:
        return "memory"
    return "not known" if is_unpriced(finding) else "nothing"


def saved_share(finding: Finding, which: str) -> str:
    """The saving as a share of the step or of the window; '' where it is of another than `which`: shares of two do not
    stand in one column."""
    bound, saved_ms = _saved_ms(finding)
    if not saved_ms or not finding.of_ms or finding.which != which or _is_tiny(finding):
        return ""
    return f"{bound}{share_text(saved_ms / finding.of_ms)}"


def _is_tiny(finding: Finding) -> bool:
    """Whether the share of what it saves would read as nothing."""
    return 0 < _saved_ms(finding)[1] < _NOTHING * (finding.of_ms or 0.0)


def _saved_ms(finding: Finding) -> tuple[str, float]:
    """`≤ ` where the saving is a bound, and how much it is; 0 where it would read as nothing."""
    gain = finding.recoverable or Quantity(0.0, "ms")
    most_ms = max(gain.high or 0.0, gain.value)
    if gain.value < _NOTHING_MS:
        return "≤ ", most_ms if most_ms >= _NOTHING_MS else 0.0
    return "≤ " if gain.high is not None and gain.value >= gain.high != gain.low else "", gain.value


def short_advice(advice: str) -> str:
    """Its first clause, which is whole by itself: `Capture the step in a CUDA graph`."""
    return _CLAUSE_END.split(scrub_sentence(advice), maxsplit=1)[0]


def _counts(diagnosis: Diagnosis) -> list[StyledLine]:
    """Of the rules; one that needs another kind of capture is not applicable to this one."""
    kinds = Counter(
        NotApplicable if getattr(ruling.verdict, "elsewhere", False) else type(ruling.verdict)
        for ruling in diagnosis.rulings
    )
    named = ((Clear, "clear"), (NotApplicable, "n/a"), (Undecided, "undecided"))
    return [StyledLine.of(f"{' · '.join(f'{kinds[kind]} {word}' for kind, word in named)} (-v)", "dim")]


def _notes(notes: Iterable[Note], width: int) -> list[StyledLine]:
    """What the file lost; then what is to be known of the GPU's times and the figures, the rest counted."""
    lost = [note for note in notes if note.kind == _LOST]
    own = [note for note in notes if not note.kind or (note.kind, note.table) == _ASSUMED_OF_GPU]
    lines = []
    if lost:
        more = f"; {len(lost) - 1} more (-v)" if len(lost) > 1 else ""
        lines = _few_lines(scrub_sentence(f"lost: {lost[0].counted}{more}"), width, _LOST_LINES)
    own.sort(key=lambda note: _OPTION not in note.message)
    for at, note in enumerate(own[:_SHOWN_NOTES]):
        left = len(own) - _SHOWN_NOTES
        more = f" ({left} more: -v)" if left > 0 and at == _SHOWN_NOTES - 1 else ""
        lines += _few_lines(scrub_sentence(f"note: {note}{more}"), width, _NOTE_LINES)
    return [StyledLine.of(line, "yellow") for line in lines]


def _next(diagnosis: Diagnosis) -> list[StyledLine]:
    """The commands to type next, whole, each on a line of its own."""
    told = enumerate(next_commands(diagnosis))
    return [StyledLine.of(f"{'next: ' if not at else '      '}{command}") for at, command in told]


def next_commands(diagnosis: Diagnosis) -> list[str]:
    """What to type after this answer: the page of the first finding's rule, then another look at the same file."""
    paths = list(dict.fromkeys(str(source["path"]) for source in diagnosis.sources if source.get("path")))
    file = shlex.quote(scrub(paths[0], _PATH)) if len(paths) == 1 else ""
    commands = [f"timesink explain {diagnosis.findings[0][0].code}"] if diagnosis.findings else []
    if file:
        look = "report" if diagnosis.devices else "kernels" if diagnosis.profiled_kernels else "doctor --from"
        commands.append(f"timesink {'kernels --next' if _is_of_the_device(diagnosis) else look} {file}")
    return commands


def _is_of_the_device(diagnosis: Diagnosis) -> bool:
    """Whether kernels fill the step and no finding says what to change of them: counters do, where Nsight Compute
    reads them."""
    if any(vendor_of_product(device.name) not in (None, NVIDIA) for device in diagnosis.devices):
        return False
    total_ns = sum(budget.period_ns for budget in diagnosis.budgets)
    computed_ns = sum(part.time_ns for budget in diagnosis.budgets for part in budget.parts if part.kind == "compute")
    unnamed = {Bottleneck.NONE} | OF_KERNELS
    return 0 < total_ns * _DEVICE_BOUND <= computed_ns and diagnosis.bottleneck in unnamed


def _few_lines(text: str, width: int, most: int) -> list[str]:
    """The text wrapped; where that takes more lines, it ends in an ellipsis and how to see the rest."""
    lines = wrap(tied(text), width, break_on_hyphens=False) or [""]
    if len(lines) <= most:
        return lines
    left_out = "… (-v)"
    last = wrap(lines[most - 1], width - len(left_out))[0]
    return [*lines[: most - 1], f"{last}{left_out}"]


def _end_of(text: str, width: int) -> str:
    """The end of a path or place, which says more than its beginning."""
    return text if len(text) <= width else f"…{text[len(text) - max(width - 1, 0) :]}"
