"""Particles that meet a Collider on their ways: they bounce, slide and stick.

A particle goes from x0 to x1 in a step, straight, and Forces change its velocity by dv. Where its
way first comes within its radius of the surface, with a part p of the step left, it is as fast as
w = v1 - p dv, seen from the surface: with n the normal,

    impact      a = -w . n,   J = (1 + e) a,   w <- w + J n,   v1 = w + p dv
    contact     a = -v1 . n,  J = a,           v1 <- v1 + J n       where a is no more than Forces
                                                                    bring in a step or two
    friction    slide <- slide - min(|slide|, mu J) slide / |slide|

J is the impulse over the mass, and friction is Coulomb's law for it. What is left of the way goes
on with the new velocity, and may meet the surface again. A thing at rest gains g dt in every step,
and loses it to the contact: so it slides down an incline with g (sin - mu cos), or not at all.
"""

from __future__ import annotations

import math

from loki_core.kernels.jit import parallel_kernel, prange
from loki_core.kernels.particles.particle_walls import FLAT, distance_at, first_meeting

#: Times that one particle meets one Collider in a step.
MOST_MEETINGS = 16
#: Speed of an impact over that which Forces bring in a step, up to which nothing bounces.
SLOW = 2.0


@parallel_kernel
def follow_ways(
    table_keys, table_values, distance, voxel, near, gap, restitution, friction, start, drift, gain,
    dt, goes_on, position, velocity,
):  # fmt: skip
    """Let places [m] meet a field's surface on their ways, in position and velocity [places, 3].

    Args: gap [m] m, restitution e [m], friction mu [m]; start [m, 3] m; drift [m, 3] m, by which
    the surface moves in the step; gain [m, 3] m/s, dv; goes_on, 1 where the rest of a way goes on
    after a meeting, 0 where it ends there.
    """
    for n in prange(near.shape[0]):
        p = near[n]
        ux, uy, uz = drift[n, 0] / dt, drift[n, 1] / dt, drift[n, 2] / dt
        ax, ay, az = start[n, 0] + drift[n, 0], start[n, 1] + drift[n, 1], start[n, 2] + drift[n, 2]
        bx, by, bz = position[p, 0] + 0.0, position[p, 1] + 0.0, position[p, 2] + 0.0
        vx, vy, vz = velocity[p, 0] - ux, velocity[p, 1] - uy, velocity[p, 2] - uz
        left = 1.0
        met = False
        for meeting in range(MOST_MEETINGS):
            wx, wy, wz = bx - ax, by - ay, bz - az
            length = math.sqrt(wx * wx + wy * wy + wz * wz)
            if not length > 0.0:
                break
            wx, wy, wz = wx / length, wy / length, wz / length
            seen, gone, nx, ny, nz = first_meeting(
                table_keys, table_values, distance, voxel, ax, ay, az, wx, wy, wz, length, gap[n]
            )
            if seen < 0.0:
                break
            met = True
            left *= max(1.0 - gone / length, 0.0)
            gx, gy, gz = left * gain[n, 0], left * gain[n, 1], left * gain[n, 2]
            approach = -((vx - gx) * nx + (vy - gy) * ny + (vz - gz) * nz)
            brought = -(gain[n, 0] * nx + gain[n, 1] * ny + gain[n, 2] * nz)
            push = (1.0 + restitution[n]) * approach
            if restitution[n] == 0.0 or approach <= SLOW * max(brought, 0.0):
                gx, gy, gz = 0.0, 0.0, 0.0  # a contact: of what Forces bring, too
                push = max(-(vx * nx + vy * ny + vz * nz), 0.0)
            sx, sy, sz = vx - gx, vy - gy, vz - gz
            along = sx * nx + sy * ny + sz * nz
            sx, sy, sz = sx - along * nx, sy - along * ny, sz - along * nz
            slide = math.sqrt(sx * sx + sy * sy + sz * sz)
            kept = max(1.0 - friction[n] * push / slide, 0.0) if slide > 0.0 else 0.0
            vx = (along + push) * nx + kept * sx + gx
            vy = (along + push) * ny + kept * sy + gy
            vz = (along + push) * nz + kept * sz + gz
            ax, ay, az = ax + gone * wx, ay + gone * wy, az + gone * wz
            # What meets it all the time, as in a corner, ends there: the rest is not followed.
            rest = goes_on * left * dt if meeting + 1 < MOST_MEETINGS else 0.0
            bx, by, bz = ax + rest * vx, ay + rest * vy, az + rest * vz
        s, gx, gy, gz = distance_at(table_keys, table_values, distance, voxel, bx, by, bz)
        steepness = math.sqrt(gx * gx + gy * gy + gz * gz)
        if s < gap[n] and steepness > FLAT:  # what a bent surface, or its own motion, has covered
            met = True
            push = (gap[n] - s) / steepness
            bx, by, bz = bx + push * gx, by + push * gy, bz + push * gz
        if met:
            position[p, 0], position[p, 1], position[p, 2] = bx, by, bz
            velocity[p, 0], velocity[p, 1], velocity[p, 2] = vx + ux, vy + uy, vz + uz
