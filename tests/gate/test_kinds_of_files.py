"""Kinds of sentences that files of 30 more programs showed to be false or unsure, in shapes that no capture has."""

import json
from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.gate.test_kinds_of_hosts import of_rule

from timesink import diagnose, read
from timesink.cli.app import run
from timesink.fixes.table import FIXES
from timesink.measures.idle.blame import idle_blame
from timesink.readers import ncu

CONVOLUTIONS = {
    "tf32": "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x64_stage1_kernel__5x_cudnn",
    "fp32": "_5x_cudnn_ampere_scudnn_128x32_relu_small_nn_v1",
    "winograd": "_5x_cudnn_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148n_nt_v1",
    "implicit": "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int)",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pages in", "pages out"])
@pytest.mark.parametrize(
    ("wrote_ms", "page_us", "rounds"), [(98.8, 4, 1), (23, 30, 5), (400, 2, 3), (44, 300, 8), (7, 10, 40)]
)
def test_what_the_cpu_does_before_it_touches_a_page_is_its_own(
    wrote_ms: float, page_us: float, rounds: int, way: str, tmp_path: Path
) -> None:
    """The CPU wrote a file for 98.8 ms and touched a page: all of it was to be won by a prefetch of that page."""
    program = Program(gpu="Tesla T4")
    for _ in range(rounds):
        program.launch("density(float*)", 2000)
        program.wait()
        program.pause(1000 * wrote_ms)
        program.page(program.now - page_us - 5, page_us, way=way)
    program.launch("density(float*)", 2000)
    program.wait()
    trace = read(program.nsys(tmp_path), cache=False)
    stretches = idle_blame(trace).stretches
    lasts = {str(cause): own["end_ns"].sum() - own["start_ns"].sum() for (cause,), own in stretches.group_by("cause")}
    assert lasts["migration"] <= 5.01e6 * rounds
    assert lasts["unrecorded_code"] >= 1e6 * (wrote_ms - 5.5) * rounds
    found = diagnose(trace)
    moved, own = of_rule(found, "CPY101"), of_rule(found, "IDL104")
    assert own is not None and own.recoverable is not None
    if moved is not None and moved.recoverable is not None:
        assert moved.recoverable.most <= (5.1 + page_us / 1000) * rounds


@pytest.mark.parametrize(("gap_us", "pages"), [(20, 400), (300, 200), (1100, 90), (2300, 60), (3900, 30)])
def test_pages_that_the_cpu_works_through_in_order_are_what_the_gpu_waits_for(
    gap_us: float, pages: int, tmp_path: Path
) -> None:
    program = Program(gpu="Tesla T4")
    program.launch("add(float*)", 2000)
    program.wait()
    for page in range(pages):
        program.page(program.now + (page + 1) * gap_us, 10, way="pages out")
    program.pause(pages * (gap_us + 10))
    program.launch("add(float*)", 2000)
    program.wait()
    stretches = idle_blame(read(program.nsys(tmp_path), cache=False)).stretches
    own = stretches.filter(cause="migration")
    assert own["end_ns"].sum() - own["start_ns"].sum() == pytest.approx(1000 * pages * (gap_us - 10), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize(
    ("gpu", "multiprocessors", "blocks"),
    [
        ("NVIDIA L4", 58, 16),
        ("NVIDIA A100-SXM4-40GB", 108, 16),
        ("Tesla T4", 40, 3),
        ("Tesla V100-SXM2-32GB", 80, 30),
        ("NVIDIA H100 80GB HBM3", 132, 1),
    ],
)
def test_what_is_saved_at_most_is_what_more_blocks_save_at_most(
    gpu: str, multiprocessors: int, blocks: int, profiler: str, tmp_path: Path
) -> None:
    """A sort of 16 blocks on 68 multiprocessors was to save "at most" what kernels usually save that get more."""
    program = Program(gpu=gpu)
    sorted_us = 0.0
    for number in range(12):
        is_small = number in (1, 4, 5, 8)
        us = 4000.0 + 900 * number if is_small else 1500.0 + 333 * number
        program.launch(f"kernel_{number}(float*)", us, grid=[blocks if is_small else 4096, 1, 1])
        sorted_us += us * is_small
        program.wait()
        program.pause(2000 + 371 * number**1.5)
    found = of_rule(diagnose(read(getattr(program, profiler)(tmp_path), cache=False)), "KRN107")
    assert found is not None and found.recoverable is not None
    assert found.recoverable.most >= 0.999 * sorted_us / 1000 * (1 - blocks / multiprocessors)


@pytest.mark.parametrize("names", [["python"], ["python", "pt_main_thread"], [], ["a.out", "cuda-EvtHandlr"]])
def test_a_capture_without_any_record_holds_no_work_of_the_cpu(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """nsys could not put itself into the program and recorded nothing; it "holds work of the CPU only"."""
    assert run(["diagnose", str(Program("NVIDIA RTX A2000 12GB").nsys(tmp_path, threads=names))]) == 2
    said = capsys.readouterr().err
    assert "it holds no record of any work, though it names NVIDIA RTX A2000 12GB" in said
    assert "find out why nsys recorded no GPU work" in said


@pytest.mark.parametrize("wide", [True, False])
def test_an_empty_profile_holds_no_work_of_the_cpu(
    wide: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Program("NVIDIA H200").kineto(tmp_path)
    if wide:
        document = json.loads(path.read_text())
        document["traceEvents"] = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}]
        path.write_text(json.dumps(document))
    assert run(["diagnose", str(path)]) == 2
    said = capsys.readouterr().err
    assert "no record of any work, though it names NVIDIA H200" in said
    assert "find out why the profiler recorded no GPU work" in said


@pytest.mark.parametrize("flows", [True, False])
@pytest.mark.parametrize("operators", [["aten::zeros"], ["zeros", "add"], ["mm"] * 40, ["forward", "mm"], ["x"]])
def test_a_profile_of_an_old_pytorch_is_called_so(
    operators: list[str], flows: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What torch.autograd.profiler wrote before PyTorch 1.8 is a profiler's trace: nobody shall give another."""
    events: list[dict[str, object]] = []
    for number, name in enumerate(operators):
        for process, late in (("CPU functions", 0), ("CUDA functions", 5)):
            row = {"name": name, "ts": 100.5 * number + late, "tid": 1, "pid": process, "args": {}}
            events.append({**row, "ph": "X", "dur": 40.25})
            if flows:
                events.append({**row, "ph": "s" if late == 0 else "f", "id": number, "cat": "cpu_to_cuda"})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    assert run(["diagnose", str(path)]) == 2
    assert "GPU times of operators by PyTorch before 1.8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kernels", "chosen"),
    [
        (("fp32", "tf32"), True),
        (("tf32", "winograd", "winograd"), True),
        (("implicit", "implicit", "tf32"), True),
        (("fp32", "winograd", "implicit", "tf32"), True),
        (("tf32", "implicit", "tf32"), True),
        (("fp32", "winograd"), False),
        (("tf32", "tf32"), False),
    ],
)
def test_tf32_is_not_asked_for_where_it_is_allowed(kernels: tuple[str, ...], chosen: bool, tmp_path: Path) -> None:
    """ "Allow TF32" stood beside convolutions in fp32, of a program whose other convolutions ran in TF32."""
    program = Program(gpu="NVIDIA A100-SXM4-80GB")
    for step in range(6):
        with program.range(f"ProfilerStep#{step}"):
            for kernel in kernels:
                with program.range("aten::cudnn_convolution", "cpu_op"):
                    program.launch(CONVOLUTIONS[kernel], 3000)
            program.wait()
    trace = read(program.kineto(tmp_path), cache=False)
    advice = [finding.advice for card, finding in diagnose(trace).findings if card.name == "precision"]
    assert any(text.startswith("Run these convolutions in bf16") for text in advice) is chosen
    assert any(text.startswith("Allow TF32") for text in advice) is (not chosen and "tf32" not in kernels)
    tf32 = next(fix for fix in FIXES if fix.name == "tf32")
    assert bool([kernel for kernel in tf32.find(trace) if kernel.rows.size]) is ("tf32" not in kernels)


@pytest.mark.parametrize("at", [100, 1500, 3221, 4000])
def test_bytes_of_a_report_are_no_page_of_text(at: int, tmp_path: Path) -> None:
    """The length of a text of 34 letters is a quotation mark: a report was a page that "holds no kernel"."""
    head = (b"NVR\0" + bytes(at) + b'"device__attribute_can_tex2d_gather').ljust(4096, b"\0")
    report, page = ncu.READERS
    path = tmp_path / "profile.ncu-rep"
    assert report.recognises(path, head) and not page.recognises(path, head)
    assert page.recognises(tmp_path / "page.csv", b'"ID","device__attribute_can_tex2d_gather"')
