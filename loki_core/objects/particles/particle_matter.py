"""Particle Matter: what the particles of an Object are: a liquid, or droplets that collide.

They cannot be two things at once. The Behavior in the nearest Group decides, as it does between two
kinds of liquid, so one at the root of a Setup is for all particles that have none of their own.
"""

from __future__ import annotations

from loki_core.behavior import Behavior


class ParticleMatter(Behavior, kind="operator", abstract=True, exclusive=True):
    """Base of the Behaviors that say so."""

    shapes_objects = True
