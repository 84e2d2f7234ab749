"""From constraint functions to forces and matrices: E = C^T S C of the paper, 6.3, for any C.

With k = 2 S, relaxation time tau, step h, and C0 the value at the start of the step:

    tension   T = k C + (tau k / h)(C - C0) + D(C)                          (of each component)
    slope     s = dT/dC = k (1 + tau / h) + D'(C)
    force     f = -G^T T,      stiffness  K = G^T s G  (+ T . d2C/dx2, made semi-definite)

Rayleigh damping has the potential tau Cdot^T S Cdot with Cdot = (C - C0) / h, so that a rigid
motion of any size is not damped. D is Dahl's friction (Miguel et al. 2013): dD/dC = sigma (1 - D
sign(dC) / F), whose exact solution over a step that moves one way is

    D1 = F s + (D0 - F s) exp(-sigma |dC| / F),     s = sign(dC)

so it never overshoots the limit F and does not depend on the speed. Its work over the step is
F |dC| + s (D0 - F s)(F / sigma)(1 - exp(-sigma |dC| / F)).
"""

from __future__ import annotations

import math

from loki_core.kernels.jit import device, inlined, parallel_kernel, prange, strict_kernel


@device
def dahl(d0, change, limit, sigma):
    """Friction after a change of C, its slope, and its work."""
    if limit <= 0.0 or sigma <= 0.0:
        return 0.0, 0.0, 0.0
    side = 1.0 if change >= 0.0 else -1.0
    decay = math.exp(-sigma * abs(change) / limit)
    friction = limit * side + (d0 - limit * side) * decay
    slope = sigma * (1.0 - d0 * side / limit) * decay
    work = limit * abs(change) + side * (d0 - limit * side) * (limit / sigma) * (1.0 - decay)
    return friction, slope, work


@parallel_kernel
def respond(
    value, start, stiffness, k_step, relaxation, t_step, memory, limit, l_step, sigma, s_step,
    has_friction, dt, tension, slope, friction,
):  # fmt: skip
    """Write tension and slope [n, m] of elements from their C [n, m].

    Args: stiffness k = 2 S [n or 1, m]; relaxation s, limit and sigma of Dahl's friction [n or 1];
        memory [n, m]: friction at the start of the step; friction [n, m]: at its end.
    """
    for n in prange(value.shape[0]):
        for m in range(value.shape[1]):
            k = stiffness[n * k_step, m]
            damping = k * relaxation[n * t_step] / dt
            change = value[n, m] - start[n, m]
            tension[n, m] = k * value[n, m] + damping * change
            slope[n, m] = k + damping
            if has_friction == 1:
                d, s, _ = dahl(memory[n, m], change, limit[n * l_step], sigma[n * s_step])
                friction[n, m] = d
                tension[n, m] += d
                slope[n, m] += s


@strict_kernel
def element_energies(
    value, start, stiffness, k_step, relaxation, t_step, memory, limit, l_step, sigma, s_step,
    has_friction, dt, energy,
):  # fmt: skip
    """Write what each element stores and will dissipate in the step [n], J."""
    for n in prange(value.shape[0]):
        total = 0.0
        for m in range(value.shape[1]):
            k = stiffness[n * k_step, m]
            change = value[n, m] - start[n, m]
            total += 0.5 * k * value[n, m] ** 2
            total += 0.5 * k * relaxation[n * t_step] / dt * change * change
            if has_friction == 1:
                _, _, work = dahl(memory[n, m], change, limit[n * l_step], sigma[n * s_step])
                total += work
        energy[n] = total


@inlined
def add_run(n, first, gradient, tension, slope, row, rhs, values):
    """Add an element whose unknowns are a run, none of them prescribed."""
    if gradient.shape[1] == 3:  # joints of rods, which are most: one pass over the matrix
        g0, g1, g2 = gradient[n, 0], gradient[n, 1], gradient[n, 2]
        for a in range(g0.shape[0]):
            rhs[first + a] -= g0[a] * tension[n, 0] + g1[a] * tension[n, 1] + g2[a] * tension[n, 2]
            s0, s1, s2 = slope[n, 0] * g0[a], slope[n, 1] * g1[a], slope[n, 2] * g2[a]
            entries = values[row[first + a] + first : row[first + a] + first + a + 1]
            for b in range(entries.shape[0]):
                entries[b] += s0 * g0[b] + s1 * g1[b] + s2 * g2[b]
        return
    for m in range(gradient.shape[1]):
        g, pull, k = gradient[n, m], tension[n, m], slope[n, m]
        for a in range(g.shape[0]):
            rhs[first + a] -= g[a] * pull
            at = row[first + a] + first
            for b in range(a + 1):
                values[at + b] += k * g[a] * g[b]


@inlined
def add_any(n, dofs, gradient, tension, slope, fixed, row, rhs, values):
    """Add an element with any unknowns."""
    for a in range(dofs.shape[1]):
        i = dofs[n, a]
        if fixed[i] == 1:
            continue
        force = 0.0
        for m in range(tension.shape[1]):
            force -= gradient[n, m, a] * tension[n, m]
        rhs[i] += force
        for b in range(a + 1):
            j = dofs[n, b]
            if fixed[j] == 1:
                continue
            entry = 0.0
            for m in range(tension.shape[1]):
                entry += slope[n, m] * gradient[n, m, a] * gradient[n, m, b]
            values[row[max(i, j)] + min(i, j)] += entry


@parallel_kernel
def scatter_elements(elements, dofs, gradient, tension, slope, fixed, row, rhs, values):
    """Add forces to rhs [size] and stiffness to the skyline matrix, body by body.

    Args: elements int64 [bodies + 1], runs of elements inside each body; dofs int32 [n, d];
        gradient [n, m, d]; fixed uint8 [size]; row int64 [size] of the skyline.
    """
    for body in prange(elements.shape[0] - 1):
        for n in range(elements[body], elements[body + 1]):
            first = dofs[n, 0]
            free = dofs[n, dofs.shape[1] - 1] - first == dofs.shape[1] - 1
            if free:  # unknowns that follow one another, as those of a joint
                for i in range(first, first + dofs.shape[1]):
                    free = free and fixed[i] == 0
            if free:
                add_run(n, first, gradient, tension, slope, row, rhs, values)
            else:
                add_any(n, dofs, gradient, tension, slope, fixed, row, rhs, values)


@parallel_kernel
def scatter_forces(elements, dofs, gradient, tension, fixed, rhs):
    """Add forces alone to rhs [size], body by body."""
    for body in prange(elements.shape[0] - 1):
        for n in range(elements[body], elements[body + 1]):
            for a in range(dofs.shape[1]):
                i = dofs[n, a]
                if fixed[i] == 0:
                    force = 0.0
                    for m in range(tension.shape[1]):
                        force -= gradient[n, m, a] * tension[n, m]
                    rhs[i] += force


@parallel_kernel
def scatter_matrices(elements, dofs, matrices, tension, fixed, row, values):
    """Add tension [n, 1] times d2C/dx2 [n, d, d] where that is semi-definite: under tension."""
    for body in prange(elements.shape[0] - 1):
        for n in range(elements[body], elements[body + 1]):
            weight = tension[n, 0]
            if weight <= 0.0:
                continue
            for a in range(dofs.shape[1]):
                i = dofs[n, a]
                if fixed[i] == 1:
                    continue
                for b in range(a + 1):
                    j = dofs[n, b]
                    if fixed[j] == 0:
                        values[row[max(i, j)] + min(i, j)] += weight * matrices[n, a, b]


@parallel_kernel
def scatter_lengths(
    elements, dofs, gradient, tension, slope, solved, length, fixed, row, rhs, values
):
    """Add elements of a length between two points, with its second derivative where it is taut.

    With t = gradient of the second point and c = max(solved tension, 0) / length the matrix of the
    difference of the points is  slope t t^T + c (I - t t^T).
    """
    for body in prange(elements.shape[0] - 1):
        for n in range(elements[body], elements[body + 1]):
            x, y = dofs[n, 0], dofs[n, 3]
            across = max(solved[n, 0], 0.0) / max(length[n], 1e-300)
            along = slope[n, 0] - across
            for a in range(3):
                i, j = x + a, y + a
                t = gradient[n, 0, 3 + a]
                if fixed[i] == 0:
                    rhs[i] += t * tension[n, 0]
                if fixed[j] == 0:
                    rhs[j] -= t * tension[n, 0]
                for b in range(3):
                    entry = along * t * gradient[n, 0, 3 + b] + (across if a == b else 0.0)
                    if b <= a:
                        if fixed[i] == 0 and fixed[x + b] == 0:
                            values[row[i] + x + b] += entry
                        if fixed[j] == 0 and fixed[y + b] == 0:
                            values[row[j] + y + b] += entry
                    if fixed[j] == 0 and fixed[x + b] == 0:
                        values[row[max(j, x + b)] + min(j, x + b)] -= entry


@parallel_kernel
def scatter_diagonals(elements, dofs, columns, diagonal, fixed, row, values):
    """Add what is positive of diagonal [n, c] to the matrix, for these columns of dofs [c]."""
    for body in prange(elements.shape[0] - 1):
        for n in range(elements[body], elements[body + 1]):
            for c in range(columns.shape[0]):
                i = dofs[n, columns[c]]
                if diagonal[n, c] > 0.0 and fixed[i] == 0:
                    values[row[i] + i] += diagonal[n, c]


@parallel_kernel
def predict_tension(dofs, gradient, tension, slope, change, predicted):
    """Write T + s G dx [n, m], the tension that a correction [size] balanced."""
    for n in prange(dofs.shape[0]):
        for m in range(tension.shape[1]):
            moved = 0.0
            for a in range(dofs.shape[1]):
                moved += gradient[n, m, a] * change[dofs[n, a]]
            predicted[n, m] = tension[n, m] + slope[n, m] * moved


@parallel_kernel
def widen_envelope(elements, dofs, first):
    """Let rows reach every column that an element of the body couples them to."""
    for body in prange(elements.shape[0] - 1):
        for n in range(elements[body], elements[body + 1]):
            for a in range(dofs.shape[1]):
                for b in range(a):
                    i = max(dofs[n, a], dofs[n, b])
                    first[i] = min(first[i], min(dofs[n, a], dofs[n, b]))


@parallel_kernel
def add_particles(
    particle_dof, offset, mass, velocity, start_velocity, force, jacobian, has_jacobian, dt, fixed,
    row, rhs, values,
):  # fmt: skip
    """Add inertia and point forces of particles: r += f - m (v - v0) / h, A += m / h^2 - df/dx.

    Args: particle_dof int64 [n], first of a particle's three DOFs, plus offset; mass kg [n]; force
        [n, 3]; jacobian [n, 3, 3], or anything without; the symmetric part of it is used.
    """
    for n in prange(particle_dof.shape[0]):
        first = particle_dof[n] + offset
        for a in range(3):
            i = first + a
            if fixed[i] == 1:
                continue
            change = velocity[n, a] - start_velocity[n, a]
            rhs[i] += force[n, a] - mass[n] * change / dt
            values[row[i] + i] += mass[n] / (dt * dt)
            if has_jacobian == 1:
                for b in range(a + 1):
                    if fixed[first + b] == 0:
                        entry = 0.5 * (jacobian[n, a, b] + jacobian[n, b, a])
                        values[row[i] + first + b] -= entry


@parallel_kernel
def close_fixed(fixed, row, rhs, values):
    """Give prescribed unknowns the equation 1 * 0 = 0; nothing else touches their rows."""
    for i in prange(fixed.shape[0]):
        if fixed[i] == 1:
            rhs[i] = 0.0
            values[row[i] + i] = 1.0
