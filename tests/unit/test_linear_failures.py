"""Linear solvers where something fails: what takes over, and what the report says of it."""

from __future__ import annotations

import importlib.machinery
import sys
import types

import numpy as np
import pytest
import scipy.sparse as sp

from loki_core.errors import SetupError
from loki_core.kernels.jit import set_thread_count, thread_count
from loki_core.linear_solvers.choice import solve_with_fallback
from loki_core.linear_solvers.direct import Direct
from loki_core.linear_solvers.fluid_solve import FluidSolve
from loki_core.linear_solvers.projected_gauss_seidel import ProjectedGaussSeidel
from loki_core.linear_solvers.smoothed_aggregation import SmoothedAggregation
from tests.unit.linear_systems import box, poisson, system

pytestmark = pytest.mark.compiles


def rhs(count):
    return np.random.default_rng(1).standard_normal(count)


# -- a solver that cannot be prepared --------------------------------------------------------------


def test_a_solver_that_cannot_be_prepared_is_replaced_and_the_warning_says_so():
    # Exactly singular, with a right-hand side that can be reached: no factors, but conjugate
    # gradients find an x.
    matrix = sp.csr_matrix(np.array([[1.0, 1.0], [1.0, 1.0]]))
    b, x = np.array([1.0, 1.0]), np.zeros(2)
    fluid = FluidSolve()
    fluid.prepare(system(matrix), "auto")
    report = fluid.solve(b, x, tol=1e-6, max_iterations=10)
    assert report.converged and report.solver != "direct"
    assert "took over from direct (the direct solver could not factorise" in fluid.warning
    np.testing.assert_allclose(matrix @ x, 1.0, rtol=1e-6)

    other = np.zeros(2)
    assert solve_with_fallback(system(matrix), b, other, tol=1e-6).solver == report.solver
    np.testing.assert_array_equal(other, x)

    fluid.prepare(system(sp.eye(2).tocsr()), "auto")  # the next matrix starts afresh
    assert fluid.solve(b, x, tol=1e-6, max_iterations=10).solver == "direct"
    assert fluid.warning == ""


def test_the_solver_that_was_asked_for_stays_first_when_it_cannot_be_prepared(monkeypatch):
    def refuse(self, given, reuse=None):
        raise SetupError("not today")

    monkeypatch.setattr(SmoothedAggregation, "prepare", refuse)
    fluid = FluidSolve()
    fluid.prepare(system(poisson(box(4))), "smoothed_aggregation")
    report = fluid.solve(rhs(64), np.zeros(64), tol=1e-8, max_iterations=200)
    assert report.converged
    assert "took over from smoothed_aggregation (not today)" in fluid.warning


def test_a_misspelt_solver_is_no_failure_to_fall_back_from():
    with pytest.raises(SetupError, match='did you mean "direct"'):
        FluidSolve().prepare(system(poisson(box(2))), "dirct")


# -- the residual ----------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [1, 2, 20])
def test_the_residual_of_the_report_is_that_of_x_after_the_last_restart(monkeypatch, each):
    iterate = SmoothedAggregation._iterate

    def few(self, x, residual, product, direction, norm, target, most):
        return iterate(self, x, residual, product, direction, norm, target, min(most, each))

    monkeypatch.setattr(SmoothedAggregation, "_iterate", few)
    matrix, b, x = poisson(box(12)), rhs(12**3), np.zeros(12**3)
    solver = SmoothedAggregation()
    solver.prepare(system(matrix))
    report = solver.solve(b, x, tol=1e-10)
    residual = np.linalg.norm(b - matrix @ x) / np.linalg.norm(b)
    np.testing.assert_allclose(report.residual, residual, rtol=1e-3)
    assert report.converged == (residual <= 1e-10)


# -- direct ----------------------------------------------------------------------------------------


def fake_pardiso(monkeypatch, solver):
    module = types.ModuleType("pypardiso")
    module.__spec__ = importlib.machinery.ModuleSpec("pypardiso", None)
    module.PyPardisoSolver = solver
    monkeypatch.setitem(sys.modules, "pypardiso", module)
    monkeypatch.setattr("loki_core.linear_solvers.direct.SMALL", 0)


def solve_directly():
    solver, x = Direct(), np.zeros(64)
    solver.prepare(system(poisson(box(4))))
    report = solver.solve(rhs(64), x)
    assert report.converged
    np.testing.assert_allclose(poisson(box(4)) @ x, rhs(64), rtol=0, atol=1e-10)
    return report


def test_the_report_names_the_library_that_factorised(monkeypatch):
    monkeypatch.setitem(sys.modules, "pypardiso", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert solve_directly().back_end == "superlu"


class FakePardiso:
    """Does as the library does, by scipy: phases 11 (analyse), 22 (factorise) and 33 (solve)."""

    made = ()  # (matrix type, phases) of each one

    def __init__(self, mtype):
        self.mtype, self.phases = mtype, []
        FakePardiso.made += ((mtype, self.phases),)

    def set_iparm(self, number, value):
        assert 1 <= number <= 64

    def set_phase(self, phase):
        self.phases.append(phase)

    def free_memory(self, everything):
        pass

    def _call_pardiso(self, matrix, b):
        assert matrix.has_sorted_indices
        if self.mtype != 11:
            assert sp.tril(matrix, -1).nnz == 0
            matrix = matrix + sp.triu(matrix, 1).T
        return sp.linalg.spsolve(matrix.tocsc(), b).reshape(b.shape) if self.phases[-1] == 33 else b


def test_a_pardiso_that_works_is_named_and_knows_that_the_matrix_is_definite(monkeypatch):
    monkeypatch.setattr(FakePardiso, "made", ())
    fake_pardiso(monkeypatch, FakePardiso)
    assert solve_directly().back_end == "pardiso"
    ((kind, phases),) = FakePardiso.made
    assert kind == 2 and phases[:2] == [11, 22] and set(phases[2:]) == {33}


def test_pardiso_analyses_a_pattern_once(monkeypatch):
    monkeypatch.setattr(FakePardiso, "made", ())
    fake_pardiso(monkeypatch, FakePardiso)
    solver = Direct()
    for factor in (1.0, 3.0):
        matrix, x = factor * poisson(box(4)), np.zeros(64)
        solver.prepare(system(matrix))
        solver.solve(rhs(64), x)
        np.testing.assert_allclose(matrix @ x, rhs(64), rtol=0, atol=1e-10)
    solver.prepare(system(poisson(box(3))))  # another pattern
    ((_, phases),) = FakePardiso.made
    assert [one for one in phases if one != 33] == [11, 22, 22, 11, 22]


def test_a_pardiso_that_fails_is_named_with_the_reason(monkeypatch):
    class PardisoError(Exception):  # the library's own derives from nothing more specific
        pass

    class Solver(FakePardiso):
        def _call_pardiso(self, matrix, b):
            raise PardisoError("error code -3")

    fake_pardiso(monkeypatch, Solver)
    report = solve_directly()
    assert report.back_end == "superlu (pardiso failed: error code -3)"
    found = solve_with_fallback(system(poisson(box(4))), rhs(64), np.zeros(64))
    assert found.back_end == report.back_end


# -- projected Gauss-Seidel ------------------------------------------------------------------------


def dense_spd(count):
    factor = np.random.default_rng(5).standard_normal((count, count))
    return sp.csr_matrix(factor @ factor.T + count * np.eye(count))


@pytest.mark.parametrize("count", [60, 64, 65, 100])
def test_rows_that_touch_are_never_done_at_once(count):
    matrix = sp.block_diag([dense_spd(count)] * 3).tocsr()
    solver = ProjectedGaussSeidel()
    solver.prepare(system(matrix))
    rows = np.concatenate(solver._colours)
    np.testing.assert_array_equal(np.sort(rows), np.arange(3 * count))
    pattern = matrix.toarray() != 0.0
    for together in solver._colours:
        touching = pattern[np.ix_(together, together)]
        assert np.count_nonzero(touching) == len(together)  # the diagonal


def test_rows_of_many_neighbours_do_not_depend_on_threads():
    matrix, b, before = dense_spd(150), rhs(150), thread_count()
    ends = []
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            solver, x = ProjectedGaussSeidel(), np.zeros(150)
            solver.prepare(system(matrix))
            assert solver.solve(b, x, lower=-0.001, tol=1e-9).converged
            ends.append(x)
    finally:
        set_thread_count(before)
    np.testing.assert_array_equal(*ends)


def test_colours_are_kept_only_where_every_rank_can_keep_them():
    class OtherRankCannot:
        """A rank that shares its system with one whose rows changed."""

        size, rank, asked = 1, 0, 0

        def any(self, flag):
            self.asked += 1
            return True

        def maximum(self, value):
            return max(value, 7)

    solver = ProjectedGaussSeidel()
    solver.prepare(system(poisson(box(4))))
    again = system(poisson(box(4)))
    again.comm = OtherRankCannot()
    solver.prepare(again, "pattern")
    assert again.comm.asked == 1
    assert len(solver._colours) == 7  # those of both ranks
    kept = solver._colours
    solver.prepare(system(poisson(box(4))), "pattern")
    assert solver._colours is kept
