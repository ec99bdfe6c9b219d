"""Whose accelerator a capture is of: what its runtime is called, how its calls and its products are named."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from timesink.knowledge import Pattern, Patterns
from timesink.records import Record
from timesink.startup import regex


class Vendor(Record):
    """A maker of accelerators. `runtime` is what its calls are called (``200 CUDA calls``), `unit` what one of its
    devices is. `calls` and `products` find the names of its calls and its devices. `tracer` is what records the
    device's work for profilers, `records_by` what makes torch.profiler use it, `kernel_profiler` what counts inside its
    kernels.
    """

    runtime: str
    unit: str
    calls: Pattern
    products: Pattern
    tracer: str
    records_by: str
    kernel_profiler: str


def _vendor(name: str, runtime: str, unit: str, *tools: str) -> Vendor:
    return Vendor(runtime, unit, _FILE.kind("CALLS")[name], _FILE.kind("PRODUCTS")[name], *tools)


_FILE: Final = Patterns(__file__)
NVIDIA: Final = _vendor("NVIDIA", "CUDA", "GPU", "CUPTI", "ProfilerActivity.CUDA", "Nsight Compute")
AMD: Final = _vendor("AMD", "HIP", "GPU", "roctracer", "ProfilerActivity.CUDA", "rocprof-compute")
INTEL: Final = _vendor("INTEL", "Level Zero", "GPU", "PTI", "ProfilerActivity.XPU", "VTune")
HUAWEI: Final = _vendor("HUAWEI", "CANN", "NPU", "msprof", "torch_npu.profiler.ProfilerActivity.NPU", "msprof op")
META: Final = _vendor(
    "META", "MTIA", "accelerator", "MTIA's profiler", "ProfilerActivity.MTIA", "a profiler of its kernels"
)
VENDORS: Final = (NVIDIA, AMD, INTEL, HUAWEI, META)
NO_GPU: Final = _FILE.NO_GPU


def as_of(vendor: Vendor, text: str) -> str:
    """The text with the tools of NVIDIA that it names as those of a vendor: Nsight tells nothing of another's GPU."""
    own = {
        NVIDIA.kernel_profiler: vendor.kernel_profiler,
        "capture nsys": "capture torch",
        ", or with Nsight Systems": "",
        "nsys --sample, ": "",
        ", nsys --sample": "",
        ", nsys --gpuctxsw=true": "",
        ", nsys --delay": "",
    }
    for tool, instead in own.items() if vendor is not NVIDIA else ():
        text = text.replace(tool, instead)
    return text


@lru_cache(256)
def vendor_of_product(name: str) -> Vendor | None:
    """Who makes the device that calls itself so; None where nobody is known to."""
    return next((vendor for vendor in reversed(VENDORS) if regex(vendor.products).search(name)), None)


def vendor_of_calls(names: Iterable[str]) -> Vendor:
    """Whose runtime most of these calls belong to; NVIDIA's where they are nobody's."""
    every = list(names)
    return max(VENDORS, key=lambda vendor: sum(map(bool, map(regex(vendor.calls).search, every))))
