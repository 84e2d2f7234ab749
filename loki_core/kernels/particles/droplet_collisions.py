"""What becomes of two droplets that touch: they coalesce, separate or bounce.

With the diameter d_s of the smaller drop, the size ratio D = d_s / d_l <= 1, the relative velocity
u and the offset b of the centres across it, the outcome depends on

    We = rho d_s |u|^2 / sigma,     X = b / (r_s + r_l)

(Ashgriz and Poo, "Coalescence and separation in binary collisions of liquid drops", J. Fluid Mech.
221, 1990). Above We_stretch(X, D) the parts of the drops that do not meet tear the drops apart;
above We_reflex(X, D) what was pressed into a disc springs back; else the drops stay one. Below
We_bounce(X, D) the gas between them keeps them apart (Estrade, Carentz, Lavergne and Biscos,
"Experimental investigation of dynamic binary collision of ethanol droplets", Int. J. Heat Fluid
Flow 20, 1999), which Ashgriz and Poo saw none of with water in air at one bar.

What separates leaves a ligament, and that breaks up into satellites (Jones and Southern,
"Physically-based droplet interaction", SCA 2017, after Ko and Ryou, J. Aerosol Sci. 36, 2005, and
Munnannur and Reitz, Int. J. Multiphase Flow 33, 2007). All pieces lie on a line and move apart as
if it was stretched, x_k = X + (s_k - s) D and v_k = V + (s_k - s) w with s the mean of s_k by mass:
their mass, momentum and centre are those of the two drops, and no two of them approach.

Kinetic energy in the frame of the centre, mu |u|^2 / 2, and surface energy, 4 pi sigma r^2, never
grow together: new surface is paid from what the collision dissipates, or is not made.

Droplets are rows of `motion` [n / 16, 8, 16], see `droplet_search`. All of it is free of fast-math:
whoever computes an outcome gets the same.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import prange, strict_kernel
from loki_core.kernels.particles.droplet_search import BEGIN, LANES, RADIUS, VX, VY, VZ, X, Y, Z

COALESCENCE, REFLEXION, STRETCHING, BOUNCE = range(4)
#: Numbers that `resolve_contacts` takes, in their order.
SETTINGS = ("surface_tension", "minimum_radius", "max_satellites", "bounce", "restitution")

BALL = 4.0 / 3.0 * math.pi
SHAPE_FACTOR = 3.351  # of a drop that is about to bounce or not (Estrade et al.)
DISSIPATED = 0.3  # of the kinetic energy, when the ligament forms (Jones and Southern)
BREAKUP = 3.0 / (4.0 * math.sqrt(2.0)) * 11.5 * 0.45  # beta = 3 / (4 sqrt 2) k1 k2
SATELLITE = 1.89  # radii of the ligament: a ball of the wavelength 9.02 r that grows fastest
WHOLE = 1.0 - 1.0e-12  # a count that is a hair below a whole number is that number


@strict_kernel
def cap(height):
    """Part of a ball's volume in a cap of this height, in radii; all of it from two on."""
    if height >= 2.0:
        return 1.0
    if height > 1.0:
        return 1.0 - 0.25 * (2.0 - height) ** 2 * (1.0 + height)
    return 0.25 * height * height * (3.0 - height)


@strict_kernel
def weber_stretching(offset, ratio):
    """Weber number above which drops separate by stretching; inf where they never do.

    With t = (1 - X)(1 + D) and the parts phi_s, phi_l of the drops that are in each other's way

        We = 4 (1 + D^3)^2 sqrt(3 (1 + D)(1 - X)(D^3 phi_s + phi_l))
             / (D^2 [(1 + D^3) - (1 - X^2)(phi_s + D^3 phi_l)]).
    """
    cube = ratio**3
    height = (1.0 - offset) * (1.0 + ratio)
    small, large = cap(height / ratio), cap(height)
    surface = math.sqrt(3.0 * (1.0 + ratio) * (1.0 - offset) * (cube * small + large))
    stretched = (1.0 + cube) - (1.0 - offset * offset) * (small + cube * large)
    if stretched <= 0.0:
        return math.inf
    return 4.0 * (1.0 + cube) ** 2 * surface / (ratio * ratio * stretched)


@strict_kernel
def weber_reflexion(offset, ratio):
    """Weber number above which drops separate by reflexion; inf where they never do.

    With e = X (1 + D) / 2, n1 = 2 (1 - e)^2 sqrt(1 - e^2) - 1 and
    n2 = 2 (D - e)^2 sqrt(D^2 - e^2) - D^3

        We = 3 [7 (1 + D^3)^(2/3) - 4 (1 + D^2)] D (1 + D^3)^2 / (D^6 n1 + n2).
    """
    cube = ratio**3
    shift = 0.5 * offset * (1.0 + ratio)
    if shift >= ratio:  # nothing of the smaller drop is opposite to the larger one's centre
        return math.inf
    first = 2.0 * (1.0 - shift) ** 2 * math.sqrt(1.0 - shift * shift) - 1.0
    second = 2.0 * (ratio - shift) ** 2 * math.sqrt(ratio * ratio - shift * shift) - cube
    reflected = cube * cube * first + second
    if reflected <= 0.0:
        return math.inf
    surface = 7.0 * (1.0 + cube) ** (2.0 / 3.0) - 4.0 * (1.0 + ratio * ratio)
    return 3.0 * surface * ratio * (1.0 + cube) ** 2 / reflected


@strict_kernel
def weber_bounce(offset, ratio):
    """Weber number below which drops bounce, D (1 + D^2)(4 F - 12) / (phi_l (1 - X^2))."""
    height = (1.0 - offset) * (1.0 + ratio)
    meeting = cap(height) * (1.0 - offset * offset)
    if meeting <= 0.0:
        return math.inf
    return ratio * (1.0 + ratio * ratio) * (4.0 * SHAPE_FACTOR - 12.0) / meeting


@strict_kernel
def regime(weber, offset, ratio, bounce):
    """What two drops do: COALESCENCE, REFLEXION, STRETCHING or BOUNCE."""
    if bounce and weber < weber_bounce(offset, ratio):
        return BOUNCE
    if weber > weber_stretching(offset, ratio):
        return STRETCHING
    if weber > weber_reflexion(offset, ratio):
        return REFLEXION
    return COALESCENCE


@strict_kernel
def critical_offset(weber, offset, ratio):
    """Offset X below `offset` at which drops of this Weber number just coalesce, or 0."""
    low, high = 0.0, offset
    if weber >= weber_stretching(low, ratio):
        return 0.0
    for _ in range(32):
        middle = 0.5 * (low + high)
        if weber > weber_stretching(middle, ratio):
            high = middle
        else:
            low = middle
    return high


@strict_kernel
def breakup_radius(weber):
    """Radius r of a ligament when it breaks up, over that with which it begins.

    A cylinder of radius r_0 with the volume of a ball of that radius is pulled to the length
    4/3 r_0 + k2 |u| t, until the time k1 sqrt(rho r^3 / sigma) in which the fastest wave cuts it:

        beta sqrt(We_0) r^(7/2) + r^2 = 1,     We_0 = 2 r_0 rho |u|^2 / sigma.

    The left side is convex, so Newton's method comes down from any r that is too large.
    """
    factor = BREAKUP * math.sqrt(weber)
    radius = min(1.0, factor ** (-2.0 / 7.0)) if factor > 0.0 else 1.0
    for _ in range(60):
        root = math.sqrt(radius)
        value = factor * radius**3 * root + radius * radius - 1.0
        step = value / (3.5 * factor * radius * radius * root + 2.0 * radius)
        radius -= step
        if not step > 1.0e-15:
            break
    return radius


@strict_kernel
def satellite_count(volume, weber, minimum_radius, most):
    """How many balls a ligament of this volume [m^3] breaks up into, and what they hold [m^3].

    Fewer and larger ones where that would be too many or too small; what is left goes back.
    """
    radius = SATELLITE * breakup_radius(weber) * np.cbrt(volume / BALL)
    each = BALL * max(radius, minimum_radius) ** 3
    count = math.floor(volume / (each * WHOLE))
    if count > most:
        count = most
        each = volume / max(most, 1)
    return np.int64(count), each


@strict_kernel
def stretched_volume(kinetic, large, surface_tension, offset, ratio):
    """Volume [m^3] of the ligament between two drops that tear apart, part C of what meets.

        C = (E_t - E_s - E_d) / (E_t + E_s + E_d)
        E_t = K / (1 + D^3) [(1 + D^3) - (1 - X^2)(phi_s + D^3 phi_l)]
        E_s = 2 sigma sqrt(pi V_l r_l t (phi_l + D^3 phi_s)),     E_d = 0.3 K

    Args: kinetic, K = mu |u|^2 / 2 [J]; large, radius of the larger drop [m].
    """
    cube = ratio**3
    height = (1.0 - offset) * (1.0 + ratio)
    small_part, large_part = cap(height / ratio), cap(height)
    volume = BALL * large**3
    met = volume * (large_part + cube * small_part)
    stretching = (1.0 + cube) - (1.0 - offset * offset) * (small_part + cube * large_part)
    stretching *= kinetic / (1.0 + cube)
    surface = 2.0 * surface_tension * math.sqrt(math.pi * large * height * met)
    lost = surface + DISSIPATED * kinetic
    return met * max(0.0, (stretching - lost) / (stretching + lost))


@strict_kernel
def pieces_of(what, count, each, share, volume1, volume2):
    """Volumes [m^3] of both drops and of a satellite, when there are `count` satellites.

    After reflexion all are alike; satellites of stretching take `share` of theirs from the first.
    """
    if count == 0:
        return volume1, volume2, 0.0
    if what == REFLEXION:
        alike = (volume1 + volume2) / (count + 2)
        return alike, alike, alike
    return volume1 - count * each * share, volume2 - count * each * (1.0 - share), each


@strict_kernel
def surface_of(volume):
    """Surface [m^2] of a ball of this volume [m^3]."""
    return 4.0 * math.pi * np.cbrt(volume / BALL) ** 2


@strict_kernel
def break_up(what, weber, offset, volume1, volume2, kinetic, budget, settings):
    """Volumes [m^3] of both drops and of a satellite, and how many of those there are.

    Args: volume1, volume2, of the larger and the smaller drop [m^3]; kinetic, mu |u|^2 / 2 [J];
    budget, energy [J] that new surface may take.
    """
    surface_tension, minimum_radius, most, _, _ = settings
    whole = volume1 + volume2
    large, small = np.cbrt(volume1 / BALL), np.cbrt(volume2 / BALL)
    ratio = min(1.0, small / large)
    each, share, count = 0.0, 0.0, 0
    if what == STRETCHING and most > 0.0:
        ligament = stretched_volume(kinetic, large, surface_tension, offset, ratio)
        height = (1.0 - offset) * (1.0 + ratio)
        met1, met2 = volume1 * cap(height), volume2 * cap(height / ratio)
        if ligament > 0.0:
            share = met1 / (met1 + met2)
            around = weber * np.cbrt(ligament / BALL) / small
            count, each = satellite_count(ligament, around, minimum_radius, most)
    elif what == REFLEXION and most > 0.0:
        around = weber * np.cbrt(whole / BALL) / small
        count, each = satellite_count(whole, around, minimum_radius, most + 2.0)
        count = max(count - 2, 0)
    before = surface_of(volume1) + surface_of(volume2)
    while count > 0:  # as many as can be paid for
        after1, after2, one = pieces_of(what, count, each, share, volume1, volume2)
        surface = surface_of(after1) + surface_of(after2) + count * surface_of(one)
        if surface_tension * (surface - before) <= budget:
            break
        count -= 1
    after1, after2, one = pieces_of(what, count, each, share, volume1, volume2)
    return after1, after2, one, count


@strict_kernel
def dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@strict_kernel
def minus(a, b):
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


@strict_kernel
def moved(a, factor, b):
    """Return a + factor b."""
    return a[0] + factor * b[0], a[1] + factor * b[1], a[2] + factor * b[2]


@strict_kernel
def cross(a, b):
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@strict_kernel
def separate(what, weber, offset, ratio, p, u, restitution):
    """The line from the smaller drop to the larger one when they part [m], and its rate [m/s].

    Args: p, u, place [m] and velocity [m/s] of the larger drop against the smaller one.

    Drops that stretch pass each other: they part where they would have left each other, as far
    beyond the nearest point of their paths as they touched before it, with the part

        Z = (X - X_c) / (1 - X_c)

    of their velocity (O'Rourke 1981, with X_c the offset at which they would have coalesced). Those
    that reflect or bounce part where they touch. A bounce gives the velocity along the line of
    centres back, times `restitution`. Reflexion leaves 1 - We_reflex / We of the energy (Jones and
    Southern); it takes none across the line of centres if there is enough, which would take
    angular momentum too.
    """
    square, along = dot(u, u), dot(p, u)
    if what == STRETCHING:
        critical = critical_offset(weber, offset, ratio)
        kept = (offset - critical) / (1.0 - critical)
        return moved(p, -2.0 * along / square, u), (kept * u[0], kept * u[1], kept * u[2])
    normal = along / math.sqrt(dot(p, p))  # negative
    across = max(0.0, square - normal * normal)
    slide, back = 1.0, -restitution * normal
    if what == REFLEXION:
        left = square * max(0.0, 1.0 - weber_reflexion(offset, ratio) / weber)
        slide = math.sqrt(0.5 * left / across) if across > 0.5 * left else 1.0
        back = math.sqrt(max(0.0, left - slide * slide * across))
    sliding = (slide * u[0], slide * u[1], slide * u[2])
    return p, moved(sliding, (back - slide * normal) / math.sqrt(dot(p, p)), p)


@strict_kernel
def load_droplet(motion, row, time, dt):
    """Place [m] at a time, velocity [m/s] and radius [m] of a row."""
    leaf, lane = row // LANES, row % LANES
    place = motion[leaf, X, lane], motion[leaf, Y, lane], motion[leaf, Z, lane]
    velocity = motion[leaf, VX, lane], motion[leaf, VY, lane], motion[leaf, VZ, lane]
    return moved(place, time - dt, velocity), velocity, motion[leaf, RADIUS, lane]


@strict_kernel
def store_droplet(motion, row, time, dt, place, velocity, radius):
    """Let a row be at a place at a time, and go on from there."""
    leaf, lane = row // LANES, row % LANES
    end = moved(place, dt - time, velocity)
    for axis in range(3):
        motion[leaf, X + axis, lane] = end[axis]
        motion[leaf, VX + axis, lane] = velocity[axis]
    motion[leaf, RADIUS, lane] = radius
    motion[leaf, BEGIN, lane] = time


@strict_kernel
def resolve_contacts(
    time, primary, secondary, dt, settings, motion, mass, luggage,
    outcome, satellites, satellite_motion, satellite_mass, satellite_luggage, account,
):  # fmt: skip
    """Let pairs of droplets, of which none is in two, become what they become.

    Args: time [n] s; primary, secondary [n], rows of the larger and the smaller drop; settings, in
    the order of SETTINGS; mass [rows] kg; luggage [rows, c], channels that mix. Filled in: outcome
    [n]; satellites [n], how many; satellite_motion [n, most, 8]; satellite_mass [n];
    satellite_luggage [n, c]; account [n, 4], angular momentum [kg m^2/s] and energy [J] lost.
    """
    for pair in prange(time.shape[0]):
        outcome[pair], satellites[pair], satellite_mass[pair] = resolve_contact(
            time[pair], primary[pair], secondary[pair], dt, settings, motion, mass, luggage,
            satellite_motion[pair], satellite_luggage[pair], account[pair],
        )  # fmt: skip


@strict_kernel
def resolve_varied_contacts(
    time, primary, secondary, dt, settings, motion, mass, luggage,
    outcome, satellites, satellite_motion, satellite_mass, satellite_luggage, account,
):  # fmt: skip
    """Do the same with settings [n, 5] of each pair."""
    for pair in prange(time.shape[0]):
        own = (
            settings[pair, 0], settings[pair, 1], settings[pair, 2], settings[pair, 3],
            settings[pair, 4],
        )  # fmt: skip
        outcome[pair], satellites[pair], satellite_mass[pair] = resolve_contact(
            time[pair], primary[pair], secondary[pair], dt, own, motion, mass, luggage,
            satellite_motion[pair], satellite_luggage[pair], account[pair],
        )  # fmt: skip


@strict_kernel
def resolve_contact(
    time, primary, secondary, dt, settings, motion, mass, luggage,
    satellite_motion, satellite_luggage, account,
):  # fmt: skip
    """Resolve one contact; return what it is, the count of satellites and their mass [kg]."""
    surface_tension, _, _, bounce, restitution = settings
    x1, v1, r1 = load_droplet(motion, primary, time, dt)
    x2, v2, r2 = load_droplet(motion, secondary, time, dt)
    m1, m2 = mass[primary], mass[secondary]
    volume1, volume2 = BALL * r1**3, BALL * r2**3
    total = m1 + m2
    reduced = m1 / total * m2
    p, u = minus(x1, x2), minus(v1, v2)
    centre, drift = moved(x2, m1 / total, p), moved(v2, m1 / total, u)
    square, along = dot(u, u), dot(p, u)
    weber = total / (volume1 + volume2) * 2.0 * r2 * square / surface_tension
    offset = min(1.0, math.sqrt(max(0.0, dot(p, p) - along * along / square)) / (r1 + r2))
    what = regime(weber, offset, r2 / r1, bounce != 0.0)
    kinetic = 0.5 * reduced * square
    spin = cross(p, u)
    before = surface_of(volume1) + surface_of(volume2)

    if what == COALESCENCE:
        store_droplet(motion, primary, time, dt, centre, drift, np.cbrt(r1**3 + r2**3))
        motion[secondary // LANES, RADIUS, secondary % LANES] = -1.0
        mass[primary], mass[secondary] = total, 0.0
        for k in range(luggage.shape[1]):
            mixed = m1 / total * luggage[primary, k] + m2 / total * luggage[secondary, k]
            luggage[primary, k] = mixed
        for axis in range(3):
            account[axis] = reduced * spin[axis]
        account[3] = kinetic + surface_tension * (before - surface_of(volume1 + volume2))
        return what, 0, 0.0

    line, growth = separate(what, weber, offset, r2 / r1, p, u, restitution)
    budget = kinetic - 0.5 * reduced * dot(growth, growth)
    after1, after2, each, count = break_up(
        what, weber, offset, volume1, volume2, kinetic, budget, settings
    )
    new1, new2, one = m1, m2, 0.0
    if count > 0:
        if what == REFLEXION:
            new1 = new2 = total / (count + 2)
            share = m1 / total
        else:
            new1, new2 = m1 * (after1 / volume1), m2 * (after2 / volume2)
            share = (m1 - new1) / (m1 - new1 + m2 - new2)
        one = (m1 - new1 + m2 - new2) / count
        r1, r2 = np.cbrt(after1 / BALL), np.cbrt(after2 / BALL)
        mass[primary], mass[secondary] = new1, new2
        for k in range(luggage.shape[1]):
            mixed = share * luggage[primary, k] + (1.0 - share) * luggage[secondary, k]
            satellite_luggage[k] = mixed
            if what == REFLEXION:
                luggage[primary, k] = mixed
                luggage[secondary, k] = mixed

    # Side by side, as far apart as they are or as they have to be: nothing overlaps.
    radius = np.cbrt(each / BALL)
    length = r1 + r2 + 2.0 * count * radius
    longer = max(1.0, length / math.sqrt(dot(line, line)))
    mean, spread = new1 / total, 0.0
    for k in range(count):
        mean += one / total * ((r2 + (2 * k + 1) * radius) / length)
    for k in range(count):
        spread += one * ((r2 + (2 * k + 1) * radius) / length - mean) ** 2
    spread += new1 * (1.0 - mean) ** 2 + new2 * mean * mean
    slower = min(1.0, math.sqrt(reduced / spread))
    for k in range(count + 2):
        s = 1.0 if k == count else (0.0 if k > count else (r2 + (2 * k + 1) * radius) / length)
        place = moved(centre, longer * (s - mean), line)
        velocity = moved(drift, slower * (s - mean), growth)
        if k == count:
            store_droplet(motion, primary, time, dt, place, velocity, r1)
        elif k > count:
            store_droplet(motion, secondary, time, dt, place, velocity, r2)
        else:
            end = moved(place, dt - time, velocity)
            for axis in range(3):
                satellite_motion[k, X + axis] = end[axis]
                satellite_motion[k, VX + axis] = velocity[axis]
            satellite_motion[k, RADIUS] = radius
            satellite_motion[k, BEGIN] = time
    kept = cross(line, growth)
    for axis in range(3):
        account[axis] = reduced * spin[axis] - spread * longer * slower * kept[axis]
    grown = 0.5 * spread * slower * slower * dot(growth, growth)
    after = surface_of(after1) + surface_of(after2) + count * surface_of(each)
    account[3] = kinetic - grown + surface_tension * (before - after)
    return what, count, one
