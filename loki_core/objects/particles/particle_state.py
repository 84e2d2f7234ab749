"""What Objects of particles share: sorting what has moved, checking it, reading and writing it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import DivergenceError, InputError
from loki_core.kernels.particles.lagrangian_step import first_bad_row

Array = NDArray[Any]


def sort_moved(particles: ParticleSystem) -> None:
    """Sort by Bucket, move particles to their ranks, drop removed ones. Collective.

    Raises:
        DivergenceError: A place is none that can be sorted: not the user's input any more, but a
            state that went bad.
    """
    try:
        particles.rebucketize()
    except InputError as error:
        failure = DivergenceError(str(error))
        failure.together = error.together
        raise failure from error


def kept_count(particles: ParticleSystem) -> int:
    """Local particles that are not masked for removal."""
    kept = particles.kept()
    return particles.count if isinstance(kept, slice) else int(np.count_nonzero(kept))


def implausible_particle(particles: ParticleSystem, maximum_speed: float) -> str | None:
    """What is wrong with the first local particle that is not finite, too fast or too far."""
    kept, reach = particles.kept(), particles.domain.reach
    position, velocity = particles.local("position"), particles.local("velocity")
    if first_bad_row(position, velocity, maximum_speed, reach) < 0:
        return None  # nor among those that are masked for removal
    position, velocity = position[kept], velocity[kept]
    row = int(first_bad_row(position, velocity, maximum_speed, reach))
    if row < 0:
        return None
    return (
        f"particle id {int(particles.local('id')[kept][row])} has position "
        f"{position[row].tolist()} m and velocity {velocity[row].tolist()} m/s: not finite, faster "
        f"than {maximum_speed:g} m/s, or farther than {reach:g} m from the domain's origin"
    )


def world_positions(particles: ParticleSystem) -> Array:
    """Positions [m] of local particles that are kept, in the storage precision if that suffices."""
    position, domain = particles.local("position")[particles.kept()], particles.domain
    return domain.to_world(position) if np.any(domain.origin) else position.copy()


def read_particles(particles: ParticleSystem, channel: str) -> tuple[NDArray[np.int64], Array]:
    """Ids and values of local particles; positions in world space."""
    kept = particles.kept()
    values = particles.local(channel)[kept]
    if channel == "position":
        values = particles.domain.to_world(values)
    return particles.local("id")[kept], values


def write_particles(particles: ParticleSystem, channel: str, values: Array) -> None:
    """Set a channel of all particles, ordered by id; positions in world space. Collective."""
    comm, kept = particles.domain.comm, particles.kept()
    mine = particles.local("id")[kept]
    ids = np.sort(np.concatenate(comm.all_gather(mine)))
    values = np.asarray(values)
    if channel not in particles.channels:
        particles.add_channel(channel, values.dtype, values.shape[1:])
    expected = (len(ids), *particles.channel(channel).shape)
    if values.shape != expected:
        raise InputError(
            f"{particles.name}.{channel}: shape {values.shape} given, {expected} expected"
        )
    chosen = values[np.searchsorted(ids, mine)]
    if channel == "position":
        chosen = particles.domain.to_relative(chosen)
    particles.local(channel)[kept] = chosen
    particles.mark_written(channel)
    if channel == "position":
        particles.rebucketize()
