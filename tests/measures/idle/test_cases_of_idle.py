"""What captures of known faults of the host say: each call has the idle time that went by in it, and no other."""

import lzma
from pathlib import Path

import pytest

from timesink import diagnose, read
from timesink.diagnosis.verdicts import Bottleneck

CASES = Path(__file__).resolve().parents[2] / "data" / "cases"


@pytest.mark.parametrize(
    ("name", "bottleneck", "share", "gain", "said"),
    [
        ("host_after_copy.sqlite.xz", "unrecorded_code", 2.25 / 5.46, (2.1, 2.3), "Most of it"),
        ("pool_trim.sqlite.xz", "allocator", 600 / 716, (0.45, 0.6), "Most of it: cudaMallocAsync"),
        ("free_in_loop.sqlite.xz", "allocator", 144 / 244, (0.12, 0.144), "Most of it: cudaFree"),
        ("device_delay.sqlite.xz", "late_start", 4.32 / 17.68, (4.3, 4.4), "preemption, a context switch or clocks"),
        ("offload_loop.sqlite.xz", "unrecorded_code", 19.0 / 36.7, (17.0, 19.1), "CPU code"),
        ("13_one_wait_then_starved_by_host.json.gz", "launch_bound", 5.73 / 11.3, (4.5, 5.8), "for the next launch"),
    ],
)
def test_the_first_finding_is_of_what_the_host_did(
    name: str, bottleneck: str, share: float, gain: tuple[float, float], said: str, tmp_path: Path
) -> None:
    path = CASES / name
    if name.endswith(".xz"):
        path = tmp_path / name.removesuffix(".xz")
        path.write_bytes(lzma.decompress((CASES / name).read_bytes()))
    first = diagnose(read(path, cache=False)).findings[0][1]
    assert first.bottleneck is Bottleneck(bottleneck)
    assert first.evidence[0].measured.value == pytest.approx(share, abs=0.01)
    assert first.recoverable is not None
    assert gain[0] <= first.recoverable.value <= gain[1]
    assert said in first.message
    assert "input" not in first.message
