"""Coarse Pressure: the energy of slow multipliers, and deep water."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.kernels.smoothing import prototype
from loki_core.objects.coarse_pressure import CELL, CoarsePressure
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
    active = np.ones(len(x))
    return packed, CoarsePressure(
        domain or GridDomain(1.0), packed=packed, own=np.arange(len(x), dtype=np.int32),
        weight=np.ones(1), active=active, moment=LATTICE.moment, spacing=D,
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
    """The field at the particles."""
    found = np.empty(len(x))
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
    seen = [
        np.array([trilinear(cells, x, one) @ values for one in np.eye(cells.nodes)])
        for values in (error, error + change)
    ]
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


def test_few_cells_for_particles_far_apart():
    x = np.concatenate((block(3, 3, 3, spacing=D), block(3, 3, 3, spacing=D, corner=(9e4,) * 3)))
    _, cells = coarse(x)
    assert len(cells.corners) <= 16


@pytest.mark.compiles
def test_deep_water_is_borne_at_once():
    """p = rho g (H - y) in a column of 48 layers after 20 steps of a few iterations."""
    layers, steps = 48, 20
    solver = fluid(
        block(6, layers, 6, spacing=D), kind=lk.SmoothedParticleFluid, radius=radius_of(D),
        gravity=True, fps=500.0, domain_lower=(0.0,) * 3, boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3, domain_upper=(6 * D, 1.5 * layers * D, 6 * D),
    )  # fmt: skip
    solver.run(steps)
    y, pressure = read(solver, "position")[:, 1], read(solver, "pressure")
    assert np.polyfit(y, pressure, 1)[0] == pytest.approx(-1000.0 * G, rel=0.1)
    assert np.abs(read(solver, "velocity")).max() < 0.5  # it was put a little too close
    tasks = [one for one in solver.statistics() if one["task"] == "SmoothedParticleFluid.solve"]
    assert sum(one["iterations"] for one in tasks) < 8 * steps
