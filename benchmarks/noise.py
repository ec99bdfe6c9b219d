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

    Of a run: `run_sd` its deviation (`skewed`: of long runs only; `grows`: to so many times by the session's end),
    `after_sd` that of the changed side where it is another; `modes`: a `mode_share` of the runs take so much longer,
    as the run before with the chance `sticky`; `walk`: the deviation from one run to the next; `pink`: the deviation of
    1/f noise over runs; `throttle`: eight runs take so much longer; `jump`: all runs from one on; `cold`: the first
    run, the second a third of it; `second`, `carry`: the second run of a pair, a run after the changed build takes so
    much longer; `clock_sd`, `host_sd`: deviation that the recorded clock and the recorded speed of the host go along
    with. Of steps: `quantum`: they are read off a clock that ticks so; `spikes`: a `spike_rate` of them take so many
    times as long, `spike_tail`: each as much longer as a Pareto of that exponent says; `bursts`: a neighbour that comes
    for `stays` steps and goes for `away` makes them so much longer; `warm_up`: the first takes so much longer, which
    falls to a third in `settles` steps; `ramp`: the last takes so much longer than the first, evenly; `wave`: they go
    up and down by so much in `wave_steps`; `every`: each `every_steps`th takes so much longer. `swing`: how far runs go
    up and down, in a `period` of so many runs (2 to 20 where None, another in each session). `steps`: of a run.
    """

    name: str
    ar: float = 0.0
    tail_df: float | None = None
    spike_share: float = 0.0
    drift: float = 0.0
    run_sd: float = 0.005
    run_tail_df: float | None = None
    skewed: bool = False
    grows: float = 1.0
    step_sd: float = 0.01
    after_sd: float | None = None
    modes: float = 0.0
    mode_share: float = 0.5
    sticky: float = 0.0
    walk: float = 0.0
    pink: float = 0.0
    throttle: float = 0.0
    jump: float = 0.0
    cold: float = 0.0
    second: float = 0.0
    carry: float = 0.0
    clock_sd: float = 0.0
    host_sd: float = 0.0
    quantum: float = 0.0
    spikes: float = 0.0
    spike_rate: float = 0.01
    spike_tail: float = 0.0
    bursts: float = 0.0
    stays: float = 150
    away: float = 1350
    warm_up: float = 0.0
    settles: float = 4.5
    ramp: float = 0.0
    wave: float = 0.0
    wave_steps: float = 40
    every: float = 0.0
    every_steps: int = 50
    swing: float = 0.0
    period: float | None = None
    steps: int = 100


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

# Those of an audit, as far as its words say them, and that many more. Of none of them was a setting of `verify` chosen
# but for those that `WEAK` names.
AUDIT = (
    Kind("steps of 1 %"),
    Kind("runs walk by 0.3 %", walk=0.003),
    Kind("heavy tails (t2.1)", tail_df=2.1),
    Kind("cold: first runs +20 %", cold=0.2),
    Kind("warm-up of 30 steps", warm_up=0.4, settles=10),
    Kind("warm-up of 200 steps, 300 a run", warm_up=0.4, settles=60, steps=300),
    Kind("drift 3 % over the session", drift=0.03),
    Kind("turbo: the first steps -8 %", warm_up=-0.08, settles=15),
    Kind("the first step compiles: 50 times", warm_up=50, settles=0.2),
    Kind("runs deviate by 1 %", run_sd=0.01),
    Kind("runs deviate by 2 %", run_sd=0.02),
    Kind("runs deviate by 3 %", run_sd=0.03),
    Kind("a fifth of the runs +3 %", modes=0.03, mode_share=0.2),
    Kind("a fifth of the runs +8 %", modes=0.08, mode_share=0.2),
    Kind("two clocks 6 % apart, 30 steps each", bursts=0.06, stays=30, away=30),
    Kind("two clocks 6 % apart, 150 steps each", bursts=0.06, stays=150, away=150),
    Kind("two clocks 6 % apart, 900 steps each", bursts=0.06, stays=900, away=900),
    Kind("neighbours correlate by 0.97, 3 %", ar=0.97, step_sd=0.03),
    Kind("three steps a run, 2 %", steps=3, step_sd=0.02),
    Kind("sine of 3 % in 5 runs", swing=0.03, period=5),
    Kind("sine of 3 % in 9 runs", swing=0.03, period=9),
    Kind("sine of 3 % in 16 runs", swing=0.03, period=16),
    Kind("a run after the changed build +2 %", carry=0.02),
    Kind("a run after the changed build +3.5 %", carry=0.035),
    Kind("the second of a pair +3 %", second=0.03),
    Kind("bursts of 8 %", bursts=0.08),
    Kind("the machine jumps by 5 %", jump=0.05),
    Kind("the machine jumps by 12 %", jump=0.12),
    Kind("a bad process in twenty: +12 %", modes=0.12, mode_share=0.05),
    Kind("a bad process in ten: +12 %", modes=0.12, mode_share=0.1),
    Kind("long runs only deviate, 2 %", run_sd=0.02, skewed=True),
    Kind("1/f over runs, 2 %", pink=0.02, run_sd=0.001),
    Kind("changed side six times noisier (1.8 %)", run_sd=0.003, after_sd=0.018),
    Kind("ramp of 3 % in each run", ramp=0.03, run_sd=0.003),
    Kind("1 % of steps take 20 times as long", spikes=20),
    Kind("whole digits: a tick of 10 %", quantum=0.1),
    Kind("whole digits: a tick of 20 %", quantum=0.2),
    Kind("each 50th step +200 %", every=2),
)
OWN = (
    Kind("1 % of steps take 40 times as long", spikes=40),
    Kind("3 % of steps take 20 times as long", spikes=20, spike_rate=0.03),
    Kind("3 in 1,000 steps take 20 times as long", spikes=20, spike_rate=0.003),
    Kind("1 in 1,000 steps takes 200 times as long", spikes=200, spike_rate=0.001),
    Kind("5 % of steps take 5 times as long", spikes=5, spike_rate=0.05),
    Kind("steps have a Pareto tail of 1.5", spikes=1, spike_rate=0.05, spike_tail=1.5),
    Kind("steps have a Pareto tail of 1.1", spikes=1, spike_rate=0.02, spike_tail=1.1),
    Kind("spikes in quiet runs", spikes=20, run_sd=0.0005, step_sd=0.002),
    Kind("spikes in loud runs", spikes=20, run_sd=0.02),
    Kind("spikes and a swing", spikes=20, swing=0.03),
    Kind("spikes and a carry-over", spikes=20, carry=0.03),
    Kind("spikes and two modes", spikes=20, modes=0.05),
    Kind("30 steps a run, 2 % of them 20 times", spikes=20, spike_rate=0.02, steps=30),
    Kind("run tails t(2.1), 1 %", run_sd=0.01, run_tail_df=2.1),
    Kind("run deviation grows tenfold", run_sd=0.002, grows=10),
    Kind("run deviation falls to a tenth", run_sd=0.02, grows=0.1),
    Kind("sticky modes 4 %", modes=0.04, sticky=0.8),
    Kind("sticky modes 15 %", modes=0.15, sticky=0.9),
    Kind("modes 1 %, three in ten", modes=0.01, mode_share=0.3),
    Kind("modes 30 %, one in ten", modes=0.3, mode_share=0.1),
    Kind("1/f over runs, 1 %", pink=0.01, run_sd=0.002),
    Kind("1/f over runs, 5 %", pink=0.05, run_sd=0.002),
    Kind("1/f and a drift of 5 %", pink=0.01, drift=0.05),
    Kind("changed side four times noisier (2 %)", after_sd=0.02),
    Kind("changed side 30 times noisier", run_sd=0.002, after_sd=0.06),
    Kind("ramp of 1 % in each run", ramp=0.01, run_sd=0.003),
    Kind("ramp of 10 % in each run", ramp=0.1, run_sd=0.003),
    Kind("ramp of 5 % down in each run", ramp=-0.05, run_sd=0.003),
    Kind("a wave of 5 % in 40 steps", wave=0.05),
    Kind("a wave of 5 % in 130 steps", wave=0.05, wave_steps=130),
    Kind("each tenth step +100 %, ticks of 5 %", every=1, every_steps=10, quantum=0.05),
    Kind("a tick of a third", quantum=1 / 3, step_sd=0.05),
    Kind("the second of a pair +6 %, two modes", second=0.06, modes=0.05),
    Kind("cold +100 % and a drift", cold=1.0, drift=0.02),
    Kind("a jump in a swing", jump=0.08, swing=0.02),
    Kind("twelve steps a run, correlated by 0.8", steps=12, ar=0.8, step_sd=0.02),
    Kind("one step a run, 1 %", steps=1),
    Kind("a clock as recorded and a swing", clock_sd=0.02, swing=0.02),
)
MODELS = AUDIT + OWN
WEAK = ("ramp of 3 % in each run", "1/f over runs, 2 %", "changed side six times noisier (1.8 %)")


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
        times = kind.spikes - 1 if not kind.spike_tail else rng.pareto(kind.spike_tail, series.shape)
        series += times * (rng.random(series.shape) < kind.spike_rate)
    if kind.bursts:
        series += kind.bursts * _comes_and_goes(rng, (experiments, count * steps), kind).reshape(series.shape)
    if kind.warm_up:
        series += kind.warm_up * np.exp(-np.arange(steps) / kind.settles)
    at = np.arange(steps)
    series += kind.ramp * at / steps + kind.every * (at % kind.every_steps == kind.every_steps - 1)
    if kind.wave:
        series += kind.wave * np.sin(2 * np.pi * (at / kind.wave_steps + rng.random((experiments, count, 1))))
    series = np.maximum(series, 0.5) * np.exp(_of_runs(rng, kind, experiments, count))[..., None]
    return np.ceil(series / kind.quantum) * kind.quantum if kind.quantum else series


def _of_runs(rng: np.random.Generator, kind: Kind, experiments: int, count: int) -> Values:
    """The logarithm of how much longer each run takes (experiments, runs)."""
    at = np.arange(count)
    offset = kind.run_sd * unit_noise(rng, (experiments, count), kind.run_tail_df)
    offset *= kind.grows ** (at / (count - 1))
    if kind.skewed:
        offset = kind.run_sd * rng.exponential(1, offset.shape)
    offset = offset + kind.drift * at / (count - 1) + kind.second * (at % 2) + kind.cold * 3.0**-at
    if kind.modes:
        offset += kind.modes * _in_mode(rng, offset.shape, kind)
    if kind.pink:
        offset += kind.pink * _pink(rng, experiments, count)
    if kind.jump:
        offset += kind.jump * (at >= rng.integers(2, count, (experiments, 1)))
    if kind.walk:
        offset += kind.walk * rng.standard_normal(offset.shape).cumsum(-1)
    if kind.throttle:
        since = at - rng.integers(2, count - 8, (experiments, 1))
        offset += kind.throttle * ((since >= 0) & (since < 8))
    if kind.swing:
        period = np.full((experiments, 1), kind.period) if kind.period else rng.uniform(2, 20, (experiments, 1))
        offset += kind.swing * np.sin(2 * np.pi * (at / period + rng.random((experiments, 1))))
    return offset


def _in_mode(rng: np.random.Generator, shape: tuple[int, ...], kind: Kind) -> Values:
    """1 for runs in the slower mode."""
    mode = (rng.random(shape) < kind.mode_share).astype(np.float64)
    for run in range(1, shape[1]):
        stays = rng.random(shape[0]) < kind.sticky
        mode[stays, run] = mode[stays, run - 1]
    return mode


def _pink(rng: np.random.Generator, experiments: int, count: int) -> Values:
    """1/f noise of deviation 1, cut out of series eight times as long."""
    length = 8 * count
    frequencies = np.fft.rfftfreq(length)
    amplitudes = np.concatenate([[0.0], frequencies[1:] ** -0.5])
    phases = rng.standard_normal((2, experiments, len(frequencies)))
    series = np.fft.irfft(amplitudes * (phases[0] + 1j * phases[1]), length)
    return np.asarray((series / series.std(-1, keepdims=True))[:, :count], np.float64)


def _comes_and_goes(rng: np.random.Generator, shape: tuple[int, int], kind: Kind) -> Values:
    """1 while a neighbour is there: how long it stays and is away is exponential."""
    there = np.zeros(shape)
    for row in there:
        at = rng.exponential(kind.away)
        while at < len(row):
            stay = rng.exponential(kind.stays)
            row[int(at) : int(at + stay)] = 1
            at += stay + rng.exponential(kind.away)
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
