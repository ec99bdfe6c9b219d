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
    device's work for profilers, `records_by` what makes torch.profiler use it.
    """

    runtime: str
    unit: str
    calls: Pattern
    products: Pattern
    tracer: str
    records_by: str


def _vendor(name: str, runtime: str, unit: str, tracer: str, records_by: str) -> Vendor:
    return Vendor(runtime, unit, _FILE.kind("CALLS")[name], _FILE.kind("PRODUCTS")[name], tracer, records_by)


_FILE: Final = Patterns(__file__)
NVIDIA: Final = _vendor("NVIDIA", "CUDA", "GPU", "CUPTI", "ProfilerActivity.CUDA")
AMD: Final = _vendor("AMD", "HIP", "GPU", "roctracer", "ProfilerActivity.CUDA")
INTEL: Final = _vendor("INTEL", "Level Zero", "GPU", "PTI", "ProfilerActivity.XPU")
HUAWEI: Final = _vendor("HUAWEI", "CANN", "NPU", "msprof", "torch_npu.profiler.ProfilerActivity.NPU")
META: Final = _vendor("META", "MTIA", "accelerator", "MTIA's profiler", "ProfilerActivity.MTIA")
VENDORS: Final = (NVIDIA, AMD, INTEL, HUAWEI, META)
NO_GPU: Final = _FILE.NO_GPU


@lru_cache(256)
def vendor_of_product(name: str) -> Vendor | None:
    """Who makes the device that calls itself so; None where nobody is known to."""
    return next((vendor for vendor in reversed(VENDORS) if regex(vendor.products).search(name)), None)


def vendor_of_calls(names: Iterable[str]) -> Vendor:
    """Whose runtime most of these calls belong to; NVIDIA's where they are nobody's."""
    every = list(names)
    return max(VENDORS, key=lambda vendor: sum(map(bool, map(regex(vendor.calls).search, every))))
