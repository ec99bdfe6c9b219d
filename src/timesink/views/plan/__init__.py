"""The plan of a trace: what to change, in which order, and where it ends."""

from __future__ import annotations

from timesink.diagnosis.plan.ladder import Plan, Rung, plan

__all__ = ["Plan", "Rung", "plan"]
