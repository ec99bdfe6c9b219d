"""Step times as GPU programs make them, many experiments at once: what verdicts are tested against.

An experiment is a session of runs, a run is a series of steps. Noise within a run is 1 % of the step (correlated, heavy
tailed or with spikes, by kind); every run also has its own offset (`run_sd`), which no number of steps averages away; a
session may drift, or swing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import signal

from timesink.verify.runs import pair_order
from timesink.verify.statistics import mser_cut

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """One sort of noise. `ar` is the correlation of neighbouring steps, `drift` the change over the whole session.

    Of a run: `run_sd` its deviation, `after_sd` that of the changed side where it is another; `modes`: half of the runs
    take so much longer; `walk`: the deviation from one run to the next; `throttle`: eight runs take so much longer;
    `second`, `carry`: the second run of a pair, a run after the changed build takes so much longer; `clock_sd`,
    `host_sd`: deviation that the recorded clock and the recorded speed of the host go along with. Of steps: `quantum`:
    they are read off a clock that ticks so; `spikes`: one of a hundred takes so many times as long; `bursts`: a
    neighbour that comes and goes makes them so much longer; `warm_up`: the first takes so much longer, which falls to
    a third in `settles` steps. `swing`: how far runs go up and down, in a `period` of so many runs (2 to 20 where None,
    another in each session).
    """

    name: str
    ar: float = 0.0
    tail_df: float | None = None
    spike_share: float = 0.0
    drift: float = 0.0
    run_sd: float = 0.005
    run_tail_df: float | None = None
    step_sd: float = 0.01
    after_sd: float | None = None
    modes: float = 0.0
    walk: float = 0.0
    throttle: float = 0.0
    second: float = 0.0
    carry: float = 0.0
    clock_sd: float = 0.0
    host_sd: float = 0.0
    quantum: float = 0.0
    spikes: float = 0.0
    bursts: float = 0.0
    warm_up: float = 0.0
    settles: float = 4.5
    swing: float = 0.0
    period: float | None = None


KINDS = (
    Kind("independent"),
    Kind("autocorrelated 0.3", ar=0.3),
    Kind("autocorrelated 0.6", ar=0.6),
    Kind("autocorrelated 0.9", ar=0.9),
    Kind("heavy tails (t3)", tail_df=3, run_tail_df=3),
    Kind("spikes (2 % of steps +30 %)", spike_share=0.02),
    Kind("drift 1 % over the session", drift=0.01),
)
HARDER = (
    Kind("neighbouring steps correlate by 0.9", ar=0.9),
    Kind("heavy tails (t3) of steps and runs", tail_df=3, run_tail_df=3),
    Kind("a clock that ticks every 5 % of a step", quantum=0.05),
    Kind("warm-up: the first step +50 %", warm_up=0.5),
    Kind("warm-up over half the run", warm_up=0.3, settles=60),
    Kind("the session drifts by 5 %", drift=0.05),
    Kind("runs walk at random by 0.5 %", walk=0.005),
    Kind("throttled once: eight runs +10 %", throttle=0.1),
    Kind("runs differ by 1 % (deviation)", run_sd=0.01),
    Kind("runs differ by 2 % (deviation)", run_sd=0.02),
    Kind("runs differ by 5 % (deviation)", run_sd=0.05),
    Kind("the changed side differs ten times as much (5 %)", after_sd=0.05),
    Kind("two modes: half the runs +4 %", modes=0.04),
    Kind("two modes: half the runs +20 %", modes=0.2),
    Kind("1 % of steps take ten times as long", spikes=10),
    Kind("a neighbour's bursts: a tenth of the time +10 %", bursts=0.1),
    Kind("the second run of a pair +4 %", second=0.04),
    Kind("a run after the changed build +5 %", carry=0.05),
    Kind("runs swing by ±5 % in 2 runs", swing=0.05, period=2),
    Kind("runs swing by ±5 % in 3 runs", swing=0.05, period=3),
    Kind("runs swing by ±5 % in 4 runs", swing=0.05, period=4),
    Kind("runs swing by ±5 % in 8 runs", swing=0.05, period=8),
    Kind("runs swing by ±5 %, in 2 to 20 runs", swing=0.05),
    Kind("the clock wanders by 2 %, as recorded", clock_sd=0.02),
    Kind("the host's speed wanders by 2 %, as recorded", host_sd=0.02),
)


def unit_noise(rng: np.random.Generator, shape: tuple[int, ...], tail_df: float | None) -> Values:
    """Noise of deviation 1: normal, or Student t of `tail_df` > 2 scaled to it."""
    if tail_df is None:
        return rng.standard_normal(shape)
    return rng.standard_t(tail_df, shape) / np.sqrt(tail_df / (tail_df - 2))


def runs(rng: np.random.Generator, kind: Kind, experiments: int, count: int, steps: int) -> Values:
    """Step times (experiments, runs in session order, steps) around 1."""
    noise = unit_noise(rng, (experiments, count, steps), kind.tail_df)
    if kind.ar:
        start = noise[..., :1] * np.sqrt(1 - kind.ar**2)
        driven = np.concatenate([start / (1 - kind.ar**2) ** 0.5, noise[..., 1:] * np.sqrt(1 - kind.ar**2)], -1)
        noise = signal.lfilter([1.0], [1.0, -kind.ar], driven, axis=-1)
    series = 1 + kind.step_sd * noise
    if kind.spike_share:
        series += 0.3 * (rng.random(series.shape) < kind.spike_share)
    if kind.spikes:
        series += (kind.spikes - 1) * (rng.random(series.shape) < 0.01)
    if kind.bursts:
        series += kind.bursts * _comes_and_goes(rng, (experiments, count * steps)).reshape(series.shape)
    if kind.warm_up:
        series += kind.warm_up * np.exp(-np.arange(steps) / kind.settles)
    series = np.maximum(series, 0.5) * np.exp(_of_runs(rng, kind, experiments, count))[..., None]
    return np.ceil(series / kind.quantum) * kind.quantum if kind.quantum else series


def _of_runs(rng: np.random.Generator, kind: Kind, experiments: int, count: int) -> Values:
    """The logarithm of how much longer each run takes (experiments, runs)."""
    offset = kind.run_sd * unit_noise(rng, (experiments, count), kind.run_tail_df)
    at = np.arange(count)
    offset = offset + kind.drift * at / (count - 1) + kind.second * (at % 2)
    if kind.modes:
        offset += kind.modes * (rng.random(offset.shape) < 0.5)
    if kind.walk:
        offset += kind.walk * rng.standard_normal(offset.shape).cumsum(-1)
    if kind.throttle:
        since = at - rng.integers(2, count - 8, (experiments, 1))
        offset += kind.throttle * ((since >= 0) & (since < 8))
    if kind.swing:
        period = np.full((experiments, 1), kind.period) if kind.period else rng.uniform(2, 20, (experiments, 1))
        offset += kind.swing * np.sin(2 * np.pi * (at / period + rng.random((experiments, 1))))
    return offset


def _comes_and_goes(rng: np.random.Generator, shape: tuple[int, int]) -> Values:
    """1 while a neighbour is there: it stays for 150 steps in the mean, and is away for nine times as long."""
    there = np.zeros(shape)
    for row in there:
        at = rng.exponential(1350)
        while at < len(row):
            stay = rng.exponential(150)
            row[int(at) : int(at + stay)] = 1
            at += stay + rng.exponential(1350)
    return there


def run_means(series: Values) -> Values:
    """Mean of each run's steady part: what `runs.summarise` computes, over all runs at once."""
    steps = series.shape[-1]
    cut = mser_cut(series)
    keep = np.arange(steps) >= cut[..., None]
    return (series * keep).sum(-1) / keep.sum(-1)


def log_ratios(means: Values) -> Values:
    """log(after / before) per pair, from run means in session order under the plan of `verify`."""
    swapped = np.array([pair_order(pair)[0] == "after" for pair in range(means.shape[-1] // 2)])
    first, second = np.log(means[..., 0::2]), np.log(means[..., 1::2])
    return np.where(swapped, first - second, second - first)
