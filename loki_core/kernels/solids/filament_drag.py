"""Drag of a fluid on points, as a linear law with a coefficient of the present slip.

    f = K (u - v),    K = K_n I + (K_t - K_n) t t^T,    w = u - v

    sphere      K_n = K_t = the laws of the Fluid Drag Force
    filament    a piece of length l and diameter d along the unit vector t:
                K_n = 1/2 rho C_n d l |w_n|,       K_t = 1/2 rho C_t pi d l |w_t|
    Reynolds    C_n = 1 + 10 Re_n^(-2/3)  (White, Viscous Fluid Flow, for cylinders, Re < 2e5) with
                Re_n = rho |w_n| d / mu, kept above 0.01;  K_t = K_n / 2, as for slender bodies in
                creeping flow (Batchelor 1970)

K is frozen during a Newton iteration, so that backward Euler solves the law exactly: with a fluid
of fixed velocity the slip falls by the factor 1 / (1 + K h / m).
"""

from __future__ import annotations

import math

from loki_core.kernels.jit import device, parallel_kernel, prange

LOWEST_REYNOLDS = 0.01


@device
def sphere_coefficient(law, speed, radius, coefficient, density, viscosity):
    """K of a sphere: law 0 linear, 1 quadratic, 2 Schiller & Naumann."""
    if law == 0:
        return coefficient
    if law == 1:
        return 0.5 * density * coefficient * math.pi * radius * radius * speed
    stokes = 6.0 * math.pi * viscosity * radius
    reynolds = 2.0 * radius * speed * density / viscosity
    if reynolds > 1000.0:
        return 0.5 * density * 0.44 * math.pi * radius * radius * speed
    return stokes * (1.0 + 0.15 * reynolds**0.687)


@device
def filament_coefficients(law, across, along, radius, length, normal, tangential, density, mu):
    """(K_n, K_t) of a piece of filament for the slip across and along it [m/s]."""
    if law == 0:
        return normal, tangential
    diameter = 2.0 * radius
    if law == 1:
        k_n = 0.5 * density * normal * diameter * length * across
        return k_n, 0.5 * density * tangential * math.pi * diameter * length * along
    reynolds = max(density * across * diameter / mu, LOWEST_REYNOLDS)
    k_n = 0.5 * mu * length * reynolds * (1.0 + 10.0 * reynolds ** (-2.0 / 3.0))
    return k_n, 0.5 * k_n


@parallel_kernel
def drag_coefficients(
    velocity, flow, radius, tangent, length, is_filament, law, normal, n_step, tangential, t_step,
    density, viscosity, coefficient,
):  # fmt: skip
    """Write K_n and K_t [n, 2] of every point.

    Args: velocity, flow [n, 3]; radius [n]; tangent [n, 3] and length [n] of filaments; normal,
        tangential [n or 1]: coefficients of the law, kg/s for the linear one.
    """
    for p in prange(velocity.shape[0]):
        wx = flow[p, 0] - velocity[p, 0]
        wy = flow[p, 1] - velocity[p, 1]
        wz = flow[p, 2] - velocity[p, 2]
        square = wx * wx + wy * wy + wz * wz
        if is_filament == 1:
            along = wx * tangent[p, 0] + wy * tangent[p, 1] + wz * tangent[p, 2]
            across = math.sqrt(max(square - along * along, 0.0))
            k_n, k_t = filament_coefficients(
                law, across, abs(along), radius[p], length[p], normal[p * n_step],
                tangential[p * t_step], density, viscosity,
            )  # fmt: skip
        else:
            k_n = sphere_coefficient(
                law, math.sqrt(square), radius[p], normal[p * n_step], density, viscosity
            )
            k_t = k_n
        coefficient[p, 0] = k_n
        coefficient[p, 1] = k_t


@parallel_kernel
def drag_points(velocity, flow, tangent, is_filament, coefficient, dt, force, jacobian):
    """Add K (u - v) to force [n, 3], and -K / dt to jacobian [n, 3, 3]."""
    for p in prange(velocity.shape[0]):
        k_n, k_t = coefficient[p, 0], coefficient[p, 1]
        along = 0.0
        if is_filament == 1:
            for a in range(3):
                along += (flow[p, a] - velocity[p, a]) * tangent[p, a]
        for a in range(3):
            force[p, a] += k_n * (flow[p, a] - velocity[p, a])
            jacobian[p, a, a] -= k_n / dt
            if is_filament == 1:
                force[p, a] += (k_t - k_n) * along * tangent[p, a]
                for b in range(3):
                    jacobian[p, a, b] -= (k_t - k_n) * tangent[p, a] * tangent[p, b] / dt


@parallel_kernel
def drag_on_fluid(
    velocity, flow, tangent, is_filament, coefficient, mass, held, dt, impulse, pull, grip
):
    """What points do to the fluid: pull [n, 3] N at the present flow, grip [n, 3] kg/s.

    pull = -K (u - v), the reaction to what the points felt in their solve; grip is the diagonal of
    the Schur complement K' = K (I + K h / m)^-1, by which the pull falls when the fluid gives way:
    a point that is held (1) does not give way itself. impulse [n, 3] N s: what the points got.
    """
    for p in prange(velocity.shape[0]):
        k_n, k_t = coefficient[p, 0], coefficient[p, 1]
        s_n, s_t = k_n, k_t
        if held[p] == 0:
            s_n = k_n / (1.0 + k_n * dt / mass[p])
            s_t = k_t / (1.0 + k_t * dt / mass[p])
        along = 0.0
        if is_filament == 1:
            for a in range(3):
                along += (flow[p, a] - velocity[p, a]) * tangent[p, a]
        for a in range(3):
            felt = k_n * (flow[p, a] - velocity[p, a])
            grip[p, a] = s_n
            if is_filament == 1:
                felt += (k_t - k_n) * along * tangent[p, a]
                grip[p, a] += (s_t - s_n) * tangent[p, a] * tangent[p, a]
            pull[p, a] = -felt
            impulse[p, a] = felt * dt
