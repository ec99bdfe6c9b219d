"""Diagnoses written by hand, for every reporter to render."""

from timesink.diagnosis.verdicts import (
    Bottleneck,
    Card,
    Clear,
    DeviceFigures,
    Diagnosis,
    Evidence,
    Finding,
    Found,
    NotApplicable,
    Note,
    Quantity,
    Ruling,
    StepFigures,
    Undecided,
    Where,
)

IDLE = Evidence(
    "GPU idle in data_load",
    Quantity(0.195, "ratio"),
    "gaps under the range",
    limit=Quantity(0.1, "ratio"),
    table="device_ops",
    rows=(1, 5, 9, 13, 17, 21, 25),
)


def card(code: str, name: str = "starved-by-input") -> Card:
    return Card(code, name, "the device waits for data", "", since="0.1.0")


def diagnosis(name: str = "data_load") -> Diagnosis:
    """One finding, one of each other verdict; `name` stands wherever a trace's text may stand."""
    message = f"{name} on thread 1234 takes 3.10 ms of the 12.3 ms step; the GPU waits 2.40 ms of it."
    finding = Finding(
        message=message,
        bottleneck=Bottleneck.INPUT_PIPELINE,
        where=Where(rank=0, device=0, thread=1234, range=name, op=name, kernel=name, file=name, line=7),
        evidence=(IDLE, Evidence(name, Quantity(3.1, "ms"), name, table="ranges")),
        advice=f"Prefetch what {name} makes.",
        verify=f"timesink verify, then look at {name}",
        recoverable=Quantity(2.1, "ms", low=0.5, high=2.4),
        of_ms=12.0,
    )
    rulings = (
        Ruling(card("INP101"), Found((finding,))),
        Ruling(card("CPY101", "copies-exposed"), Clear((IDLE,))),
        Ruling(card("COM101", "communication-exposed"), NotApplicable(f"one device, {name}")),
        Ruling(card("SYN101", "host-sync"), Undecided(f"no table api_calls in {name}", f"timesink capture {name}")),
    )
    return Diagnosis(
        sources=({"path": f"{name}.json", "format": "kineto_json", "rank": 0, "tool_version": None},),
        steps=StepFigures(10, 12.3, 12.9, None, source=f"ProfilerStep {name}", dropped=(f"2 warm-up {name}",)),
        devices=(DeviceFigures(0, 0, name, 1_000_000, 700_000, 300_000, 600_000, 40_000, 60_000),),
        rulings=rulings,
        findings=((card("INP101"), finding),),
        bottleneck=Bottleneck.INPUT_PIPELINE,
        statement=message,
        notes=(Note(name, "data_loss", 3),),
    )


def healthy() -> Diagnosis:
    """Nothing found: one clear rule and no notes."""
    return Diagnosis(
        sources=({"path": "run.sqlite"},),
        steps=StepFigures(0, None, None, None),
        devices=(),
        rulings=(Ruling(card("CPY101", "copies-exposed"), Clear((IDLE,))),),
        findings=(),
        bottleneck=Bottleneck.NONE,
        statement="The device is busy 99.0 %; no rule finds a change worth making.",
    )
