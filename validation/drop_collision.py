"""Binary collisions of water drops, against the regimes of Ashgriz & Poo (1990) (case 8.4).

Pairs of drops with random Weber numbers We = rho d_s |u|^2 / sigma and offsets X of their paths
meet, far from each other, and coalesce, separate by stretching or separate by reflexion. For equal
drops

    We_stretch = 16 sqrt(12 (1 - X) phi) / (2 - 2 (1 - X^2) phi),     t = 2 (1 - X)
    phi = 1 - (2 - t)^2 (1 + t) / 4 where t > 1, else t^2 (3 - t) / 4
    We_reflex = 6 (7 2^(2/3) - 8) / eta,     eta = 2 (1 - X)^2 sqrt(1 - X^2) - 1

and there is no reflexion where eta <= 0. The general formulas, for the ratio D = d_s / d_l of the
sizes, are in the same paper and in `boundaries`.

What has become of a pair is read from the output alone: one drop is left, or drops that go on
against each other (stretching), or drops that go back (reflexion). Satellites have 1.89 times the
radius with which their ligament breaks, the root of beta sqrt(We_0) r^3.5 + r^2 = 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import loki_core as loki
from loki_core.operators.droplet_collisions import BinaryDropletCollisions

from ._report import result

Float = NDArray[np.float64]

CASE = "drop_collision"
PAIRS, SPACING = 200, 0.06  # m, between pairs
RADIUS, DENSITY, TENSION = 5.0e-4, 998.2, 0.0728  # m, kg/m^3, N/m
FRAMES, RATE = 4, 1000.0  # 1/s
MARGIN = 0.02  # of a boundary, on which either outcome is right
EXACT = 1.0e-12  # threshold of mass, momentum and energy
NAMES = ("coalescence", "reflexion", "stretching")


def run() -> list[dict[str, Any]]:
    """Equal drops and drops of all sizes, each with steps h and h / 2."""
    results = []
    for label, smallest in (("equal drops", 1.0), ("size ratio 0.3 to 1", 0.3)):
        found = []
        for substeps in (1, 2):
            pairs = Pairs(smallest)
            place = f"{label}, dt = {1e3 / (RATE * substeps):g} ms"
            outcome = pairs.collide(substeps)
            found.append(outcome)
            results += pairs.judge(outcome, place)
        changed = float(np.count_nonzero(found[0] != found[1]))
        results.append(_judged(f"outcomes that change from h to h / 2, {label}", changed, 0.0, 0.0))
    return results


class Pairs:
    """Pairs of drops that are about to meet.

    Args:
        smallest: Least ratio of the sizes.
    """

    def __init__(self, smallest: float) -> None:
        rng = np.random.default_rng(8)
        self.weber = np.exp(rng.uniform(0.0, np.log(400.0), PAIRS))
        self.offset = rng.random(PAIRS)
        self.ratio = rng.uniform(smallest, 1.0, PAIRS) if smallest < 1.0 else np.ones(PAIRS)
        radius = np.stack((np.full(PAIRS, RADIUS), RADIUS * self.ratio), axis=1)
        self.speed = np.sqrt(self.weber * TENSION / (DENSITY * 2.0 * radius[:, 1]))
        along, across = _directions(rng)
        # They touch at a time of their own, wherever that is in a step.
        touch = rng.uniform(0.1, 0.8, PAIRS) * FRAMES / RATE
        reach = radius.sum(axis=1)
        gap = self.speed * touch + reach * np.sqrt(1.0 - self.offset**2)
        between = (self.offset * reach)[:, None] * across - gap[:, None] * along
        side = round(PAIRS ** (1.0 / 3.0) + 0.5)
        self.centre = SPACING * np.stack(np.unravel_index(np.arange(PAIRS), (side,) * 3), axis=1)
        drift = rng.uniform(-1.0, 1.0, (PAIRS, 3))
        self.radius = radius
        self.mass = DENSITY * 4.0 / 3.0 * np.pi * radius**3
        share = self.mass[:, ::-1] / self.mass.sum(axis=1, keepdims=True) * [1.0, -1.0]
        self.position = self.centre[:, None] + share[:, :, None] * between[:, None]
        closing = (self.speed[:, None] * along)[:, None]
        self.velocity = drift[:, None] + share[:, :, None] * closing

    def collide(self, substeps: int) -> NDArray[np.int64]:
        """Run, and return what has become of each pair, a number in NAMES."""
        drops = loki.Points(self.position.reshape(-1, 3))
        drops.set_channel("point", "velocity", self.velocity.reshape(-1, 3))
        drops.set_channel("point", "radius", self.radius.reshape(-1))
        setup = loki.SolverSetup(
            CASE,
            loki.ParticleObject(input="drops", density=DENSITY),
            BinaryDropletCollisions(surface_tension=TENSION),
            frames_per_second=RATE,
            substeps=substeps,
        )
        solver = loki.Solver(setup, {"drops": drops})
        solver.run(FRAMES)
        output = solver.outputs()["ParticleObject"]
        self.after = dict(output.channels["point"].items())
        self.after["position"] = output.positions.astype(np.float64)
        places = np.round(self.after["position"] / SPACING).astype(np.int64)
        rows = {tuple(place): row for row, place in enumerate(np.round(self.centre / SPACING))}
        self.pair = np.array([rows[tuple(place)] for place in places])
        count = np.bincount(self.pair, minlength=PAIRS)
        velocity = np.full((2 * PAIRS, 3), np.nan)
        first = self.after["id"] < 2 * PAIRS  # the drops of the start; satellites come later
        velocity[self.after["id"][first]] = self.after["velocity"][first]
        parting = velocity[0::2] - velocity[1::2]
        goes_on = np.einsum("na,na->n", parting, self.velocity[:, 0] - self.velocity[:, 1]) > 0.0
        return np.where(count == 1, 0, np.where(goes_on, 2, 1))

    def judge(self, outcome: NDArray[np.int64], place: str) -> list[dict[str, Any]]:
        """Compare the outcomes, and what there is of mass, momentum and energy in each pair."""
        stretch, reflex = boundaries(self.offset, self.ratio)
        expected = np.where(self.weber > stretch, 2, np.where(self.weber > reflex, 1, 0))
        clear = np.ones(PAIRS, bool)
        for boundary in (stretch, reflex):
            clear &= np.abs(self.weber / boundary - 1.0) > MARGIN
        right = float(np.mean(outcome[clear] == expected[clear]))
        results = [
            result(
                CASE, f"right outcomes of {np.count_nonzero(clear)}, {place}", right, 1.0,
                error=1.0 - right, production=0.0, best=0.0,
            )
        ]  # fmt: skip
        results += [
            result(CASE, f"pairs with {name}, {place}", float(np.sum(outcome == number)), None)
            for number, name in enumerate(NAMES)
        ]
        before = _totals(self.mass, self.velocity, self.radius)
        after = [
            np.bincount(self.pair, one, minlength=PAIRS)
            for one in _totals(self.after["mass"], self.after["velocity"], self.after["radius"])
        ]
        before = [one.sum(axis=1) for one in before]
        mass = np.abs(after[0] / before[0] - 1.0).max()
        moving = before[0] * np.abs(self.velocity).max(axis=(1, 2))
        momentum = np.max([np.abs(after[k] - before[k]) / moving for k in (1, 2, 3)])
        growth = np.max(after[4] / before[4] - 1.0)
        results.append(_judged(f"change of mass, {place}", float(mass), 0.0, EXACT))
        results.append(_judged(f"change of momentum, {place}", float(momentum), 0.0, EXACT))
        results.append(_judged(f"growth of energy, {place}", float(growth), 0.0, EXACT))
        sizes, number = self._satellites(outcome)
        results.append(_judged(f"radii of {number} satellites, {place}", sizes, 0.0, 1e-9))
        return results

    def _satellites(self, outcome: NDArray[np.int64]) -> tuple[float, int]:
        """Largest relative error of radii of satellites that stretching left, and how many."""
        small = np.flatnonzero((self.after["id"] >= 2 * PAIRS) & (outcome[self.pair] == 2))
        pair = self.pair[small]
        count = np.bincount(pair, minlength=PAIRS)
        small, pair = small[count[pair] < 8], pair[count[pair] < 8]  # more are made larger
        radius = satellite_radius(self.weber[pair], self.offset[pair], self.ratio[pair])
        errors = np.abs(self.after["radius"][small] / radius - 1.0)
        return float(errors.max(initial=0.0)), len(small)


def boundaries(offset: Float, ratio: Float) -> tuple[Float, Float]:
    """Weber numbers of stretching and of reflexion; inf where there is no such boundary."""
    cube = ratio**3
    small, large = _parts(offset, ratio)
    surface = np.sqrt(3.0 * (1.0 + ratio) * (1.0 - offset) * (cube * small + large))
    stretched = (1.0 + cube) - (1.0 - offset**2) * (small + cube * large)
    shift = 0.5 * offset * (1.0 + ratio)
    inside = np.maximum(ratio**2 - shift**2, 0.0)
    eta1 = 2.0 * (1.0 - shift) ** 2 * np.sqrt(1.0 - shift**2) - 1.0
    eta2 = 2.0 * (ratio - shift) ** 2 * np.sqrt(inside) - cube
    reflected = np.where(shift < ratio, cube**2 * eta1 + eta2, 0.0)
    needed = 3.0 * (7.0 * (1.0 + cube) ** (2.0 / 3.0) - 4.0 * (1.0 + ratio**2)) * ratio
    with np.errstate(divide="ignore"):
        stretch = 4.0 * (1.0 + cube) ** 2 * surface / (ratio**2 * np.maximum(stretched, 0.0))
        reflex = needed * (1.0 + cube) ** 2 / np.maximum(reflected, 0.0)
    return stretch, reflex


def satellite_radius(weber: Float, offset: Float, ratio: Float) -> Float:
    """Radius [m] of satellites after stretching, from the volume of the ligament (Ko and Ryou)."""
    cube = ratio**3
    small, large = _parts(offset, ratio)
    volume = 4.0 / 3.0 * np.pi * RADIUS**3
    square = weber * TENSION / (DENSITY * 2.0 * ratio * RADIUS)
    kinetic = 0.5 * DENSITY * volume * cube / (1.0 + cube) * square
    met = volume * (large + cube * small)
    stretching = kinetic * (1.0 - (1.0 - offset**2) * (small + cube * large) / (1.0 + cube))
    height = (1.0 - offset) * (1.0 + ratio)
    lost = 2.0 * TENSION * np.sqrt(np.pi * RADIUS * height * met) + 0.3 * kinetic
    ligament = met * (stretching - lost) / (stretching + lost)
    start = np.cbrt(ligament / (4.0 / 3.0 * np.pi))
    beta = 3.0 / (4.0 * np.sqrt(2.0)) * 11.5 * 0.45
    factor = beta * np.sqrt(2.0 * start * DENSITY * square / TENSION)
    low, high = np.zeros_like(start), np.ones_like(start)
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = factor * middle**3.5 + middle**2 > 1.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 1.89 * high * start


def _parts(offset: Float, ratio: Float) -> tuple[Float, Float]:
    """Parts of the smaller and of the larger drop that are in each other's way."""

    def cap(t: Float) -> Float:
        flat = np.where(t > 1.0, 1.0 - 0.25 * (2.0 - t) ** 2 * (1.0 + t), 0.25 * t**2 * (3.0 - t))
        return np.where(t >= 2.0, 1.0, flat)

    height = (1.0 - offset) * (1.0 + ratio)
    return cap(height / ratio), cap(height)


def _directions(rng: np.random.Generator) -> tuple[Float, Float]:
    """Two random unit vectors at right angles for each pair."""
    along, other = rng.normal(size=(2, PAIRS, 3))
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    across = np.cross(along, other)
    return along, across / np.linalg.norm(across, axis=1, keepdims=True)


def _totals(mass: Float, velocity: Float, radius: Float) -> list[Float]:
    """Mass, momentum and energy of drops."""
    energy = 0.5 * mass * np.sum(velocity**2, axis=-1) + 4.0 * np.pi * TENSION * radius**2
    return [mass, *(mass * velocity[..., axis] for axis in range(3)), energy]


def _judged(name: str, value: float, reference: float, threshold: float) -> dict[str, Any]:
    return result(
        CASE, name, value, reference, error=max(value, 0.0), production=threshold, best=threshold
    )
