"""Whose accelerator a capture is of: what its runtime is called, how its calls and its products are named."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from timesink.knowledge import Pattern
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


# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
NVIDIA: Final = Vendor(
    runtime="CUDA", unit="GPU", tracer="CUPTI", records_by="ProfilerActivity.CUDA",
    kernel_profiler="Nsight Compute",
    calls=Pattern(
        "^(?:cuda|cu)[A-Z]", "a call of CUDA",
        ("cudaLaunchKernel", "cuLaunchKernelEx"), ("custom", "hipMalloc"),
    ),
    products=Pattern(
        r"(?i)nvidia|tesla|geforce|quadro|\b(?:rtx|gtx|titan|jetson)\b|\b(?:g?[abh]|gb|gh|[vptlk])\d{1,3}[gs]?\b",
        "a GPU of NVIDIA",
        ("NVIDIA A100-SXM4-80GB", "Tesla T4", "Quadro GP100", "GeForce RTX 2080 Ti", "GH200 480GB"),
        ("AMD Instinct MI300X", "Intel(R) Data Center GPU Max 1550", "Ascend910B"),
    ),
)
AMD: Final = Vendor(
    runtime="HIP", unit="GPU", tracer="roctracer", records_by="ProfilerActivity.CUDA",
    kernel_profiler="rocprof-compute",
    calls=Pattern("^(?:hip[A-Z]|hsa_|hcc|roc)", "a call of HIP", ("hipLaunchKernel", "hsa_signal_wait"), "hipster"),
    products=Pattern(
        r"(?i)\bamd\b|radeon|instinct|\bmi\d{2,3}\w?\b|\bgfx\d", "a GPU of AMD",
        ("AMD Instinct MI300X", "AMD Radeon RX 7900 XTX", "gfx942:sramecc+"), "NVIDIA A100",
    ),
)
INTEL: Final = Vendor(
    runtime="Level Zero", unit="GPU", tracer="PTI", records_by="ProfilerActivity.XPU",
    kernel_profiler="VTune",
    calls=Pattern(
        "^(?:ze[st]?|ur|pi|cl|sycl)[A-Z_]", "a call of Level Zero, OpenCL, or of SYCL's runtime above them",
        ("zeCommandListAppendLaunchKernel", "urEnqueueKernelLaunch", "piEnqueueKernelLaunch", "clEnqueueNDRangeKernel"),
        ("cudaLaunchKernel", "zero_grad", "clear"),
    ),
    products=Pattern(
        r"(?i)\bintel\b|data center gpu|\barc\b", "a GPU of Intel",
        ("Intel(R) Data Center GPU Max 1550", "Intel(R) Arc(TM) A770 Graphics"), "NVIDIA L4",
    ),
)
HUAWEI: Final = Vendor(
    runtime="CANN", unit="NPU", tracer="msprof", records_by="torch_npu.profiler.ProfilerActivity.NPU",
    kernel_profiler="msprof op",
    calls=Pattern(
        "^(?:acl|aclrt|aclnn|AscendCL@|ge::|HcclComm)", "a call of CANN, Ascend's runtime",
        ("aclrtLaunchKernel", "AscendCL@aclrtSynchronizeStream", "aclnnMatmul"), "cudaLaunchKernel",
    ),
    products=Pattern(
        r"(?i)ascend|\bnpu\b|davinci", "an NPU of Huawei",
        ("Ascend910B", "Ascend Hardware", "NPU"), "input",
    ),
)
META: Final = Vendor(
    runtime="MTIA", unit="accelerator", tracer="MTIA's profiler", records_by="ProfilerActivity.MTIA",
    kernel_profiler="a profiler of its kernels",
    calls=Pattern("(?i)^mtia", "a call of MTIA's runtime", ("mtia_runtime", "mtiaLaunchKernel"), "cudaLaunchKernel"),
    products=Pattern(r"(?i)\bmtia", "an accelerator of Meta", ("MTIA", "mtia_ccp_events"), "NVIDIA A100"),
)
NO_GPU: Final = Pattern(
    "(?i)(?:^|[^a-z])(?:npu|hpu|tpu|mtia|ipu|mlu|aiu|neuron|gaudi|habana|ascend|davinci)(?:[^a-z]|$)",
    "the process or the category of an accelerator that is no GPU",
    ("Ascend Hardware", "NPU", "mtia_ccp_events", "/device:TPU:0", "hpu_op", "MLU"), ("GPU 0", "input", "neurons"),
)
# fmt: on
VENDORS: Final = (NVIDIA, AMD, INTEL, HUAWEI, META)


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
