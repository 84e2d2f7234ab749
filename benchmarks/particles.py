"""Particle fluids against SPlisHSPlasH, against themselves on ranks, and in memory; droplets.

Both programs get the same dam break (`_particle_cases.py`): as many particles, as far apart, with
kernels that reach two spacings, gravity, walls, no surface tension, the same fixed time step and
the same number of steps before those that are measured, so the water is at the same place. At first
it falls on the floor of the tank, in which no solver has much to do, and there it lands all at
once; what is measured are ten steps after that, and their mean time counts, with all threads. A
step of ours is a substep of the Solver with all that the Solver does, one of theirs is all between
two of its steps. The programs run one after the other, so whoever shares the machine may disturb
one of them more: of the ratio by the wall clock and that by the seconds of all threads together the
lower one counts.

*PBF* makes 5 iterations in both. The peer's viscosity is one sum over neighbours a step; ours is
the default, one pass of XSPH.

*DFSPH* is compared at the same density error, the mean over particles of what they are too dense
by; each program measures it with its own kernel. The peer iterates to its own tolerances, and ours
to the error that the peer was found to leave; the steps that are measured come later than those of
PBF, since errors add up to the tolerance by and by. Both have the same kinematic viscosity, which
is explicit in the peer and implicit in ours.

What is compared with itself are blocks of water that stand on the floor from the start.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loki_vfx.benchmarks import _particle_cases
from loki_vfx.benchmarks._measure import figure
from loki_vfx.benchmarks._particle_cases import (
    SPRAY_FILLED,
    SPRAY_SPEED,
    SPRAY_STEP,
    STEPS,
    TIME_STEP,
)
from loki_vfx.benchmarks._processes import ranks2_speedup, run_apart
from loki_vfx.benchmarks.peers.mantaflow import PeerError
from loki_vfx.benchmarks.peers.splishsplash import (
    MAP_RESOLUTION,
    VARIABLE,
    PeerFigures,
    dam_break,
)

CASES = _particle_cases.__name__
#: Cells of the peer's map of walls, for many particles.
FINE_MAP = (75, 50, 25)
FINE_FROM = 500_000  # particles
#: When PBF and DFSPH are measured, over the time in which the water lands.
LANDED, SETTLED = 1.1, 1.5
VISCOSITY = 0.01  # m^2/s, the peer's
#: Tolerances that ours can be told.
TOLERANCES = (1.0e-6, 0.1)

Case = dict[str, Any]
Figures = dict[str, dict[str, Any]]


def run(quick: bool) -> Figures:
    """Measure everything; `quick` uses smaller sizes."""
    n = 20 if quick else 100
    return (
        position_based_figures(n)
        | smoothed_figures(n)
        | growth_figures(n)
        | memory_figures(n)
        | droplet_figures(10_000 if quick else 100_000)
        | rank_figures(n)
    )


# -- against the peer --------------------------------------------------------------------------


def position_based_figures(n: int) -> Figures:
    """Compare Position-Based Fluids, and take the rate and the share of neighbours of ours."""
    case = falling(n, LANDED)
    ours = measure(case)
    seconds, spent = ours["step_seconds_mean"], ours["neighbour_seconds"]
    sorting = spent["build"] + spent["rebucketize"]
    words = f"dam break of {ours['particles']} particles, 5 iterations, mean of {STEPS} steps"
    peer, why = measure_peer("PBF", case)
    ratio = None
    if peer is not None:
        ratio, why = speedup(ours, peer), f"{words}: {compared(ours, peer)}"
    return {
        "pbf_vs_splishsplash_1m": figure(ratio, "x", 4.0, "higher", why),
        "pbf_particle_steps_per_s_core": figure(
            ours["particles"] / seconds / ours["threads"],
            "1/s",
            5.0e5,
            "higher",
            f"{words}: {seconds:.3g} s, {ours['threads']} threads",
        ),
        "neighbour_fraction": figure(
            sorting / seconds,
            "",
            0.25,
            "lower",
            f"{words}: neighbour lists {spent['build']:.3g} s and sort of the particles "
            f"{spent['rebucketize']:.3g} s of {seconds:.3g} s; to bring values to the order of the "
            f"lists and back takes {spent['gather'] + spent['scatter']:.3g} s more",
        ),
    }


def smoothed_figures(n: int) -> Figures:
    """Compare SPH with implicit pressure, at the density error that the peer leaves."""
    case = falling(n, SETTLED)
    peer, why = measure_peer("DFSPH", case)
    ratio = None
    if peer is not None:
        tolerance = float(np.clip(0.01 * peer.density_error_percent, *TOLERANCES))
        given = {"fluid": "SPH", "tolerance": tolerance, "viscosity": VISCOSITY}
        ours = measure(case | given)
        ratio = speedup(ours, peer)
        why = (
            f"dam break of {ours['particles']} particles, mean of {STEPS} steps: "
            f"{compared(ours, peer)}, {ours['iterations']:.3g} iterations against "
            f"{peer.iterations:.3g} and {peer.divergence_iterations:.3g} for the divergence"
        )
    return {"dfsph_vs_splishsplash_1m": figure(ratio, "x", 2.0, "higher", why)}


def falling(n: int, times: float) -> Case:
    """The peer's dam break, to be measured after so many times what the water takes to land."""
    fall = math.sqrt(2.0 / (9.81 * (n + 1)))
    warm = math.ceil(times * fall / (STEPS * TIME_STEP))
    return {"scene": "dam_break", "n": n, "warm": warm}


def measure_peer(method: str, case: Case) -> tuple[PeerFigures | None, str]:
    """Figures of the peer, or None and the reason why there are none."""
    count = int(case["n"]) ** 3
    try:
        found = dam_break(
            method,
            count,
            steps=STEPS,
            warm_up=STEPS * int(case["warm"]),
            time_step=TIME_STEP,
            map_resolution=FINE_MAP if count >= FINE_FROM else MAP_RESOLUTION,
        )
    except PeerError as error:
        return None, str(error)
    if found is None:
        return None, f"pysplishsplash is not installed; {VARIABLE} names a Python that has it"
    return found, ""


def speedup(ours: dict[str, Any], peer: PeerFigures) -> float:
    """How many times as long the peer takes, by the clock or by all threads' seconds."""
    by_clock = peer.seconds_per_step / float(ours["step_seconds_mean"])
    return min(by_clock, peer.cpu_seconds_per_step / float(ours["cpu_seconds_mean"]))


def compared(ours: dict[str, Any], peer: PeerFigures) -> str:
    """What both took, and how wrong their densities were."""
    again = f" ({ours['retried']} steps tried again)" if ours["retried"] else ""
    return (
        f"{ours['step_seconds_mean']:.3g} s{again} against {peer.seconds_per_step:.3g} s of "
        f"{peer.particles} particles (of all threads {ours['cpu_seconds_mean']:.3g} s against "
        f"{peer.cpu_seconds_per_step:.3g} s), dt = {1e3 * peer.time_step:.3g} ms; too dense by "
        f"{ours['density_error_percent']:.2g} % against {peer.density_error_percent:.2g} %"
    )


# -- against itself ----------------------------------------------------------------------------


def standing(n: int, depth: int) -> Case:
    """Water that stands on the floor from the start."""
    return {"scene": "dam_break", "n": n, "depth": depth, "wall": 0.5, "warm": 1}


def growth_figures(n: int) -> Figures:
    """Compare twice as many particles; they take turns, and the better median counts."""
    best = {n // 2: np.inf, n: np.inf}
    for _ in range(2):
        for depth in best:
            found = measure(standing(n, depth))["step_seconds_median"]
            best[depth] = min(best[depth], found)
    half, whole = best.values()
    how = (
        f"Position-Based Fluid, {n**3} particles over half of them, median step: {whole:.3g} s "
        f"over {half:.3g} s"
    )
    return {"growth_double_particles": figure(whole / half, "x", 2.3, "lower", how)}


def memory_figures(n: int) -> Figures:
    """Report how much memory a particle takes at the peak of a step."""
    found = measure(standing(n, n) | {"memory": True})
    count = found["particles"]
    at_start, held = (found[name] / count for name in ("peak_at_start", "held_by_particles"))
    how = (
        f"Position-Based Fluid, {count} particles with velocity, id, Cd, radius and age, peak of "
        f"the process in motion above what it has without the scene; {at_start:.0f} B at the "
        f"start, while there is an input; channels have {found['channel_bytes']} B, and "
        f"{held:.0f} B with room to grow"
    )
    value = found["peak_in_motion"] / count
    return {"bytes_per_particle": figure(value, "B", 300.0, "lower", how)}


def droplet_figures(count: int) -> Figures:
    """Measure droplets that collide; their number changes, and all count.

    They were put at random, so that in the first frame every second one meets another; what is
    measured is the spray that is left.
    """
    case = {"scene": "spray", "count": count, "warm": 1}
    how = (
        f"{count} droplets at first, which fill {100 * SPRAY_FILLED:g} % of a cube and fly at "
        f"{SPRAY_SPEED:g} m/s along each axis, {STEPS} steps of {1e3 * SPRAY_STEP:g} ms after the "
        "same number"
    )
    try:
        found = measure(case)
    except PeerError as error:
        return {"droplet_steps_per_s": figure(None, "1/s", 5.0e6, "higher", str(error))}
    accounts = found["accounts"]
    satellites = accounts.pop("satellites", 0)
    how += (
        f": a step takes {found['step_seconds_mean']:.3g} s, with "
        f"{sum(accounts.values()) / STEPS:.0f} collisions and {satellites / STEPS:.0f} satellites, "
        f"{found['threads']} threads"
    )
    rate = found["particle_steps"] / sum(found["step_seconds"])
    return {"droplet_steps_per_s": figure(rate, "1/s", 5.0e6, "higher", how)}


def rank_figures(n: int) -> Figures:
    """Compare two ranks of one thread with one."""
    case = standing(n, n // 2)
    how = f"Position-Based Fluid, {STEPS} steps of {n * n * (n // 2)} particles"
    return {"ranks2_speedup": ranks2_speedup(CASES, case, "step_seconds", how)}


def measure(case: Case) -> dict[str, Any]:
    """Run a case of ours in a process of its own."""
    found: dict[str, Any] = run_apart(CASES, case)
    return found
