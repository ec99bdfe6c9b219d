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

    `modes`: half of the runs take so much longer, as does every tenth step ten times over. `warm_up`: how much longer
    the first step of a run takes; a fifth of it goes with each step. `swing`: how far runs go up and down, in a
    period of 2 to 20 runs, another in each session.
    """

    name: str
    ar: float = 0.0
    tail_df: float | None = None
    spike_share: float = 0.0
    drift: float = 0.0
    run_sd: float = 0.005
    run_tail_df: float | None = None
    step_sd: float = 0.01
    modes: float = 0.0
    warm_up: float = 0.0
    swing: float = 0.0


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
    Kind("the session drifts by 3 %", drift=0.03),
    Kind("neighbouring steps correlate by 0.9", ar=0.9),
    Kind("two modes: half the runs +1 %, a tenth of steps +10 %", modes=0.01),
    Kind("heavy tails (t3) of steps and runs", tail_df=3, run_tail_df=3),
    Kind("warm-up: the first step +50 %", warm_up=0.5),
    Kind("runs differ by 1.5 % (deviation)", run_sd=0.015),
    Kind("runs swing by ±5 %, period of 2 to 20 runs", swing=0.05),
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
    if kind.warm_up:
        series += kind.warm_up * 0.8 ** np.arange(steps)
    offset = kind.run_sd * unit_noise(rng, (experiments, count, 1), kind.run_tail_df)
    offset = offset + kind.drift * np.linspace(0, 1, count)[None, :, None]
    if kind.modes:
        series += 10 * kind.modes * (rng.random(series.shape) < 0.1)
        offset += kind.modes * (rng.random(offset.shape) < 0.5)
    if kind.swing:
        period, phase = rng.uniform(2, 20, (experiments, 1, 1)), rng.random((experiments, 1, 1))
        offset += kind.swing * np.sin(2 * np.pi * (np.arange(count)[None, :, None] / period + phase))
    return np.maximum(series, 0.5) * np.exp(offset)


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
