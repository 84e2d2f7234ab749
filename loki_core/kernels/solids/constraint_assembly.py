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

In compliance mode a = 1 / k takes the place of k, and may be nothing. Then what a multiplier has to
bring about is  G dx - y / s = -T / s  with

    T / s = (C + (tau / h)(C - C0) + a D) / (1 + tau / h + a D'),    1 / s = a / (the same)
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, inlined, kernel, parallel_kernel, prange, strict_kernel

ONE, TWO, FOUR, EIGHT = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(8)


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


@parallel_kernel
def comply(
    value, start, compliance, c_step, relaxation, t_step, memory, limit, l_step, sigma, s_step,
    has_friction, dt, residual, give, tension, slope, friction,
):  # fmt: skip
    """Write T / s and 1 / s [n, m] of elements in compliance mode from their C [n, m].

    Args: compliance 1 / k [n or 1, m], infinite for components without k: those have only friction,
        which is written as tension and slope [n, m]; the others are those of `respond`.
    """
    for n in prange(value.shape[0]):
        for m in range(value.shape[1]):
            a = compliance[n * c_step, m]
            rate = relaxation[n * t_step] / dt
            change = value[n, m] - start[n, m]
            d, s = 0.0, 0.0
            if has_friction == 1:
                d, s, _ = dahl(memory[n, m], change, limit[n * l_step], sigma[n * s_step])
                friction[n, m] = d
            if a < math.inf:
                whole = 1.0 + rate + a * s
                residual[n, m] = (value[n, m] + rate * change + a * d) / whole
                give[n, m] = a / whole
            else:
                residual[n, m] = 0.0
                give[n, m] = math.inf
                tension[n, m] = d
                slope[n, m] = s


@parallel_kernel
def weigh_rows(dofs, gradient, fixed, diagonal, out):
    """Write G D^-1 G^T of each component [n, m], from the diagonal D [size]."""
    for n in prange(dofs.shape[0]):
        for m in range(gradient.shape[1]):
            total = 0.0
            for a in range(dofs.shape[1]):
                i = dofs[n, a]
                if fixed[i] == 0:
                    total += gradient[n, m, a] ** 2 / diagonal[i]
            out[n, m] = total


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


@strict_kernel
def element_roundings(dofs, gradient, tension, slope, sizes, energy):
    """Write |T| d + s d^2 [n] with d = |G| |x|: what a relative error of all x does to energies."""
    epsilon = 2.2e-16
    for n in prange(dofs.shape[0]):
        total = 0.0
        for m in range(tension.shape[1]):
            moved = 0.0
            for a in range(dofs.shape[1]):
                moved += abs(gradient[n, m, a]) * sizes[dofs[n, a]]
            total += abs(tension[n, m]) * moved + epsilon * abs(slope[n, m]) * moved * moved
        energy[n] = total


@inlined
def add_run(n, first, gradient, tension, slope, row, rhs, values):
    """Add an element whose unknowns are a run, none of them prescribed."""
    begin = np.uint64(first)
    if gradient.shape[1] == 3:  # joints of rods, which are most: one pass over the matrix
        g0, g1, g2 = gradient[n, 0], gradient[n, 1], gradient[n, 2]
        for a in range(np.uint64(g0.shape[0])):
            i = begin + a
            rhs[i] -= g0[a] * tension[n, 0] + g1[a] * tension[n, 1] + g2[a] * tension[n, 2]
            s0, s1, s2 = slope[n, 0] * g0[a], slope[n, 1] * g1[a], slope[n, 2] * g2[a]
            at, b = np.uint64(row[i]) + begin, np.uint64(0)
            # Loops of a fixed length become vectors: twice as fast.
            while b + EIGHT <= a + ONE:
                for c in range(EIGHT):
                    values[at + b + c] += s0 * g0[b + c] + s1 * g1[b + c] + s2 * g2[b + c]
                b += EIGHT
            if b + FOUR <= a + ONE:
                for c in range(FOUR):
                    values[at + b + c] += s0 * g0[b + c] + s1 * g1[b + c] + s2 * g2[b + c]
                b += FOUR
            for c in range(b, a + ONE):
                values[at + c] += s0 * g0[c] + s1 * g1[c] + s2 * g2[c]
        return
    for m in range(gradient.shape[1]):
        g, pull, k = gradient[n, m], tension[n, m], slope[n, m]
        for a in range(np.uint64(g.shape[0])):
            rhs[begin + a] -= g[a] * pull
            at = np.uint64(row[begin + a]) + begin
            for b in range(a + ONE):
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
                for a in range(dofs.shape[1]):
                    free = free and dofs[n, a] == first + a and fixed[first + a] == 0
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
def scatter_matrices(elements, dofs, matrices, fixed, row, values):
    """Add element matrices [n, d, d], of which the lower triangle is read, to the skyline."""
    for body in prange(elements.shape[0] - 1):
        for n in range(elements[body], elements[body + 1]):
            for a in range(dofs.shape[1]):
                i = dofs[n, a]
                if fixed[i] == 1:
                    continue
                for b in range(a + 1):
                    j = dofs[n, b]
                    if fixed[j] == 0:
                        values[row[max(i, j)] + min(i, j)] += matrices[n, a, b]


@parallel_kernel
def scatter_rows(elements, dofs, forces, fixed, rhs):
    """Add element forces [n, d] to rhs [size], body by body."""
    for body in prange(elements.shape[0] - 1):
        for n in range(elements[body], elements[body + 1]):
            for a in range(dofs.shape[1]):
                if fixed[dofs[n, a]] == 0:
                    rhs[dofs[n, a]] += forces[n, a]


@kernel
def factor_stiffness(stiffness, lower, diagonal):
    """Factorise k = L D L^T of each element [n, m, m]; returns whether any has a pivot below 0.

    Args: lower [n, m, m] and diagonal [n, m] are written. A pivot that is nothing but rounding is
        0, and so is what is below it.
    """
    bad = False
    for n in range(stiffness.shape[0]):
        for j in range(stiffness.shape[1]):
            pivot = stiffness[n, j, j]
            for c in range(j):
                pivot -= lower[n, j, c] ** 2 * diagonal[n, c]
            if abs(pivot) <= 1e-14 * abs(stiffness[n, j, j]):
                pivot = 0.0
            bad = bad or not pivot >= 0.0
            diagonal[n, j] = pivot
            for i in range(stiffness.shape[1]):
                entry = stiffness[n, i, j]
                for c in range(j):
                    entry -= lower[n, i, c] * lower[n, j, c] * diagonal[n, c]
                lower[n, i, j] = entry / pivot if i > j and pivot > 0.0 else 0.0
            lower[n, j, j] = 1.0
    return bad


@parallel_kernel
def mix_components(lower, value):
    """Replace C [n, m] by L^T C, with unit lower triangles L [n or 1, m, m]."""
    step = 0 if lower.shape[0] == 1 else 1
    for n in prange(value.shape[0]):
        for j in range(value.shape[1]):  # what is above is not needed again
            for i in range(j + 1, value.shape[1]):
                value[n, j] += lower[n * step, i, j] * value[n, i]


@parallel_kernel
def mix_gradients(lower, gradient):
    """Replace dC/dx [n, m, d] by L^T dC/dx."""
    step = 0 if lower.shape[0] == 1 else 1
    for n in prange(gradient.shape[0]):
        for j in range(gradient.shape[1]):
            for i in range(j + 1, gradient.shape[1]):
                for a in range(gradient.shape[2]):
                    gradient[n, j, a] += lower[n * step, i, j] * gradient[n, i, a]


@parallel_kernel
def unmix_components(lower, value):
    """Undo `mix_components`."""
    step = 0 if lower.shape[0] == 1 else 1
    for n in prange(value.shape[0]):
        for back in range(value.shape[1]):
            j = value.shape[1] - 1 - back
            for i in range(j + 1, value.shape[1]):
                value[n, j] -= lower[n * step, i, j] * value[n, i]


@inlined
def add_length(x, y, t0, t1, t2, pull, along, across, row, rhs, values):
    """Add a length between points whose unknowns begin at x < y, none of them prescribed."""
    e00, e11, e22 = along * t0 * t0 + across, along * t1 * t1 + across, along * t2 * t2 + across
    e10, e20, e21 = along * t1 * t0, along * t2 * t0, along * t2 * t1
    rhs[x] += t0 * pull
    rhs[x + ONE] += t1 * pull
    rhs[x + TWO] += t2 * pull
    rhs[y] -= t0 * pull
    rhs[y + ONE] -= t1 * pull
    rhs[y + TWO] -= t2 * pull
    at = np.uint64(row[x]) + x
    values[at] += e00
    at = np.uint64(row[x + ONE]) + x
    values[at] += e10
    values[at + ONE] += e11
    at = np.uint64(row[x + TWO]) + x
    values[at] += e20
    values[at + ONE] += e21
    values[at + TWO] += e22
    at = np.uint64(row[y])
    values[at + x] -= e00
    values[at + x + ONE] -= e10
    values[at + x + TWO] -= e20
    values[at + y] += e00
    at = np.uint64(row[y + ONE])
    values[at + x] -= e10
    values[at + x + ONE] -= e11
    values[at + x + TWO] -= e21
    values[at + y] += e10
    values[at + y + ONE] += e11
    at = np.uint64(row[y + TWO])
    values[at + x] -= e20
    values[at + x + ONE] -= e21
    values[at + x + TWO] -= e22
    values[at + y] += e20
    values[at + y + ONE] += e21
    values[at + y + TWO] += e22


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
            held = y < x
            for a in range(3):
                held = held or fixed[x + a] == 1 or fixed[y + a] == 1
            if not held:
                add_length(
                    np.uint64(x), np.uint64(y), gradient[n, 0, 3], gradient[n, 0, 4],
                    gradient[n, 0, 5], tension[n, 0], along, across, row, rhs, values,
                )  # fmt: skip
                continue
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
