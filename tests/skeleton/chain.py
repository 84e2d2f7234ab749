"""A chain of Distance Constraints between embedded particles, spread over ranks.

The carriers q are ordinary particles, owned by Bucket; each embedded particle is the middle of two
of them. A Constraint holds two consecutive middles at their start distance: E = S C^2, C = |x0 -
x1| - d, S = k / 2, backward Euler with the Gauss-Newton Hessian 2 S grad C grad C^T, and conjugate
gradients on (M + dt^2 K) dv = dt f - M (v - v0).
"""

from __future__ import annotations

import numpy as np

from loki_core.behavior import Behavior, parameter
from loki_core.data.particle_system import ParticleSystem
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.objects.basics.capabilities import MovedPoints
from loki_core.objects.basics.object import Object
from loki_core.objects.solids.embedded_points import WeightedPoints
from loki_core.operators.operator import Operator
from loki_core.parallel.reduce import exact_sum
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import task


class ChainObject(Behavior, kind="object"):
    """Particles in a row, each of mass 1 / count."""

    count: int = parameter(200, minimum=4, doc="Carriers.")

    def create(self, scope):
        return [Chain(self, scope)]


class Chain(Object, MovedPoints):
    def __post_init__(self):
        super().__post_init__()
        self.particles = ParticleSystem(self.scope.domain, name=self.path, dtype=np.float64)
        for name in ("velocity", "start_velocity", "force"):
            self.particles.add_channel(name, np.float64, (3,))
        self.particles.add_channel("mass", np.float64, default=1.0 / self.behavior.count)

    @property
    def data(self):
        return {"particles": self.particles}

    def need_jacobian(self):
        pass

    def ingest(self):
        count, comm = self.behavior.count, self.scope.domain.comm
        ids = np.arange(comm.rank * count // comm.size, (comm.rank + 1) * count // comm.size)
        t = ids / count
        position = np.stack((2.0 * t, 0.3 * np.sin(9.0 * t), 0.2 * np.cos(7.0 * t)), axis=1)
        velocity = np.stack((np.cos(11.0 * t), np.sin(13.0 * t), 0.0 * t), axis=1)
        values = {"position": self.scope.domain.to_relative(position), "velocity": velocity}
        self.particles.append(values, ids=ids)
        self.particles.reserve_ids(count)
        self.particles.rebucketize()

    @task(Stage.REBUCKET, layout=("particles",))
    def rebucket(self, access, step):
        self.particles.rebucketize()

    @task(
        Stage.RESET_ACCUMULATORS,
        reads=("particles.velocity",),
        writes=("particles.start_velocity", "particles.position"),
    )
    def begin(self, access, step):
        access["particles.start_velocity"][:] = access["particles.velocity"]
        access["particles.position"][:] += step.dt * access["particles.velocity"]

    @task(Stage.RESET_FORCES, writes=("particles.force",))
    def reset(self, access, step):
        access["particles.force"][:] = 0.0

    def read(self, channel):
        values = self.particles.local(channel)
        if channel == "position":
            values = self.scope.domain.to_world(values)
        return self.particles.local("id"), values


class ChainDistance(Behavior, kind="constraint"):
    """Hold consecutive middles of a chain at their start distance."""

    stiffness: float = parameter(1.0e3, unit="N/m", minimum=0.0, doc="k = 2 S.")


class ChainDistanceAction(Operator, behavior=ChainDistance):
    def __init__(self, behavior, target):
        super().__init__(behavior, target)
        total, comm = target.behavior.count - 2, target.scope.domain.comm
        first = np.arange(comm.rank * total // comm.size, (comm.rank + 1) * total // comm.size)
        half = np.full((len(first), 2), 0.5)
        self.ends = (
            WeightedPoints(target, np.stack((first, first + 1), axis=1), half),
            WeightedPoints(target, np.stack((first + 1, first + 2), axis=1), half),
        )
        self.rest = None
        self.residuals = []

    @classmethod
    def acts_on(cls, item):
        return isinstance(item, Chain)

    @task(Stage.UPDATE_COLLIDERS, reads=("particles.id", "particles.position"), communicates=True)
    def measure_rest(self, access, step):
        if self.rest is None:
            a, b = (end.carry(access["particles.position"]) for end in self.ends)
            self.rest = np.linalg.norm(a - b, axis=1)

    @task(
        Stage.SOLVE_SOLIDS,
        reads=("particles.id", "particles.mass", "particles.force", "particles.start_velocity"),
        writes=("particles.velocity", "particles.position"),
        communicates=True,
    )
    def solve(self, access, step):
        position, velocity = access["particles.position"], access["particles.velocity"]
        mass = access["particles.mass"]
        for end in self.ends:
            end.follow()
        a, b = (end.carry(position) for end in self.ends)
        edge = a - b
        length = np.linalg.norm(edge, axis=1)
        normal = edge / length[:, None]
        k = float(self.settings.stiffness)
        force = access["particles.force"].copy()
        pull = -k * (length - self.rest)[:, None] * normal
        self.ends[0].pull_back(pull, force)
        self.ends[1].pull_back(-pull, force)
        system = _ChainSystem(self, mass, normal, step.dt**2 * k)
        b_vector = step.dt * force - mass[:, None] * (velocity - access["particles.start_velocity"])
        change = np.zeros(velocity.size)
        solver = ConjugateGradient()
        solver.prepare(system)
        report = solver.solve(b_vector.reshape(-1), change, tol=1e-12, max_iterations=4000)
        self.iterations = report.iterations
        self.residuals.append(report.residual)
        velocity += change.reshape(-1, 3)
        position += step.dt * change.reshape(-1, 3)


class _ChainSystem:
    kind, block_size, null_space = "spd", 3, []

    def __init__(self, action, mass, normal, scale):
        self.action, self.mass, self.normal, self.scale = action, mass, normal, scale
        self.size = 3 * len(mass)
        self.comm = action.target.scope.domain.comm

    def multiply(self, x, out):
        x = x.reshape(-1, 3)
        product = self.mass[:, None] * x
        a, b = (end.carry(x) for end in self.action.ends)
        along = self.scale * np.einsum("ec,ec->e", self.normal, a - b)[:, None] * self.normal
        self.action.ends[0].pull_back(along, product)
        self.action.ends[1].pull_back(-along, product)
        out[:] = product.reshape(-1)

    def dot(self, x, y):
        return exact_sum(self.comm, x * y)

    def diagonal(self):
        return np.repeat(self.mass, 3)
