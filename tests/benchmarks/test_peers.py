"""What other tools answer, turned into verdicts, by hand."""

from benchmarks.peers.kernels import accepted
from benchmarks.peers.verdicts import NO_KERNEL, ORDERS, Verdict, of_findings, of_shares, same_kind

KERNEL = ["warning", "compute", "Top kernel dominates (49.0%): nvjet_sm90", None]
IDLE = ["warning", "idle", "GPU Idle Summary (56.1% of profile)", 24.41]
NOTE = ["info", "profile_quality", "Insufficient NVTX coverage", None]


def test_a_kind_that_fits_is_right_whichever_cause_is_owed() -> None:
    answer = {"findings": [KERNEL, IDLE, NOTE]}
    told = {way: of_findings(answer, "input_pipeline", way) for way in ORDERS}
    assert told[NO_KERNEL] == Verdict(first=True, any=True, alarm=True, price=0.561)
    assert not told["first warning"].first and told["first warning"].any
    assert of_findings(answer, "precision", "first warning").first  # the kernel that it names is a product
    assert not of_findings({"findings": [KERNEL]}, "none", NO_KERNEL).alarm
    assert of_findings({"findings": [NOTE]}, "precision", NO_KERNEL).refused


def test_a_breakdown_says_its_largest_loss_above_the_threshold_else_its_kernels() -> None:
    answer = {"idle": 12.0, "copy": 30.0, "communication": 0.0, "longest": ["aten::mm", "nvjet_tst_64x64"]}
    assert of_shares(answer, "host_to_device_copy", 10).first and not of_shares(answer, "host_sync", 10).first
    assert of_shares(answer, "host_sync", 10).any and not of_shares(answer, "host_sync", 20).any
    assert of_shares(answer, "precision", 40) == Verdict(first=True, any=True, alarm=False)


def test_kinds_of_bottlenecks_and_of_rules() -> None:
    assert same_kind("host_sync", "input_pipeline") and not same_kind("host_sync", "precision")
    assert accepted("CPIStall", "Math Pipe Throttle Stalls") == {"compute_bound_kernel"}
    assert "register_spills" in accepted("MemoryCacheAccessPattern", "L1TEX Local Load Access Pattern")
    assert accepted("Unheard", "of") == set()
