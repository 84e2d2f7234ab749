"""Coarse Pressure: the energy of slow multipliers, and deep water."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.kernels.particles.smoothing import prototype
from loki_core.objects.particles.coarse_pressure import CELL, CoarsePressure
from tests.particle_fluids import G, block, fluid, radius_of, read

D, SUPPORT = 0.1, 2.0
LATTICE = prototype(SUPPORT)


def displacements(x, multiplier, period=None):
    """sum_j V_j (lambda_i + lambda_j) grad W_ij, by brute force, of particles that fill D^3."""
    h = SUPPORT * D
    away = x[:, None] - x[None]
    if period is not None:
        away -= period * np.round(away / period)
    q = np.linalg.norm(away, axis=-1) / h
    slope = -20.0 * LATTICE.norm / h**5 * np.maximum(1.0 - q, 0.0) ** 3
    return D**3 * np.einsum("ij,ijk->ik", (multiplier[:, None] + multiplier) * slope, away)


def coarse(x, domain=None, period=None):
    """The cells around particles that are all under pressure."""
    packed = np.column_stack((x, np.full(len(x), D**3)))
    active, density = np.ones(len(x)), np.full(len(x), 1.0 if period else 0.8)
    return packed, CoarsePressure(
        domain or GridDomain(1.0), packed=packed, own=np.arange(len(x), dtype=np.int32),
        weight=np.ones(1), active=active, moment=LATTICE.moment, spacing=D, density=density,
        hold=np.zeros(len(x)),
        push=np.ascontiguousarray(displacements(x, active, period).T),
    )  # fmt: skip


def nodes_of(cells, x):
    """Coordinates of the corners, by what they give a linear field."""
    places = np.zeros((cells.nodes, 3))
    low = np.floor(x[cells.places[cells.first[:-1]]] / (CELL * D))
    for corner in range(8):
        offset = np.array([corner >> 2, (corner >> 1) & 1, corner & 1])
        places[cells.corners[:, corner]] = (low + offset) * CELL * D
    return places


@pytest.mark.parametrize("field", ["constant", "linear", "wave"])
def test_the_energy_is_that_of_the_displacements(field):
    """<lambda, A lambda> = sum V |y|^2, of a lattice with free surfaces all around."""
    x = block(12, 14, 10, spacing=D, corner=(0.03, -0.02, 0.01))
    _, cells = coarse(x)
    places = nodes_of(cells, x)
    give = {
        "constant": lambda y: np.ones(len(y)),
        "linear": lambda y: 1.0 + y[:, 1],
        "wave": lambda y: np.cos(1.5 * y[:, 1]) + 0.5 * np.sin(2.0 * y[:, 0]),
    }[field]
    values = give(places)
    found = np.einsum("nc,ncd,nd->", values[cells.corners], cells.matrix, values[cells.corners])
    at = trilinear(cells, x, values)
    expected = D**3 * np.sum(displacements(x, at) ** 2)
    assert found == pytest.approx(expected, rel=0.08)


def trilinear(cells, x, values):
    """The field at the particles, or several: values [nodes, ...]."""
    found = np.empty((len(x), *values.shape[1:]))
    place = x / (CELL * D)
    inside = place - np.floor(place)
    number = np.repeat(np.arange(len(cells.corners)), np.diff(cells.first))
    for p, cell in zip(cells.places, number, strict=True):
        share = [
            np.prod([f if bit else 1.0 - f for f, bit in zip(inside[p], bits, strict=True)])
            for bits in ((c >> 2 & 1, c >> 1 & 1, c & 1) for c in range(8))
        ]
        found[p] = np.dot(share, values[cells.corners[cell]])
    return found


def test_a_correction_answers_a_slow_error():
    """What it adds changes densities by minus the error, as far as the cells can see."""
    x = block(12, 20, 12, spacing=D)
    packed, cells = coarse(x)
    error = 0.01 * (1.0 + np.sin(np.pi * x[:, 1] / x[:, 1].max()))
    multiplier = np.empty(len(x))
    cells.correct(packed, 1.0 + error, np.ones(1), 1.0, np.zeros(len(x)), multiplier)
    assert multiplier.max() < 0.0  # nothing was cut off
    shift, h = displacements(x, multiplier), SUPPORT * D
    away = x[:, None] - x[None]
    q = np.linalg.norm(away, axis=-1) / h
    slope = -20.0 * LATTICE.norm / h**5 * np.maximum(1.0 - q, 0.0) ** 3
    change = D**3 * np.einsum("ij,ijk,ijk->i", slope, away, shift[:, None] - shift[None])
    shares = trilinear(cells, x, np.eye(cells.nodes)).T
    seen = [shares @ values for values in (error, error + change)]
    assert np.linalg.norm(seen[1]) < 0.3 * np.linalg.norm(seen[0])  # surfaces are rough


def test_cells_fit_into_a_periodic_box():
    """Across the border the field goes on: a constant has no energy there."""
    sides = (BoundaryCondition("periodic"),) * 6
    edge = 10 * D
    domain = GridDomain(0.5, lower=(0.0,) * 3, upper=(edge,) * 3, boundaries=sides)
    x = block(10, 10, 10, spacing=D)
    _, cells = coarse(x, domain, edge)
    assert cells.nodes == len(cells.corners)  # as many corners as cells
    scale = np.abs(cells.matrix).sum()
    ones = np.ones(8)
    assert abs(np.einsum("c,ncd,d->", ones, cells.matrix, ones)) < 1e-9 * scale


def test_particles_that_leave_their_cell_stay_at_its_side():
    """A layer that crosses a border by a hair is answered as before."""
    x = block(8, 16, 8, spacing=D, corner=(-0.5 * D,) * 3)
    x[:, 1] -= 1e-9  # every fourth layer is just below a border
    packed, cells = coarse(x)
    error = 1.0 + 0.01 * np.ones(len(x))
    found = []
    for step in (0.0, 2e-9):
        moved, multiplier = packed.copy(), np.empty(len(x))
        moved[:, 1] += step
        cells.correct(moved, error, np.ones(1), 1.0, np.zeros(len(x)), multiplier)
        found.append(multiplier)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-6 * np.abs(found[0]).max())


def test_a_corner_that_no_particle_sees_spoils_nothing():
    """Particles in one corner of a cell leave the opposite one undetermined: no noise from it."""
    x = block(8, 12, 8, spacing=D)
    grazing = np.full((1, 3), 8.0 * D) + 1e-3 * D  # a hair inside a cell of its own
    packed, cells = coarse(np.concatenate((x, grazing)))
    error = 1.0 + 0.01 * np.ones(len(packed))
    found = []
    for noise in (0.0, 1e-15):
        cells.matrix *= 1.0 + noise * np.random.default_rng(2).standard_normal(cells.matrix.shape)
        multiplier = np.empty(len(packed))
        cells.correct(packed, error, np.ones(1), 1.0, np.zeros(len(packed)), multiplier)
        found.append(multiplier)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-10 * np.abs(found[0]).max())


@pytest.mark.parametrize("sides", ["periodic", "wall"])
@pytest.mark.compiles
def test_a_box_that_is_full_bears_any_pressure_and_stays(sides):
    n = 10
    solver = fluid(
        block(n, n, n, spacing=D), kind=lk.SmoothedParticleFluid, radius=radius_of(D), fps=200.0,
        gravity=sides == "wall", domain_lower=(0.0,) * 3, domain_upper=(n * D,) * 3,
        boundary_lower=(sides,) * 3, boundary_upper=(sides,) * 3,
    )  # fmt: skip
    solver.run(40)
    assert np.abs(read(solver, "velocity")).max() < 0.1
    assert np.isfinite(read(solver, "pressure")).all()
    assert read(solver, "pressure").max() < 20 * 1000.0 * G * n * D


def test_few_cells_for_particles_far_apart():
    x = np.concatenate((block(3, 3, 3, spacing=D), block(3, 3, 3, spacing=D, corner=(9e4,) * 3)))
    _, cells = coarse(x)
    assert len(cells.corners) <= 16


@pytest.mark.compiles
def test_deep_water_is_borne_at_once():
    """p = rho g (H - y) in a column of 48 layers, from the 20th step on, with few iterations."""
    layers, steps = 48, 20
    solver = fluid(
        block(6, layers, 6, spacing=D), kind=lk.SmoothedParticleFluid, radius=radius_of(D),
        gravity=True, fps=500.0, domain_lower=(0.0,) * 3, boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3, domain_upper=(6 * D, 1.5 * layers * D, 6 * D),
    )  # fmt: skip
    slopes = []
    for _ in range(steps):
        solver.run(2)
        y, pressure = read(solver, "position")[:, 1], read(solver, "pressure")
        slopes.append(np.polyfit(y, pressure, 1)[0])
    assert np.mean(slopes[steps // 2 :]) == pytest.approx(-1000.0 * G, rel=0.1)
    assert np.abs(read(solver, "velocity")).max() < 0.5  # it was put a little too close
    tasks = [one for one in solver.statistics() if one["task"] == "SmoothedParticleFluid.solve"]
    assert sum(one["iterations"] for one in tasks) < 8 * 2 * steps
