"""Elements of a changing set: the same system as with compressed rows, made in no time."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.linear_solvers.body_system import BodySystem
from loki_core.linear_solvers.manybodies import Manybodies
from loki_core.objects.solids.couplings import Couplings
from tests.unit.body_systems import dense, full_first, random_values, rod_first, shape

pytestmark = pytest.mark.compiles
PARTS = shape([rod_first(9)] * 6 + [full_first(12), full_first(3)])


def elements(count=200, width=12, seed=4):
    """Positive matrices over random unknowns, of one body, of several, and twice the same one."""
    rng = np.random.default_rng(seed)
    size = int(PARTS[0][-1])
    dofs = rng.integers(0, size, (count, width))
    dofs[: count // 2] = np.sort(dofs[: count // 2] % 30, axis=1)
    dofs[count // 2 : count // 2 + 9, 1] = dofs[count // 2 : count // 2 + 9, 0]
    rows = rng.standard_normal((count, 3, width))
    return dofs, np.einsum("nma,nmb->nab", rows, rows), rng.standard_normal((count, width))


def assembled(dofs, matrices, forces, fixed):
    """The bodies with these elements in a Remainder."""
    body_start, first, row, count = PARTS
    size = int(body_start[-1])
    values, rhs = random_values(body_start, first, row, count, 3), np.zeros(size)
    plain = dense(body_start, first, row, values)
    couplings = Couplings(body_start, 0, [], np.zeros(size, bool))
    couplings.renew([dofs], row, first)
    couplings.remainders[0].add(forces, matrices, fixed, rhs, values, couplings.data)
    system = BodySystem(
        body_start, first, row, values, couplings.rows, remainders=couplings.remainders
    )
    return system, plain, rhs


def test_the_system_is_that_of_bodies_and_all_elements():
    dofs, matrices, forces = elements()
    size = int(PARTS[0][-1])
    fixed = (np.arange(size) % 17 == 3).astype(np.uint8)
    system, plain, rhs = assembled(dofs, matrices, forces, fixed)
    free = fixed == 0
    whole, total = np.zeros((size, size)), np.zeros(size)
    for numbers, matrix, force in zip(dofs, matrices, forces, strict=True):
        np.add.at(whole, (numbers[:, None], numbers[None]), matrix)
        np.add.at(total, numbers, force)
    whole = plain + whole * free[:, None] * free[None]
    x = np.random.default_rng(1).standard_normal(size)
    out = np.empty(size)
    system.multiply(x, out)
    scale = np.abs(whole).max()
    np.testing.assert_allclose(out, whole @ x, rtol=0, atol=1e-13 * size * scale)
    np.testing.assert_allclose(system.diagonal(), whole.diagonal(), rtol=1e-13)
    np.testing.assert_allclose(rhs, total * free, rtol=0, atol=1e-12)
    indptr, indices, data = system.csr()
    found = sp.csr_matrix((data, indices, indptr), (size, size))
    np.testing.assert_allclose(found.toarray(), whole, rtol=0, atol=1e-13 * scale)


def test_bodies_stay_definite_and_precondition():
    dofs, matrices, forces = elements()
    size = int(PARTS[0][-1])
    system, _, _ = assembled(dofs, 1e6 * matrices, forces, np.zeros(size, np.uint8))
    solver, x = Manybodies(), np.zeros(size)
    solver.prepare(system)  # envelopes have a part of each element, which must not hurt
    report = solver.solve(np.ones(size), x, tol=1e-8)
    assert report.converged
    indptr, indices, data = system.csr()
    whole = sp.csr_matrix((data, indices, indptr), (size, size))
    assert np.linalg.norm(whole @ x - 1.0) <= 2e-8 * np.sqrt(size)


def test_other_elements_need_no_pattern():
    size = int(PARTS[0][-1])
    couplings = Couplings(PARTS[0], 100, [np.array([[100, 5]])], np.zeros(size, bool))
    kept = couplings.rows[0]
    couplings.renew([np.array([[101, 3, 5]]), np.empty((0, 4), np.int64)], PARTS[2], PARTS[1])
    assert couplings.ghost_rows.tolist() == [5, 3]
    assert couplings.remainders[0].dofs.tolist() == [[1, size + 1, size]]
    couplings.renew([np.array([[102, 7, 5]]), np.empty((0, 4), np.int64)], PARTS[2], PARTS[1])
    assert couplings.ghost_rows.tolist() == [5, 7]
    assert couplings.rows[0] is kept


def test_any_number_of_threads_gives_the_same_bits():
    dofs, matrices, forces = elements(2000)
    size, before, found = int(PARTS[0][-1]), thread_count(), []
    x = np.random.default_rng(2).standard_normal(size)
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            system, _, rhs = assembled(dofs, matrices, forces, np.zeros(size, np.uint8))
            out = np.empty(size)
            system.multiply(x, out)
            found.append((out, rhs, system.values))
    finally:
        set_thread_count(before)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
