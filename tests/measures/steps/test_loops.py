"""The outermost loop of generated nested loops: the loop that was generated, or none; never another."""

import random
from dataclasses import dataclass

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from timesink.measures.steps.loops import outermost_loop


@dataclass(frozen=True)
class Nested:
    """Steps of micro-batches of layers; `evaluated` steps are followed by an evaluation."""

    layers: int
    micro_batches: int
    steps: int
    seed: int
    odd_share: float = 0.0
    evaluations: int = 0
    cut: bool = False

    @property
    def right(self) -> range:
        """The step count within one; of a recording cut at both ends the whole steps count, and the cut ones may."""
        return range(self.steps - (3 if self.cut else 1), self.steps + 2)

    def kinds(self) -> np.ndarray:
        """The sequence, each kind an integer."""
        rng = random.Random(self.seed)
        layer = [rng.randrange(12) for _ in range(15)] + list(range(12))
        before, after, step, evaluation = range(20, 23), range(30, 32), range(40, 46), range(50, 58)
        evaluated = set(rng.sample(range(self.steps), min(self.evaluations, self.steps // 8)))  # rare
        sequence: list[int] = []
        ends = []
        for number in range(self.steps):
            for _ in range(self.micro_batches):
                sequence += [*before, *(layer * self.layers), *after]
            sequence += step
            if number in evaluated:
                sequence += [*evaluation, *(layer * self.layers)] * 2
            ends.append(len(sequence))
        odd = [kind if rng.random() >= self.odd_share else 100 + rng.randrange(40) for kind in sequence]
        first = rng.randrange(ends[0]) if self.cut else 0
        last = rng.randrange(ends[-2] + 1, ends[-1]) if self.cut else len(odd)
        return np.unique(odd[first:last], return_inverse=True)[1].astype(np.int64)


nested = st.builds(
    Nested,
    layers=st.sampled_from([1, 2, 4, 12, 32]),
    micro_batches=st.sampled_from([1, 2, 4]),
    steps=st.integers(5, 24),
    seed=st.integers(0, 10_000),
    odd_share=st.sampled_from([0.0, 0.0, 0.002]),
    evaluations=st.integers(0, 2),
    cut=st.booleans(),
)


def found(program: Nested) -> int | None:
    loop = outermost_loop(program.kinds())
    return loop.rounds if loop else None


@example(Nested(1, 1, 8, seed=6, evaluations=1))  # whose evaluation runs the layers of two steps more
@example(Nested(1, 1, 9, seed=146, evaluations=1))
@given(nested)
def test_the_step_is_found_or_nothing(program: Nested) -> None:
    rounds = found(program)
    assert rounds is None or rounds in program.right


@given(st.integers(0, 10_000), st.randoms())
def test_how_kinds_are_numbered_decides_nothing(seed: int, shuffled: random.Random) -> None:
    """Names are numbered in the order in which a process first met them, in whatever trace that was. Rounds of twelve
    kinds that come once each, and of up to three others between any two."""
    rng = random.Random(seed)
    kinds = np.array([kind for _ in range(6) for once in range(12) for kind in (*[12] * rng.randrange(4), once)])
    number = list(range(13))
    shuffled.shuffle(number)
    gaps_ns = np.array([rng.randrange(5) for _ in kinds])
    one, other = outermost_loop(kinds, gaps_ns), outermost_loop(np.array(number)[kinds], gaps_ns)
    assert (one is None) is (other is None)
    assert one is None or other is None or one.starts.tolist() == other.starts.tolist()


def test_of_a_fixed_set_of_nested_loops_nine_in_ten_are_found() -> None:
    rng = random.Random(7)
    programs = [
        Nested(
            layers=rng.choice([2, 4, 12, 32]),
            micro_batches=rng.choice([1, 2, 4]),
            steps=rng.randint(5, 24),
            seed=rng.randrange(1000),
            odd_share=rng.choice([0.0, 0.001]),
            evaluations=rng.choice([0, 0, 1, 2]),
            cut=rng.random() < 0.5,
        )
        for _ in range(60)
    ]
    right = sum(found(program) in program.right for program in programs)
    assert right >= 0.9 * len(programs)


def test_work_that_does_not_come_back_is_no_loop() -> None:
    rng = random.Random(3)
    assert outermost_loop(np.array([rng.randrange(40) for _ in range(3000)], np.int64)) is None


def test_twelve_layers_within_a_step_are_not_taken_for_steps() -> None:
    embedding, layer, optimizer = [0], [1, 2, 3, 4, 2, 5], [6]
    loop = outermost_loop(np.array((embedding + layer * 12 + optimizer) * 6, np.int64))
    assert loop is not None
    assert loop.starts.tolist() == [0, 74, 148, 222, 296, 370]
    assert loop.home_share == 1.0


def test_rounds_begin_with_the_recording_where_its_first_operation_comes_back_in_place() -> None:
    loop = outermost_loop(np.array([1, 2, 1, 3, 1, 4, 9] * 5, np.int64))
    assert loop is not None
    assert loop.starts.tolist() == [0, 7, 14, 21, 28]


def test_of_a_recording_that_opens_amid_a_round_each_begins_after_the_longest_pause() -> None:
    kinds = np.array([5, 6, *([1, 2, 1, 3, 1, 4, 9] * 5)], np.int64)  # 5 and 6 do not come back
    gaps_ns = np.where(kinds == 3, 900, 10).astype(np.int64)
    loop = outermost_loop(kinds, gaps_ns)
    assert loop is not None
    assert kinds[loop.starts].tolist() == [3] * 5
