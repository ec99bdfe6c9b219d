"""A page that ncu prints says of a kernel what the report of the same run says, or that it does not hold it."""

import json
import re
from pathlib import Path

import pytest
from tests.readers.ncu_pages import (
    PAGES,
    REPORTS,
    SUITE,
    UNSEEN,
    Reading,
    Style,
    french,
    german,
    long_page,
    raw_page,
    reading_into,
    unpacked,
)

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.errors import UnreadableTrace
from timesink.measures.counters import KernelCounters, kernel_counters, page_bounds
from timesink.measures.counters.limiter import KernelLimits, kernel_limits, limits_of, why_unexplained
from timesink.measures.counters.page_bounds import OF_LOCAL, told_in
from timesink.measures.counters.resources import Resource, throughput_of
from timesink.measures.counters.roofline import roofline_of
from timesink.measures.counters.sheet import kernel_sheets, verdict_of
from timesink.measures.counters.waste import Cause, requests_per_cycle, waste_of
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.readers.ncu.labels import _METRICS
from timesink.records import replace
from timesink.views.kernels import kernel_entries

STYLES = {
    "german": Style(german),
    "scaled french": Style(french, scaled=True),
    "without units": Style(units=False),
    "unquoted": Style(quoted=False),
}


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    return reading_into(tmp_path_factory.mktemp("pages"))


def verdicts(trace: Trace) -> list[tuple[str, str | None] | None]:
    """Limiter and nearest roof of every launch. Pages do not say which format of the tensor cores' roofs it is."""
    return [
        one and (one.limiter.value, "tensor" if (roof := roof_of(one)) and "tensor" in roof else roof)
        for one in kernel_limits(trace)
    ]


def roof_of(one: KernelLimits) -> str | None:
    return one.roofline.nearest[0] if one.roofline and one.roofline.nearest else None


def shares(trace: Trace) -> list[float]:
    return [max(one.shares.values()) for one in kernel_limits(trace) if one]


@pytest.mark.parametrize(
    ("report", "page"),
    [(report, page) for report, pages in PAGES.items() for page in pages],
    ids=lambda path: path.name,
)
def test_what_ncu_printed_says_the_same_or_that_it_does_not_say(report: Path, page: Path, reading: Reading) -> None:
    found, wanted = verdicts(reading(page)), verdicts(reading(report))
    if ".details" not in page.name:
        assert found == wanted
        return
    for said, full in zip(kernel_limits(reading(page)), kernel_limits(reading(report)), strict=True):
        assert said is None or full is None or said.limiter is full.limiter or is_the_same_side(said, full)


def test_what_a_details_page_holds_decides_as_the_report_does_or_not(reading: Reading) -> None:
    decided = every = 0
    for report in REPORTS:
        for kernel, full in zip(kernel_counters(reading(report)), kernel_limits(reading(report)), strict=True):
            said = limits_of(as_details(kernel))
            decided, every = decided + (said is not None), every + (full is not None)
            if said is not None and full is not None:
                assert said.limiter is full.limiter or is_the_same_side(said, full), kernel.name
                assert said.bound is None or full.bound is None or said.bound >= 0.98 * full.bound, kernel.name
    assert decided >= 0.4 * every


def test_local_memory_that_a_page_does_not_count_leaves_a_full_level_to_speak(reading: Reading) -> None:
    """Pages of older versions of ncu have no figure of local memory."""
    decided = every = 0
    for report in REPORTS:
        for kernel, full in zip(kernel_counters(reading(report)), kernel_limits(reading(report)), strict=True):
            page = as_details(kernel)
            values = {name: value for name, value in page.values.items() if OF_LOCAL not in name}
            said, newer = limits_of(replace(page, values=values)), limits_of(page)
            if said is not None and full is not None:
                others = (said.limiter, *said.others)
                assert full.limiter in others or is_the_same_side(said, full), kernel.name
            decided, every = decided + (said is not None), every + (newer is not None)
    assert decided >= 0.75 * every


@pytest.mark.slow
def test_eight_in_ten_launches_of_all_suites_are_decided_from_their_details_and_none_otherwise(tmp_path: Path) -> None:
    decided = every = 0
    for number, report in enumerate(dict.fromkeys([*REPORTS, *UNSEEN])):
        (tmp_path / str(number)).mkdir()
        trace = reading_into(tmp_path / str(number))(report)
        for kernel, full in zip(kernel_counters(trace), kernel_limits(trace), strict=True):
            said = limits_of(as_details(kernel))
            decided, every = decided + (said is not None), every + (full is not None)
            assert said is None or full is None or (said.limiter is full.limiter or is_the_same_side(said, full)), (
                kernel.name
            )
    assert decided >= 0.8 * every


SEVENTH = SUITE.parent / "unseen7" / "reports"


@pytest.mark.parametrize("name", ["cuda", "triton"])
def test_details_of_the_seventh_set_say_what_its_raw_pages_say_or_nothing(name: str, reading: Reading) -> None:
    details, raw = (reading(SEVENTH / f"{name}.{page}.csv.xz") for page in ("details", "raw"))
    for said, full in zip(kernel_limits(details), kernel_limits(raw), strict=True):
        assert full is not None
        assert said is None or said.limiter is full.limiter or is_the_same_side(said, full), full.kernel.name


@pytest.mark.slow
def test_what_a_page_bounds_is_what_the_report_counted(tmp_path: Path) -> None:
    """Atomics in L2, local memory, repeated and scattered passes of L1: none lies outside what the page allows."""
    compared = dict.fromkeys(("atomics", "local", "repeated", "scattered", "requests"), 0)
    for number, report in enumerate(dict.fromkeys([*REPORTS, *UNSEEN])):
        (tmp_path / str(number)).mkdir()
        for kernel in kernel_counters(reading_into(tmp_path / str(number))(report)):
            page, full = as_details(kernel), waste_of(kernel)
            told = told_in(page.messages)
            page = replace(page, values={**told.counters, **page.values})
            least = waste_of(page)
            most, _ = page_bounds.atomic_sectors(page)
            if most is not None and (sectors := kernel.total(*ATOMIC_SECTORS)) is not None:
                compared["atomics"] += sectors > 0
                assert sectors <= most + 1e3, kernel.name
            of_l2 = full.of(Cause.REGISTER_SPILLS, Resource.L2)
            compared["local"] += of_l2 > 0
            least_local = page_bounds.local_traffic_at_least(page, least.access)
            assert least_local <= of_l2 + 1e-3 <= page_bounds.local_traffic(page, told.names_local) + 2e-3, kernel.name
            assert full.local_instructions <= page_bounds.local_instructions(page) + 1e-3, kernel.name
            repeated = page_bounds.repeated_passes(page, least.access)
            scattered = page_bounds.excess_passes(page, least.access, told.names_local)
            compared["repeated"] += repeated > 0
            compared["scattered"] += scattered > 0
            conflicts = full.of(Cause.BANK_CONFLICTS, Resource.L1) + full.of(Cause.ATOMICS, Resource.L1)
            assert repeated <= conflicts + 0.02, kernel.name
            assert full.atomic_requests or scattered <= full.of(Cause.UNCOALESCED, Resource.L1) + 0.02, kernel.name
            each, passes = full.access.wavefronts_per_request, page_bounds.requests_of_passes(page)
            compared["requests"] += passes[0] > 0
            assert not each or passes[0] - 0.02 <= 1 / each <= passes[1] + 0.02 or passes[1] == 1.0, kernel.name
            roofs = roofline_of(kernel)
            works = [roof.share for roof in roofs.compute] if roofs else []
            assert max(works, default=0.0) <= page_bounds.work_at_most(page, told) + 0.02, kernel.name
    assert min(compared.values()) >= 6, compared


ATOMIC_SECTORS = tuple(f"lts__t_sectors_srcunit_tex_op_{op}.sum" for op in ("red", "atom_dot_alu", "atom_dot_cas"))


def test_no_unit_of_loads_is_busier_than_l1(reading: Reading) -> None:
    """What a details page is read by: each load or store passes through L1."""
    for report in REPORTS:
        for kernel in kernel_counters(reading(report)):
            loads, l1 = kernel.share("sm__inst_executed_pipe_lsu"), throughput_of(kernel, Resource.L1)
            assert loads is None or l1 is None or loads * requests_per_cycle(kernel) <= l1 + 1e-4, kernel.name


def test_a_message_whose_figures_were_redacted_is_no_sign_that_there_is_no_waste(reading: Reading) -> None:
    (shared,) = (report for report in REPORTS if report.name == "shared.ncu-rep.xz")
    for kernel in map(as_details, kernel_counters(reading(shared))):
        cut = tuple(re.sub(r"\b\d{5,}\b", "secret7", message) for message in kernel.messages)
        whole, said = limits_of(kernel), limits_of(replace(kernel, messages=cut))
        assert said is None or (whole is not None and said.limiter is whole.limiter), kernel.name


@pytest.mark.slow
def test_the_first_finding_of_a_launch_names_the_limiter_of_its_row(tmp_path: Path) -> None:
    """Or, of one that runs at its roof, a waste that a fix wins more by; its limiter is a finding too."""
    for report in [*REPORTS, *(one for one in UNSEEN if "unseen6" in str(one))]:
        first: dict[int, str] = {}
        at_a_roof: dict[int, str] = {}
        (tmp_path / report.parent.parent.name).mkdir(exist_ok=True)
        trace = reading_into(tmp_path / report.parent.parent.name)(report)
        for _, finding in diagnose(trace).findings:
            for row in finding.evidence[0].rows:
                first.setdefault(row, finding.bottleneck.value)
                if "roof it is at most 1.0" in finding.message and finding.recoverable:
                    at_a_roof[row] = finding.bottleneck.value
        entries = {entry["id"]: entry["limiter"] for entry in kernel_entries(trace)}
        assert {row: entries[row] for row in first} == {**first, **at_a_roof}, report.name


def as_details(kernel: KernelCounters) -> KernelCounters:
    """What the details page prints of a launch: some figures, with two digits, and the messages of ncu's rules."""
    printed = {name: float(f"{value:.2f}") for name, value in kernel.values.items() if name in LABELLED}
    return replace(kernel, values=printed, texts={}, messages=tuple(whole(text, kernel) for text in kernel.messages))


def whole(message: str, kernel: KernelCounters) -> str:
    """The message as ncu printed it: redaction took counts of eight digits for secrets. ncu's rules print counters."""
    if op := re.search(r"pattern for shared (load|store)s", message):
        conflicts = kernel.get(f"{CONFLICTS}_op_{'ld' if op.group(1) == 'load' else 'st'}.sum")
        return re.sub(r"secret\d+(?= bank conflicts)", f"{conflicts:.0f}", message)
    for figure, counters in (("excessive", EXCESSIVE), ("of the total", TOTAL)):
        found = kernel.first(*(name for name in counters if ("global" in name) == ("global accesses" in message)))
        pattern = rf"secret\d+(?= {figure})" if figure == "excessive" else rf"(?<={figure} )secret\d+"
        message = message if found is None else re.sub(pattern, f"{found:.0f}", message)
    return message


CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
EXCESSIVE = (
    "derived__memory_l2_theoretical_sectors_global_excessive",
    "derived__memory_l1_wavefronts_shared_excessive",
)
TOTAL = ("memory_l2_theoretical_sectors_global", "memory_l1_wavefronts_shared")
# A label stands for the counter that a chip has: of the compression unit GH100 has another than GA100.
LABELLED = frozenset({*(name for of in _METRICS.values() for name in of.values()), "lrc__ilc_input_sectors.sum"})


def is_the_same_side(said: KernelLimits, full: KernelLimits) -> bool:
    """A page without units may say that DRAM is the limit; what of its traffic is waste only the units tell."""
    busiest = max((leaf.busy for leaf in full.leaves if leaf.resource is Resource.DRAM), default=0.0)
    is_waste = full.limiter in (Cause.UNCOALESCED, Cause.REGISTER_SPILLS)
    near = said.roof[0] == "DRAM" and said.roof[1] == pytest.approx(busiest, abs=0.02)
    return near and said.limiter is Cause.MEMORY and (full.limiter is Cause.MEMORY or is_waste)


CASES = Path(__file__).parents[1] / "data/cases"


@pytest.mark.parametrize(
    ("name", "limiters", "share"),
    [
        ("details_speed_of_light.csv", ["memory_bound_kernel", None], 0.6406),
        ("metrics_of_speed_of_light_only.csv", ["memory_bound_kernel", None], 0.921),
    ],
)
def test_percentages_of_peak_alone_decide_where_dram_is_near_it(
    name: str, limiters: list[str | None], share: float
) -> None:
    trace = read(CASES / name, cache=False)
    first = kernel_limits(trace)[0]
    assert [one and one.limiter.value for one in kernel_limits(trace)] == limiters
    assert first is not None and first.roof == ("DRAM", pytest.approx(share))
    assert [finding.bottleneck.value for _, finding in diagnose(trace).findings] == ["memory_bound_kernel"]


@pytest.mark.parametrize(
    ("metric", "percent", "limiter"),
    [
        ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "88.8", "memory_bound_kernel"),
        ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "73.0", "memory_bound_kernel"),
        ("dram__bytes_read.sum.pct_of_peak_sustained_elapsed", "67.8", "memory_bound_kernel"),
        ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "31.0", None),
        ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "91.0", None),
        ("l1tex__throughput.avg.pct_of_peak_sustained_active", "91.0", None),
    ],
)
def test_a_page_of_one_chosen_metric(metric: str, percent: str, limiter: str | None, tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    text = (CASES / "metrics_of_speed_of_light_only.csv").read_text("utf-8")
    page.write_text(text.replace("dram__throughput.avg.pct_of_peak_sustained_elapsed", metric).replace("92.1", percent))
    found = kernel_limits(read(page, cache=False))
    assert [one and one.limiter.value for one in found] == [limiter, None]


@pytest.mark.parametrize(
    ("gpu", "chip", "moved", "time_us", "share"),
    [
        ("", "8.9", 134.22, 128.0, 1.0),  # faster than the datasheet of the fastest GPU of this chip
        ("", "9.0", 6400.0, 1400.0, 0.93),  # near that of the fastest, so near its own, whichever it is
        ("", "9.0", 4000.0, 1400.0, None),  # an H100 near its peak, or an H200 far from it
        ("", "9.9", 4000.0, 1.0, None),  # of a chip that nobody knows
        ("NVIDIA H100 80GB HBM3", "9.0", 4000.0, 1400.0, 0.85),
        ("NVIDIA H200", "9.0", 4000.0, 1400.0, 0.6),
        ("NVIDIA H200", "9.0", 2000.0, 1400.0, None),
    ],
)
def test_bytes_and_time_decide_where_they_reach_the_peak_of_dram(
    gpu: str, chip: str, moved: float, time_us: float, share: float | None, tmp_path: Path
) -> None:
    page = tmp_path / "page.csv"
    columns = [
        *(
            ("ID", "", 0),
            ("Process ID", "", 7),
            ("Process Name", "", "app"),
            ("Kernel Name", "", "copy"),
            ("CC", "", chip),
        ),
        *(("dram__bytes.sum", "Mbyte", moved), ("gpu__time_duration.sum", "us", time_us)),
        *((("device__attribute_display_name", "", gpu),) if gpu else ()),
    ]
    page.write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in zip(*columns, strict=True)))
    trace = read(page, cache=False)
    (found,), (kernel,) = kernel_limits(trace), kernel_counters(trace)
    if found is None:
        assert share is None and "to decide" in why_unexplained(kernel)
        return
    assert found.limiter is Cause.MEMORY and found.roof == ("DRAM", pytest.approx(share, abs=0.01))
    (entry,), line = kernel_entries(trace), roofline_of(kernel)
    assert (entry["roof"], entry["roof_share"]) == found.roof
    assert line is not None and line.nearest == ("DRAM", pytest.approx(found.roof[1]))


@pytest.mark.slow
@pytest.mark.parametrize("path", [*REPORTS, *UNSEEN[1:]], ids=lambda path: path.name)
def test_every_page_names_one_verdict_of_a_launch(path: Path, tmp_path: Path) -> None:
    """Limiter, roof and bound are one for all pages, and no roof is farther than the busiest unit from its peak."""
    trace = reading_into(tmp_path)(path)
    for sheet, entry in zip(kernel_sheets(trace), kernel_entries(trace), strict=True):
        said = verdict_of(sheet.limits)
        assert [said[key] for key in ("limiter", "roof", "roof_speedup", "bound_speedup")] == [
            entry[key] for key in ("limiter", "roof", "roof_speedup", "bound_speedup")
        ]
        if sheet.limits is not None and entry["roof_speedup"]:
            assert entry["roof_speedup"] <= max(1.0, 1.001 / sheet.limits.top.busy)


@pytest.mark.slow
@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_a_raw_page_of_every_report_says_the_same(path: Path, reading: Reading, tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    page.write_text(raw_page(reading(path), Style()), "utf-8")
    again = read(page, cache=False)
    assert verdicts(again) == verdicts(reading(path))
    assert shares(again) == pytest.approx(shares(reading(path)), abs=1e-3)


@pytest.mark.parametrize("name", STYLES)
def test_a_raw_page_says_the_same_however_it_is_printed(name: str, reading: Reading, tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    report = reading(SUITE / "coalescing.ncu-rep.xz")
    page.write_text(raw_page(report, STYLES[name]), "utf-8")
    assert verdicts(read(page, cache=False)) == verdicts(report)


@pytest.mark.parametrize("style", [Style(), Style(german, scaled=True)], ids=["english", "scaled german"])
def test_a_long_page_that_holds_the_units_says_the_same(style: Style, reading: Reading, tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    report = reading(SUITE / "shared.ncu-rep.xz")
    page.write_text(long_page(raw_page(report, style)), "utf-8")
    assert verdicts(read(page, cache=False)) == verdicts(report)


def test_scaled_figures_without_their_units_are_refused(reading: Reading, tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    page.write_text(raw_page(reading(SUITE / "atomics.ncu-rep.xz"), Style(units=False, scaled=True)), "utf-8")
    with pytest.raises(UnreadableTrace, match="the units they are scaled to are missing"):
        read(page, cache=False)


@pytest.mark.parametrize("kind", ["label", "name"])
def test_a_details_page_names_the_limiter_of_its_report_or_none_and_the_page_that_does(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, report = tmp_path / "details.csv", tmp_path / "report.ncu-rep"
    page.write_bytes(unpacked(SUITE / f"atomics.details_{kind}.csv.xz"))
    report.write_bytes(unpacked(SUITE / "atomics.ncu-rep.xz"))
    found = []
    for file in (page, report):
        assert run(["kernels", str(file), "--format", "json"]) == 0
        text = capsys.readouterr().out
        assert "inf" not in text.lower()
        found.append(json.loads(text)["kernels"])
    listed, known = found
    assert len(listed) == len(known) == 6
    for one, same in zip(listed, known, strict=True):
        if one["limiter"] is None:
            assert (one["roof"], one["bound_speedup"]) == (None, None)
            assert one["action"].endswith("profile with --set full or export the raw page.")
        else:
            assert one["limiter"] == same["limiter"]
    assert {one["limiter"] for one in listed} == {None, "occupancy", "compute_bound_kernel", "atomics"}


LONG = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream","Section Name",'
    '"Metric Name","Metric Unit","Metric Value"\n'
)


def test_an_old_long_page_is_read_row_by_row_and_two_runs_are_kept_apart(tmp_path: Path) -> None:
    """Up to 2020 `--page raw` too had a row per metric, and neither grid nor block."""
    fixed = '"{}","{}","a","h","k(int)","2020-May-29 12:02:46","1","7","Command line profiler metrics"'
    rows = [
        (0, 9, "gpu__time_duration.sum", "nsecond", "2,000"),
        (0, 9, "dram__cycles_active.avg.pct_of_peak_sustained_elapsed", "%", "90.00"),
        (1, 9, "gpu__time_duration.sum", "usecond", "3.00"),
    ]
    lines = [f'{fixed.format(*row[:2])},"{row[2]}","{row[3]}","{row[4]}"\n' for row in rows]
    again = [line.replace('"9"', '"10"') for line in lines]
    page = tmp_path / "long.log"
    page.write_text(f"==PROF== Connected\n{LONG}\n{''.join(lines)}==PROF== Disconnected\n{LONG}{''.join(again)}")
    trace = read(page, cache=False)
    assert trace["kernel_profiles"]["duration_ns"].to_list() == [2000.0, 3000.0] * 2
    assert [one and one.limiter.value for one in kernel_limits(trace)] == ["memory_bound_kernel", None] * 2


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ('"Display Driver Version","580.1"\n"device__attribute_clock_rate","1980000"\n', "session"),
        ('"Kernel Name","k"\n"#","Address","Source"\n"0","7f00","MOV"\n', "source"),
    ],
)
def test_other_pages_are_refused_by_name(text: str, page: str, tmp_path: Path) -> None:
    path = tmp_path / "page.csv"
    path.write_text(text)
    with pytest.raises(UnreadableTrace, match=f"ncu's {page} page.*--page raw"):
        read(path, cache=False)
