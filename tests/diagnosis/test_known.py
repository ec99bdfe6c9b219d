"""What a capture shows is decided once: what was lost, whose device it is, and what refusals say of it."""

import json
import lzma
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.gate.words import IDIOM
from tests.profiles import ABSENT, PROFILES
from tests.tables import trace_of

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.rule import page_paths, rule_texts
from timesink.diagnosis.verdicts import Undecided
from timesink.knowledge.vendors import AMD, HUAWEI, INTEL, META, NVIDIA, VENDORS, Vendor, as_of, vendor_of_calls
from timesink.knowledge.vendors import vendor_of_product as of_product
from timesink.measures.timeline.known import known, program_kind
from timesink.model.tables import DEVICE_OPS, DEVICES
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers import read
from timesink.records import replace

CASES = Path(__file__).parents[1] / "data" / "cases"


def event(name: str, cat: str | None, at_us: float, us: float = 5, pid: int | str = 7, **args: Any) -> dict[str, Any]:
    placed = {"ph": "X", "name": name, "pid": pid, "tid": 7, "ts": at_us, "dur": us, "args": args}
    return placed if cat is None else {**placed, "cat": cat}


def process(pid: int | str, name: str, label: str = "") -> list[dict[str, Any]]:
    named = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}]
    return named + [{"ph": "M", "name": "process_labels", "pid": pid, "args": {"labels": label}}] * bool(label)


def written(folder: Path, events: list[dict[str, Any]], *devices: str) -> Path:
    path = folder / "trace.json"
    listed = [{"id": number, "name": name} for number, name in enumerate(devices)]
    path.write_text(json.dumps({"deviceProperties": listed, "traceEvents": events}))
    return path


def refusal(path: Path, capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """What a command says that refuses the file; the answer is empty and the exit code 2, whatever the command."""
    code = run([*(command or ("diagnose",)), str(path)])
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    return shown.err


OPERATORS = [event("aten::mm", "cpu_op", 20.0 * at) for at in range(9)]
MEMORY = [{"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event", "pid": 7, "tid": 7, "ts": 3.0,
           "args": {"Bytes": 512, "Device Type": 1, "Device Id": 0, "Addr": 1, "Total Allocated": 512}}]  # fmt: skip


def launches(name: str, cat: str) -> list[dict[str, Any]]:
    return [event(name, cat, 20.0 * at + 8, 3, correlation=at + 1) for at in range(9)]


@pytest.mark.parametrize(
    ("events", "devices", "says"),
    [
        (launches("cudaLaunchKernel", "cuda_runtime"), ("NVIDIA A10G",), "9 CUDA calls, 9 of"),
        (
            launches("cuLaunchKernelEx", "cuda_driver"),
            ("NVIDIA H100 80GB HBM3",) * 8,
            "9 CUDA calls, 9 of",
        ),
        (launches("cudaLaunchKernel", "cuda_runtime"), (), "9 CUDA calls, 9 of"),
        (launches("hipLaunchKernel", "cuda_runtime"), ("AMD Instinct MI300X",), "9 HIP calls, 9 of"),
        (launches("hipExtModuleLaunchKernel", "hip_runtime"), (), "9 HIP calls, 9 of"),
        (
            launches("urEnqueueKernelLaunch", "xpu_runtime"),
            ("Intel(R) Data Center GPU Max 1550",),
            "9 Level Zero calls",
        ),
        (launches("zeCommandListAppendLaunchKernel", "xpu_driver"), (), "9 Level Zero calls, 9 of"),
        (launches("aclrtLaunchKernel", "privateuse1_runtime"), (), "9 CANN calls"),
        (launches("cudaLaunchKernel", "cuda_runtime") + MEMORY, ("NVIDIA A10G",), "9 CUDA calls, 9 of"),
        ([], ("NVIDIA A100-SXM4-80GB",), "work of the CPU only, though it names NVIDIA A100-SXM4-80GB"),
    ],
)
@pytest.mark.parametrize("command", [["diagnose"], ["show", "idle"], ["report", "-o", "-"]])
def test_a_lost_device_is_named_and_the_loss_explained(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    events: list[dict[str, Any]],
    devices: tuple[str, ...],
    says: str,
    command: list[str],
) -> None:
    said = refusal(written(tmp_path, OPERATORS + events, *devices), capsys, *command)
    assert says in said
    assert all(name in said for name in devices)
    assert "find out why the profiler recorded no " in said
    assert "on a machine with a GPU" not in said
    assert "CUDA calls" not in said or "CUDA" in says


@pytest.mark.parametrize(
    "operator",
    [
        "aten::mkldnn_convolution", "aten::_mkldnn_transpose", "mkldnn::_linear_pointwise", "mkl::_mkl_linear",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
    ],
)  # fmt: skip
def test_a_program_that_computes_on_the_cpu_lost_nothing(
    operator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(written(tmp_path, [event(operator, "cpu_op", 10.0 * at, 8) for at in range(9)], "Tesla T4"), capsys)
    assert f"most of it in {operator}, which only a CPU runs" in said and "move the model" in said
    assert "find out why" not in said
    few = [event("aten::conv2d", "cpu_op", 100.0, 900), event(operator, "cpu_op", 10.0, 8)]
    assert "find out why the profiler recorded no GPU work" in refusal(written(tmp_path, few, "Tesla T4"), capsys)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        (process(800, "Ascend Hardware", "NPU"), "9 tasks of 'Ascend Hardware' (NPU), busy for 90.0 us"),
        (process("800", "davinci 0", "NPU"), "9 tasks of 'davinci 0' (NPU), busy for 90.0 us"),
        (process(800, "/device:TPU:0"), "9 tasks of '/device:TPU:0', busy for 90.0 us"),
        (process(800, "card 0", "HPU 0"), "9 tasks of 'card 0' (HPU 0), busy for 90.0 us"),
        (process(800, "python", "CPU"), None),
    ],
)
def test_work_of_another_accelerator_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: list[dict[str, Any]], says: str | None
) -> None:
    tasks = [event("MatMulV2", None, 20.0 * at + 9, 10, events[0]["pid"]) for at in range(9)]
    said = refusal(written(tmp_path, OPERATORS + events + tasks), capsys)
    assert (says or "work of the CPU only") in said
    assert ("on a machine with a GPU" in said) == (says is None)


@pytest.mark.parametrize("category", ["mtia_ccp_events", "hpu_op", "npu_kernel"])
def test_categories_of_another_accelerator_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], category: str
) -> None:
    said = refusal(written(tmp_path, OPERATORS + [event("task", category, 5.0)] * 4), capsys)
    assert f"'{category}' (4)" in said
    assert "on a machine with a GPU" not in said


@pytest.mark.parametrize("case", ["09_gpu_named_kernels_lost.json.gz", "10_npu_tracks.json.gz"])
def test_the_cases_are_refused_with_the_truth(capsys: pytest.CaptureFixture[str], case: str) -> None:
    said = refusal(CASES / case, capsys)
    words = ["200 CUDA calls", "NVIDIA A10G"] if "gpu" in case else ["90 tasks of 'Ascend Hardware' (NPU)", "10.8 ms"]
    assert all(part in said for part in words)


def test_members_that_are_too_long_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out_results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [{"agent": number} for number in range(400_000)]}))
    assert "'rocprofiler-sdk-tool'" in refusal(path, capsys)


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.runtime)
def test_advice_names_only_tools_that_the_maker_of_the_gpu_has(vendor: Vendor) -> None:
    """Nsight tells nothing of another maker's GPU; kernels that Nsight Compute profiled are NVIDIA's."""
    texts = [rule_texts(rule.name) for rule in all_rules() if not rule.code.startswith("NCU")]
    every = [said for text in texts for of in (text.said, *text.variants.values()) for said in of.items()]
    advice = [text for name, text in every if name.startswith("advice")]
    assert any("Nsight Compute" in text for text in advice)
    for text in advice:
        told = as_of(vendor, text)
        assert told == text if vendor is NVIDIA else not any(tool in told for tool in ("Nsight", "nsys", "ncu "))


def test_a_kernel_far_from_its_bound_is_profiled_by_the_maker_of_its_gpu() -> None:
    assert as_of(AMD, "Profile this kernel with Nsight Compute") == "Profile this kernel with rocprof-compute"
    assert as_of(INTEL, "timesink capture nsys -- python train.py") == "timesink capture torch -- python train.py"


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.runtime)
def test_calls_and_products_are_told_apart(vendor: Vendor) -> None:
    assert {vendor_of_calls([name]) for name in vendor.calls.does} == {vendor}
    assert {of_product(name) for name in vendor.products.does} == {vendor}


def test_products_nobody_lists_here_are_told_by_what_they_are() -> None:
    for vendor, names in {
        NVIDIA: ("A10G", "NVIDIA GB200", "Quadro RTX 6000", "NVIDIA Thor", "H20", "GeForce MX450", "L40S"),
        AMD: ("AMD Radeon PRO W7900", "MI250X", "gfx1100", "Instinct MI355X"),
        INTEL: ("Intel(R) Graphics [0x56a0]", "Intel Arc B580"),
        HUAWEI: ("Ascend310P3",),
        META: ("MTIA v2",),
    }.items():
        assert {of_product(name) for name in names} == {vendor}
    assert of_product("") is of_product("some device") is None


def kernels(count: int, correlation: int = 1, at_us: float = 30, every_us: float = 100) -> list[dict[str, Any]]:
    """Kernels of 80 us on one stream, one for each launch."""
    numbered = ((at_us + every_us * at, correlation + at) for at in range(count))
    return [event("gemm", "kernel", at, 80, 0, device=0, stream=7, correlation=number) for at, number in numbered]


def called(count: int, name: str = "cudaLaunchKernel", every_us: float = 100) -> list[dict[str, Any]]:
    return [event(name, "cuda_runtime", every_us * at, 5, correlation=at + 1) for at in range(count)]


@pytest.mark.parametrize(
    ("events", "doubt"),
    [
        (called(40) + kernels(40), None),
        (called(48) + kernels(40), None),  # what was queued when the recording ended
        (called(40, "hipLaunchKernel") + kernels(40), None),
        (kernels(40), "the capture has GPU work and no CUDA calls"),
        (called(1) + kernels(1), "the capture holds only 1 record of GPU work"),
        (called(40) + kernels(40)[::2], "the file lacks the GPU's side of 19 of 40 launches and copies"),
        (called(40) + kernels(40)[1:], "the file lacks the GPU's side of 1 of 40 launches and copies"),
        (called(40)[::2] + kernels(40), "the file lacks the CUDA calls of 20 of 40 records of GPU work"),
        (called(40) + kernels(40, at_us=-1e9), None),  # moved to their launches, which a note says
        (called(40) + kernels(40)[:20] + kernels(20, 21, at_us=-1e9), "begin up to 1000 s before their launch"),
        (called(50) + kernels(50, at_us=6000, every_us=0), "at one time on one stream"),
        (called(50) + [{**one, "dur": 0} for one in kernels(50)], "kernels take no time"),
    ],
)
def test_what_is_visibly_lost_is_a_doubt(tmp_path: Path, events: list[dict[str, Any]], doubt: str | None) -> None:
    found = known(read(written(tmp_path, OPERATORS + events, "NVIDIA A100-SXM4-80GB"), cache=False)).doubts
    assert [doubt in one.why for one in found[:1]] == [True] if doubt else found == ()


@pytest.mark.parametrize(
    ("kind", "warned", "is_doubted"),
    [
        ("set", "Not all CUDA events might have been collected", True),
        ("copy", "Not all HIP events might have been collected", True),
        ("copy", "Not all NVTX events might have been collected", False),
        ("copy", None, False),  # a test of bandwidth runs no kernel
        ("kernel", "Not all CUDA events might have been collected", False),
        ("graph", "Not all CUDA events might have been collected", False),
    ],
)
def test_a_gpu_without_kernels_is_not_idle_where_the_profiler_lost_some(
    tmp_path: Path, kind: str, warned: str | None, is_doubted: bool
) -> None:
    """A process that is killed takes along what its profiler had not written yet."""
    trace = read(written(tmp_path, OPERATORS + called(40) + kernels(40), "NVIDIA A100-SXM4-80GB"), cache=False)
    ops = trace[DEVICE_OPS].with_columns(pl.lit(kind).cast(trace[DEVICE_OPS].schema["kind"]).alias("kind"))
    notes = [ImportNote(NoteKind.DATA_LOSS, f"Nsight Systems warned: {warned}", 1)] if warned else []
    found = known(replace(trace, tables={**trace.tables, DEVICE_OPS: ops}, notes=(*trace.notes, *notes)))
    assert (DEVICE_OPS in found.lacks) is is_doubted
    assert any("no kernel was recorded" in one.why for one in found.doubts) is is_doubted


@pytest.mark.parametrize(
    ("graphs", "remedy"), [(5, "timesink capture nsys -- python train.py"), (4, "record ten steps")]
)
def test_little_but_whole_graphs_asks_for_their_nodes(tmp_path: Path, graphs: int, remedy: str) -> None:
    """Five records, of which so many are whole CUDA graphs."""
    trace = read(written(tmp_path, OPERATORS + called(5) + kernels(5), "NVIDIA A100-SXM4-80GB"), cache=False)
    ops = trace[DEVICE_OPS]
    kind = pl.Series("kind", ["graph"] * graphs + ["kernel"] * (5 - graphs)).cast(ops.schema["kind"])
    found = known(replace(trace, tables={**trace.tables, DEVICE_OPS: ops.with_columns(kind)})).doubts
    assert next(one.to_decide for one in found if "holds only" in one.why).startswith(remedy)


def test_rules_over_an_empty_device_are_never_clear(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(lzma.decompress((CASES / "launches_without_records.sqlite.xz").read_bytes()))
    rulings = {ruling.card.code: ruling.verdict for ruling in diagnose(read(path, cache=False)).rulings}
    over_device = [rule.code for rule in all_rules() if DEVICE_OPS in rule.needs]
    assert {type(rulings[code]) for code in over_device} == {Undecided}
    assert "228 launches and copies were called" in rulings["CPY101"].why  # type: ignore[union-attr]


OF_TORCH_ONLY = ("memory", "compile", "serving")  # topics, which only captures of PyTorch have rows of


@pytest.mark.parametrize("name", sorted(page_paths()))
def test_an_idiom_of_pytorch_is_a_variant_for_programs_of_pytorch(name: str) -> None:
    if page_paths()[name].parent.name in OF_TORCH_ONLY or name == "debugging-left-on":
        return
    texts = rule_texts(name).told_to("native")
    words = [*texts.said.items(), *(entry for said in texts.variants.values() for entry in said.items())]
    assert [text for key, text in words if not key.endswith(" pytorch") and IDIOM.search(text)] == []


def test_texts_are_told_in_the_words_of_the_program() -> None:
    texts = rule_texts("pageable-copies")
    assert "non_blocking" in texts.told_to("pytorch").variants["h2d"]["advice"]
    assert "acc data" in texts.told_to("offload").variants["h2d"]["advice"]
    assert texts.told_to("sycl").variants["h2d"]["advice"] == texts.variants["h2d"]["advice"]


SIGNS = {
    "void at::native::reduce_kernel<512>": "pytorch",
    "triton_poi_fused_add_0": "pytorch",
    "__omp_offloading_10302_2ca4_main_l42": "offload",
    "nvkernel_push_F1L125_2": "offload",
    "main_34_gpu": "offload",
    "_ZTSZZ4mainENKUlRN4sycl3_V17handlerEE_clES2_E4axpy": "sycl",
    "loop_multiply_fusion_3": "jax",
    "input_reduce_fusion": "jax",
    "gemm_fusion_dot_5": "jax",
    "triton_gemm_dot_12": "jax",
    "matmul_kernel": "native",
    "volta_sgemm_128x64_nn": "native",
    "saxpy(double*, int)": "native",
    "void Kokkos::Impl::cuda_parallel_launch_local_memory<Kokkos::Impl::ParallelFor<Push>>": "native",
}


@pytest.mark.parametrize("kernel", SIGNS)
def test_the_kind_of_a_program_is_told_by_its_kernels(kernel: str) -> None:
    trace = trace_of(f"| device_ops | name | start_us | end_us |\n| a | `{kernel}` | 0 | 9 |")
    assert program_kind(trace) == SIGNS[kernel]


def test_a_program_of_another_kind_has_no_input_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    if not PROFILES.exists():
        pytest.skip(ABSENT)
    for case in ("offload_loop", "same_data_each_step", "free_in_loop", "pool_trim", "host_after_copy"):
        assert run(["diagnose", str(PROFILES / "cases" / f"{case}.sqlite")]) == 0
        assert "input pipeline" not in capsys.readouterr().out.partition("\n\n")[0]


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        (("AMD Instinct MI300X",) * 4, "AMD Instinct MI300X"),
        (("NVIDIA H100 80GB HBM3",), "NVIDIA H100 80GB HBM3"),  # the only one that the process sees
        (("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"), None),
        ((), None),
    ],
)
def test_a_device_outside_of_the_list_is_what_all_listed_are(
    tmp_path: Path, listed: tuple[str, ...], name: str | None
) -> None:
    events = called(40) + [{**one, "args": {**one["args"], "device": 6}} for one in kernels(40)]
    trace = read(written(tmp_path, OPERATORS + events, *listed), cache=False)
    assert trace[DEVICES].filter(rank=0, device=6)["name"].to_list() == [name]


def test_an_engine_without_frames_of_the_program_is_shown_by_its_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "lines", str(CASES / "14_frames_of_engine_only.json.gz"), "--format", "csv"]) == 0
    said = capsys.readouterr().out
    assert "vllm/model_executor/models/llama.py" in said
    assert "all that led to GPU work are of libraries" not in said


def test_one_marked_step_that_is_left_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = event("ProfilerStep#3", "user_annotation", 0, 4200)
    assert run(["diagnose", str(written(tmp_path, [step, *OPERATORS, *called(40), *kernels(40)], "NVIDIA L4"))]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no steps found" not in said
    assert "no complete step (1" in said or "1 step of " in said
