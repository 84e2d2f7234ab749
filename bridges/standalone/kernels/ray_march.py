"""Ray marching: a picture of smoke, by absorption and light that is scattered once or more.

Along a ray x(t), with extinction s(x) = sigma * density and transmittance T(t) = exp(-int s dt),

    L = int T(t) s(x) [albedo (key(x) + sky(x)) + emission] dt + T(end) * what stands behind

Light reaches x through the optical depth tau towards its source, which a coarse light volume
stores. Light that is scattered more than once is a sum of octaves, each of which is weaker, travels
deeper and is less directed (Wrenninge, Kulla and Lundqvist, "Oz: The Great and Volumetric",
SIGGRAPH Talks 2013). Fields are dense arrays with samples at voxel centres; a `lattice` holds
origin and voxel size, float64 [4]; a `camera` is float64 [5, 3]: position, right, upward, forward,
and (half the height of a parallel view, slope of a perspective one, width over height). Solids that
stand in the smoke are the subject of ray_surfaces.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, parallel_kernel, prange

ONE = np.uint64(1)
CELL = 8  # voxels along the cells in which empty space is skipped
FAR = np.float32(1e30)


@device
def camera_ray(camera, x, y):
    """Origin and unit direction of the ray through (x, y), each -1 to 1, and its slant.

    The slant is the length along the ray for a unit of depth along the view.
    """
    px = x * camera[4, 2]
    u = px * camera[1, 0] + y * camera[2, 0]
    v = px * camera[1, 1] + y * camera[2, 1]
    w = px * camera[1, 2] + y * camera[2, 2]
    wide = camera[4, 0]
    slope = camera[4, 1]
    dx = camera[3, 0] + slope * u
    dy = camera[3, 1] + slope * v
    dz = camera[3, 2] + slope * w
    slant = math.sqrt(dx * dx + dy * dy + dz * dz)
    return (
        camera[0, 0] + wide * u,
        camera[0, 1] + wide * v,
        camera[0, 2] + wide * w,
        dx / slant,
        dy / slant,
        dz / slant,
        slant,
    )


@device
def sample_dense(values, x, y, z):
    """Trilinear value at (x, y, z), samples on whole numbers; the edge is repeated outside."""
    x = min(max(x, 0.0), values.shape[0] - 1.00001)
    y = min(max(y, 0.0), values.shape[1] - 1.00001)
    z = min(max(z, 0.0), values.shape[2] - 1.00001)
    i = np.uint64(x)
    j = np.uint64(y)
    k = np.uint64(z)
    fx = np.float32(x - i)
    fy = np.float32(y - j)
    fz = np.float32(z - k)
    a = values[i, j, k] + fz * (values[i, j, k + ONE] - values[i, j, k])
    b = values[i, j + ONE, k] + fz * (values[i, j + ONE, k + ONE] - values[i, j + ONE, k])
    low = a + fy * (b - a)
    i += ONE
    a = values[i, j, k] + fz * (values[i, j, k + ONE] - values[i, j, k])
    b = values[i, j + ONE, k] + fz * (values[i, j + ONE, k + ONE] - values[i, j + ONE, k])
    high = a + fy * (b - a)
    return low + fx * (high - low)


@device
def slab(position, direction, size, near, far):
    """The part of the interval (near, far) in which 0 < position + t direction < size."""
    if abs(direction) < 1e-12:
        if position <= 0.0 or position >= size:
            return 1.0, 0.0
        return near, far
    a = -position / direction
    b = (size - position) / direction
    return max(near, min(a, b)), min(far, max(a, b))


@device
def box_interval(shape, x, y, z, dx, dy, dz, far):
    """The part of a ray, in voxels, that lies in a box of `shape` voxels; near > far outside."""
    near, far = slab(x, dx, shape[0], 0.0, far)
    near, far = slab(y, dy, shape[1], near, far)
    near, far = slab(z, dz, shape[2], near, far)
    return near, far


@device
def cell_exit(position, direction, cell):
    """Length to where a ray leaves a cell along one axis, in voxels."""
    if direction > 1e-12:
        return ((cell + 1) * CELL - position) / direction
    if direction < -1e-12:
        return (cell * CELL - position) / direction
    return 1e30


@device
def empty_length(occupied, x, y, z, dx, dy, dz):
    """How far empty space reaches along the ray, in voxels; 0 where there may be something."""
    i = min(max(int(x) // CELL, 0), occupied.shape[0] - 1)
    j = min(max(int(y) // CELL, 0), occupied.shape[1] - 1)
    k = min(max(int(z) // CELL, 0), occupied.shape[2] - 1)
    if occupied[i, j, k]:
        return 0.0
    length = min(cell_exit(x, dx, i), cell_exit(y, dy, j))
    return max(min(length, cell_exit(z, dz, k)), 1e-3)


@device
def optical_depth(density, occupied, x, y, z, dx, dy, dz, step, jitter):
    """Integral of density along a ray, in voxels; all in voxels of the field."""
    near, far = box_interval(density.shape, x, y, z, dx, dy, dz, 1e30)
    total = 0.0
    t = near + jitter * step
    while t < far:
        px = x + t * dx
        py = y + t * dy
        pz = z + t * dz
        empty = empty_length(occupied, px, py, pz, dx, dy, dz)
        if empty > 0.0:
            t += step * max(1.0, math.ceil(empty / step))
            continue
        total += step * sample_dense(density, px - 0.5, py - 0.5, pz - 0.5)
        t += step
    return total


@parallel_kernel
def mark_occupied(density, threshold, occupied):
    """Mark cells of 8 x 8 x 8 voxels in or next to which a voxel exceeds the threshold."""
    for i in prange(occupied.shape[0]):
        for j in range(occupied.shape[1]):
            for k in range(occupied.shape[2]):
                found = False
                for a in range(max(i * CELL - 1, 0), min(i * CELL + CELL + 1, density.shape[0])):
                    for b in range(
                        max(j * CELL - 1, 0), min(j * CELL + CELL + 1, density.shape[1])
                    ):
                        for c in range(
                            max(k * CELL - 1, 0), min(k * CELL + CELL + 1, density.shape[2])
                        ):
                            found = found or density[a, b, c] > threshold
                occupied[i, j, k] = found


@device
def shadow(depths, light, x, y, z, bias):
    """Part of the key light that surfaces let through to a point, softened over 5 x 5 places.

    depths [m, m] are those of the first surfaces seen from the parallel camera `light`.
    """
    size = depths.shape[0]
    if size == 0:
        return 1.0
    rx = x - light[0, 0]
    ry = y - light[0, 1]
    rz = z - light[0, 2]
    wide = light[4, 0]
    u = (rx * light[1, 0] + ry * light[1, 1] + rz * light[1, 2]) / wide
    v = (rx * light[2, 0] + ry * light[2, 1] + rz * light[2, 2]) / wide
    depth = rx * light[3, 0] + ry * light[3, 1] + rz * light[3, 2]
    column = (0.5 + 0.5 * u) * size - 0.5
    row = (0.5 - 0.5 * v) * size - 0.5
    if not (3.0 < column < size - 4.0 and 3.0 < row < size - 4.0):
        return 1.0
    i = int(row)
    j = int(column)
    fi = row - i
    fj = column - j
    lit = 0.0
    # a box of 5 x 5, moved with the point: the outer rows weigh what is left over
    for a in range(-2, 4):
        wa = 1.0 - fi if a == -2 else (fi if a == 3 else 1.0)
        for b in range(-2, 4):
            wb = 1.0 - fj if b == -2 else (fj if b == 3 else 1.0)
            if depths[i + a, j + b] > depth - bias:
                lit += wa * wb
    return lit / 25.0


@parallel_kernel
def fill_light_volume(density, occupied, lattice, sigma, ratio, towards, light, depths, bias, tau):
    """Fill a coarse volume with the optical depth towards a light.

    Args: density [nx, ny, nz]; occupied [cells]; lattice; sigma extinction 1/m of density 1; ratio
    voxels along a coarse voxel; towards [3] unit vector to the light; light, depths, bias [m] as
    `shadow` takes them; tau [mx, my, mz].
    """
    h = lattice[3]
    for i in prange(tau.shape[0]):
        for j in range(tau.shape[1]):
            for k in range(tau.shape[2]):
                x = (i + 0.5) * ratio
                y = (j + 0.5) * ratio
                z = (k + 0.5) * ratio
                depth = optical_depth(
                    density,
                    occupied,
                    x,
                    y,
                    z,
                    towards[0],
                    towards[1],
                    towards[2],
                    max(1.0, 0.75 * ratio),
                    0.5,
                )
                depth *= sigma * h
                wx = lattice[0] + x * h
                wy = lattice[1] + y * h
                wz = lattice[2] + z * h
                depth += 6.0 * (1.0 - shadow(depths, light, wx, wy, wz, bias))
                tau[i, j, k] = depth


@device
def phase(cosine, g):
    """Henyey-Greenstein phase function, 1 where light is scattered evenly."""
    base = 1.0 + g * g - 2.0 * g * cosine
    return (1.0 - g * g) / (base * math.sqrt(base))


@device
def scattered(tau, phase_0, phase_1, phase_2):
    """Light of strength 1 that arrives after an optical depth tau, by three octaves."""
    return (
        phase_0 * math.exp(-tau)
        + 0.45 * phase_1 * math.exp(-0.4 * tau)
        + 0.2 * phase_2 * math.exp(-0.16 * tau)
    )


@device
def dither(column, row):
    """Interleaved gradient noise, 0 to 1: neighbouring pixels differ evenly (Jimenez 2014)."""
    inner = 0.06711056 * column + 0.00583715 * row
    outer = 52.9829189 * (inner - math.floor(inner))
    return outer - math.floor(outer)


@parallel_kernel
def march_picture(
    camera,
    density,
    tint,
    occupied,
    lattice,
    tau_key,
    tau_sky,
    ratio,
    towards,
    strength,
    sigma,
    ramp,
    ramp_range,
    glow,
    depths,
    colors,
    floor,
    behind,
    picture,
):
    """March every pixel's ray, and put smoke before what stands behind it.

    Args: camera; density [nx, ny, nz]; tint, the same shape or [0, 0, 0], what colours are
    looked up by; occupied; lattice; tau_key and tau_sky [mx, my, mz] optical depths towards lamp
    and sky, their voxels `ratio` wide; towards [2, 3] unit vectors to them; strength [2, 3] their
    colours; sigma 1/m; ramp [n, 6] albedo and emission over ramp_range (low, high) of tint; glow
    1/m scale of emission; depths [s h, s w] and colors [s h, s w, 3] of the nearest surfaces,
    s x s to a pixel, and their light; floor its height, -inf for none; behind [h, w, 3] light of
    floor and backdrop; picture [h, w, 3] linear.
    """
    rows, columns, _ = picture.shape
    some = depths.shape[0] // rows
    for row in prange(rows):
        record = np.empty((some * some, 5))
        for column in range(columns):
            march_pixel(
                row,
                column,
                some,
                record,
                camera,
                density,
                tint,
                occupied,
                lattice,
                tau_key,
                tau_sky,
                ratio,
                towards,
                strength,
                sigma,
                ramp,
                ramp_range,
                glow,
                depths,
                colors,
                floor,
                behind,
                picture,
            )


@device
def march_pixel(
    row,
    column,
    some,
    record,
    camera,
    density,
    tint,
    occupied,
    lattice,
    tau_key,
    tau_sky,
    ratio,
    towards,
    strength,
    sigma,
    ramp,
    ramp_range,
    glow,
    depths,
    colors,
    floor,
    behind,
    picture,
):
    """One pixel of `march_picture`; record [s s, 5] is scratch: depth, clearness, light."""
    rows, columns, _ = picture.shape
    h = lattice[3]
    ox, oy, oz, dx, dy, dz, _ = camera_ray(
        camera, (2 * column + 1) / columns - 1.0, 1.0 - (2 * row + 1) / rows
    )
    ground = (floor - oy) / dy if dy < -1e-6 else FAR
    count = some * some
    farthest = 0.0
    for s in range(count):
        surface = np.float64(depths[row * some + s // some, column * some + s % some])
        record[s, 0] = min(surface, ground) / h
        record[s, 1] = -1.0
        farthest = max(farthest, record[s, 0])
    x = (ox - lattice[0]) / h
    y = (oy - lattice[1]) / h
    z = (oz - lattice[2]) / h
    near, far = box_interval(density.shape, x, y, z, dx, dy, dz, farthest)
    cosine = dx * towards[0, 0] + dy * towards[0, 1] + dz * towards[0, 2]
    phase_0 = phase(cosine, 0.45)
    phase_1 = phase(cosine, 0.25)
    phase_2 = phase(cosine, 0.1)
    step = 0.7
    inverse = 1.0 / ratio
    tinted = tint.shape[0] > 0
    last = ramp.shape[0] - 1
    entry = 0
    clear = 1.0
    red = 0.0
    green = 0.0
    blue = 0.0
    t = near + step * dither(column, row)
    while t < far and clear > 0.004:
        for s in range(count):
            if record[s, 1] < 0.0 and record[s, 0] <= t:
                record[s, 1] = clear
                record[s, 2] = red
                record[s, 3] = green
                record[s, 4] = blue
        px = x + t * dx
        py = y + t * dy
        pz = z + t * dz
        empty = empty_length(occupied, px, py, pz, dx, dy, dz)
        if empty > 0.0:
            t += step * max(1.0, math.ceil(empty / step))
            continue
        t += step
        if tinted:
            value = sample_dense(tint, px - 0.5, py - 0.5, pz - 0.5)
            place = last * (value - ramp_range[0]) / (ramp_range[1] - ramp_range[0])
            entry = int(min(max(place, 0.0), float(last)))
            part = clear * glow * h * step
            red += part * ramp[entry, 3]
            green += part * ramp[entry, 4]
            blue += part * ramp[entry, 5]
        thick = sample_dense(density, px - 0.5, py - 0.5, pz - 0.5)
        if thick <= 0.0:
            continue
        px = px * inverse - 0.5
        py = py * inverse - 0.5
        pz = pz * inverse - 0.5
        key = scattered(sample_dense(tau_key, px, py, pz), phase_0, phase_1, phase_2)
        sky = scattered(sample_dense(tau_sky, px, py, pz), 1.0, 1.0, 1.0)
        passed = math.exp(-sigma * h * step * thick)
        part = clear * (1.0 - passed)
        red += part * ramp[entry, 0] * (key * strength[0, 0] + sky * strength[1, 0])
        green += part * ramp[entry, 1] * (key * strength[0, 1] + sky * strength[1, 1])
        blue += part * ramp[entry, 2] * (key * strength[0, 2] + sky * strength[1, 2])
        clear *= passed
    for c in range(3):
        picture[row, column, c] = 0.0
    for s in range(count):
        i = row * some + s // some
        j = column * some + s % some
        if record[s, 1] < 0.0:
            record[s, 1] = clear
            record[s, 2] = red
            record[s, 3] = green
            record[s, 4] = blue
        solid = depths[i, j] < ground and depths[i, j] < FAR
        for c in range(3):
            seen = np.float64(colors[i, j, c]) if solid else behind[row, column, c]
            picture[row, column, c] += (record[s, 2 + c] + record[s, 1] * seen) / count
