"""The terms of one moment: every category split into what it is made of, with formulas; they sum to the moment."""

from __future__ import annotations

from collections.abc import Iterable

from timesink.memory_plan.blocks import block, loss, shapes_of
from timesink.memory_plan.config import Configuration
from timesink.memory_plan.serving import serving_terms
from timesink.memory_plan.states import states, step_temporaries
from timesink.memory_plan.tape import Tape
from timesink.memory_plan.terms import EAGER, KORTHIKANTI, PYTORCH, Part, Term
from timesink.memory_plan.timeline import Moment, units

_MOST_NAMED = 12


def terms_of(config: Configuration, moment: Moment) -> tuple[Term, ...]:
    """Terms in the order of the ledger; those of one category sum to the moment's bytes of it."""
    known = (*states(config).terms,) if config.train else serving_terms(config)
    found: list[Term] = []
    for part in Part:
        size = moment.parts.get(part, 0)
        if size:
            found += _of_part(config, moment, part, size, known)
    return tuple(found)


def _of_part(config: Configuration, moment: Moment, part: Part, size: int, known: Iterable[Term]) -> list[Term]:
    fixed = [term for term in known if term.part is part]
    if fixed and sum(term.size_bytes for term in fixed) == size:
        return fixed
    if part is Part.ACTIVATIONS:
        return _activations(config, size)
    if part is Part.COMMUNICATION:
        return _communication(config, size, fixed)
    return [_temporaries(config, moment, size) if part is Part.TEMPORARIES else _plain(config, part, size)]


def _plain(config: Configuration, part: Part, size: int) -> Term:
    """Categories of one term each."""
    match part:
        case Part.WORKSPACES:
            each = config.gpu.workspace_bytes
            formula = f"{size // each} threads x {each:,} B"
            return Term(part, "cuBLAS workspaces", size, formula, "at::cuda::getChosenWorkspaceSize")
        case Part.CAST_WEIGHTS:
            formula = "2 B per weight of a linear not yet gone through"
            return Term(part, "autocast's copies of weights", size, formula, PYTORCH)
        case Part.INPUTS:
            images = "batch x 3 x image x image x 4 B, and 2 B for autocast's cast"
            formula = images if config.model.kind == "vision" else "batch x sequence x (8 B token + 8 B target)"
            return Term(part, "the batch", size, formula, "configuration")
        case Part.GRADIENTS:
            number = states(config).grad_number
            formula = f"{number} B x {size // number:,} parameters gone through"
            return Term(part, "gradients so far", size, formula, PYTORCH)
        case _:
            return Term(part, part.value, size, "as configured", "configuration")


def _activations(config: Configuration, size: int) -> list[Term]:
    """Blocks by what one keeps, then the loss's own."""
    train, u = config.training, units(config)
    shapes = shapes_of(config.model, train, config.parallel)
    selective = train.recompute == "selective"
    blocks = min(size // u.kept_per_block, u.in_flight * u.layers)
    if train.recompute == "full":
        each, source = "its input", KORTHIKANTI
    else:
        each, source = _listed(block(config.model, shapes, selective), shapes.tokens), EAGER
    formula = f"{blocks} blocks x {shapes.tokens:,} tokens x {u.kept_per_block / shapes.tokens:,.0f} B ({each})"
    found = [Term(Part.ACTIVATIONS, "kept by blocks", blocks * u.kept_per_block, formula, source)] if blocks else []
    rest = size - blocks * u.kept_per_block
    if rest:
        tape = loss(config.model, shapes, train.chunks if train.loss == "chunked" else 1)
        formula = f"{shapes.tokens:,} tokens x {rest / shapes.tokens:,.0f} B ({_listed(tape, shapes.tokens)})"
        found.append(Term(Part.ACTIVATIONS, "kept by last norm, head and loss", rest, formula, EAGER))
    return found


def _listed(tape: Tape, tokens: int) -> str:
    saved = tape.saved()
    named = [f"{one.name} {one.size_bytes / tokens:,.0f}" for one in saved[:_MOST_NAMED]]
    left = sum(one.size_bytes for one in saved[_MOST_NAMED:])
    return " + ".join([*named, *([f"others {left / tokens:,.0f}"] if left else [])])


def _temporaries(config: Configuration, moment: Moment, size: int) -> Term:
    if moment.phase == "optimizer":
        return step_temporaries(config, states(config))
    if config.train and moment.phase == "backward" and moment.what == "loss":
        formula = "gradient of the log-probabilities and gradient of the logits, 4 B each per token and word"
    elif config.train and config.training.recompute == "full" and moment.phase == "backward":
        formula = "one block run again, its activations and its gradients"
    else:
        formula = f"results and gradients alive at once in {moment.what}, {moment.phase}"
    return Term(Part.TEMPORARIES, f"{moment.what} ({moment.phase})", size, formula, EAGER)


def _communication(config: Configuration, size: int, fixed: list[Term]) -> list[Term]:
    rest = size - sum(term.size_bytes for term in fixed)
    formula = "whole weights of the units at work, the next one's, and reduce-scatter inputs"
    gathered = Term(Part.COMMUNICATION, "gathered weights and gradients", rest, formula, "FSDP2 (fully_shard) source")
    return [*fixed, *([gathered] if rest else [])]
