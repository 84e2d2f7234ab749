"""Operator: an Action that is neither a Force nor a Constraint.

It writes its own Tasks, and conserves mass and momentum itself where they should be conserved.
"""

from __future__ import annotations

from loki_core.pipeline.action import Action, Target


class Operator(Action[Target]):
    """Base of all Operators."""
