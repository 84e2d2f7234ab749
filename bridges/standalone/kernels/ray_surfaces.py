"""Ray surfaces: solids and the floor of a picture of smoke, with the shadows that fall on them.

Arguments are those of ray_march: dense fields, lattices and cameras.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, parallel_kernel, prange
from loki_vfx.bridges.standalone.kernels.ray_march import (
    FAR,
    box_interval,
    camera_ray,
    dither,
    optical_depth,
    sample_dense,
    shadow,
)


def sky_directions(count):
    """Unit vectors [count, 3] into the sky, spread so that a floor sees as much of it in each."""
    n = np.arange(count)
    radius = np.sqrt((n + 0.5) / count)
    angle = n * np.pi * (3.0 - np.sqrt(5.0))  # of sunflower seeds
    height = np.sqrt(1.0 - radius**2)
    return np.stack([radius * np.cos(angle), height, radius * np.sin(angle)], axis=1)


SKY = sky_directions(9)  # from one direction alone, the sky would throw shadows with edges


@device
def first_crossing(distance, x, y, z, dx, dy, dz, scale, far):
    """Length, in voxels, at which a ray enters a level set, or -1; `scale` is 1 / voxel size."""
    near, far = box_interval(distance.shape, x, y, z, dx, dy, dz, far)
    t = near
    before = 1.0
    last = near
    while t < far:
        value = scale * sample_dense(distance, x + t * dx - 0.5, y + t * dy - 0.5, z + t * dz - 0.5)
        if value <= 0.0:
            if t == near:
                return -1.0  # the ray begins inside: a cut by the box is no surface
            return last + (t - last) * before / (before - value)
        last = t
        before = value
        t += max(0.9 * value, 0.2)
    return -1.0


@parallel_kernel
def trace_level_set(camera, distance, lattice, color, depths, normals, colors):
    """Put a level set into the buffers of nearest surfaces where it is nearer.

    Args: camera; distance [nx, ny, nz] m, negative inside; lattice; color [3]; depths [h, w] along
    the ray [m], colors and normals [h, w, 3].
    """
    rows, columns = depths.shape
    h = lattice[3]
    scale = 1.0 / h
    for row in prange(rows):
        for column in range(columns):
            ox, oy, oz, dx, dy, dz, _ = camera_ray(
                camera, (2 * column + 1) / columns - 1.0, 1.0 - (2 * row + 1) / rows
            )
            x = (ox - lattice[0]) * scale
            y = (oy - lattice[1]) * scale
            z = (oz - lattice[2]) * scale
            far = depths[row, column] * scale
            t = first_crossing(distance, x, y, z, dx, dy, dz, scale, far)
            if t < 0.0:
                continue
            px = x + t * dx - 0.5
            py = y + t * dy - 0.5
            pz = z + t * dz - 0.5
            # a voxel to each side: nearer differences show the cells of trilinear interpolation
            nx = sample_dense(distance, px + 1, py, pz) - sample_dense(distance, px - 1, py, pz)
            ny = sample_dense(distance, px, py + 1, pz) - sample_dense(distance, px, py - 1, pz)
            nz = sample_dense(distance, px, py, pz + 1) - sample_dense(distance, px, py, pz - 1)
            length = max(math.sqrt(nx * nx + ny * ny + nz * nz), 1e-20)
            depths[row, column] = t * h
            normals[row, column, 0] = nx / length
            normals[row, column, 1] = ny / length
            normals[row, column, 2] = nz / length
            for c in range(3):
                colors[row, column, c] = color[c]


@device
def light_at(density, occupied, lattice, sigma, towards, light, depths, bias, x, y, z, jitter):
    """Parts of key light and sky light that reach a point, past surfaces and through smoke."""
    h = lattice[3]
    px = (x - lattice[0]) / h
    py = (y - lattice[1]) / h
    pz = (z - lattice[2]) / h
    tau = optical_depth(
        density,
        occupied,
        px,
        py,
        pz,
        towards[0, 0],
        towards[0, 1],
        towards[0, 2],
        2.0,
        jitter,
    )
    key = math.exp(-sigma * h * tau) * shadow(depths, light, x, y, z, bias)
    sky = 0.0
    for n in range(SKY.shape[0]):
        tau = optical_depth(
            density, occupied, px, py, pz, SKY[n, 0], SKY[n, 1], SKY[n, 2], 3.0, jitter
        )
        sky += math.exp(-0.2 * sigma * h * tau)  # smoke passes much of a wide light on
    return key, sky / SKY.shape[0]


@parallel_kernel
def light_surfaces(
    camera,
    density,
    occupied,
    lattice,
    sigma,
    towards,
    strength,
    light,
    shadow_depths,
    bias,
    depths,
    normals,
    colors,
):
    """Turn the colours of surfaces into the light that they send back to the camera.

    Args: camera; density [nx, ny, nz]; occupied; lattice; sigma 1/m; towards [2, 3] whose first row
    is the unit vector to the lamp; strength [2, 3] colours of lamp and sky; light and shadow_depths
    as `shadow` takes them; bias [m]; depths [h, w] m; normals [h, w, 3], 0 where a surface glows;
    colors [h, w, 3].
    """
    rows, columns = depths.shape
    for row in prange(rows):
        for column in range(columns):
            nx = np.float64(normals[row, column, 0])
            ny = np.float64(normals[row, column, 1])
            nz = np.float64(normals[row, column, 2])
            depth = np.float64(depths[row, column])
            if depth >= FAR or nx * nx + ny * ny + nz * nz < 0.1:
                continue
            ox, oy, oz, dx, dy, dz, _ = camera_ray(
                camera, (2 * column + 1) / columns - 1.0, 1.0 - (2 * row + 1) / rows
            )
            facing = nx * dx + ny * dy + nz * dz
            if facing > 0.0:  # an open surface, seen from behind
                nx = -nx
                ny = -ny
                nz = -nz
            key, sky = light_at(
                density,
                occupied,
                lattice,
                sigma,
                towards,
                light,
                shadow_depths,
                bias,
                ox + depth * dx + bias * nx,
                oy + depth * dy + bias * ny,
                oz + depth * dz + bias * nz,
                dither(column, row),
            )
            lit = nx * towards[0, 0] + ny * towards[0, 1] + nz * towards[0, 2]
            # the half-way vector between lamp and eye
            hx = towards[0, 0] - dx
            hy = towards[0, 1] - dy
            hz = towards[0, 2] - dz
            half = max(nx * hx + ny * hy + nz * hz, 0.0)
            half /= max(math.sqrt(hx * hx + hy * hy + hz * hz), 1e-9)
            gloss = 0.15 * half**40 * key if lit > 0.0 else 0.0
            lit = key * max(lit, 0.0)
            sky = 0.8 + sky * (0.8 + 0.5 * ny)  # of which 0.8 comes back from the surroundings
            edge = 1.0 - min(abs(facing), 1.0)
            rim = 0.06 * edge * edge * edge
            for c in range(3):
                light_in = lit * strength[0, c] + sky * strength[1, c]
                sent = (colors[row, column, c] + rim) * light_in + gloss * strength[0, c]
                colors[row, column, c] = sent


@parallel_kernel
def light_backdrop(
    camera,
    density,
    occupied,
    lattice,
    sigma,
    towards,
    strength,
    light,
    shadow_depths,
    bias,
    floor,
    middle,
    extent,
    backdrop,
    behind,
):
    """Fill `behind` with a soft backdrop, and with a floor of its colours that shadows fall on.

    Args: as `light_surfaces`; floor its height [m], -inf for none; middle [3] and extent [m] of the
    scene; backdrop [2, 3] colours at the lower and upper edge; behind [h, w, 3].
    """
    rows, columns, _ = behind.shape
    for row in prange(rows):
        level = 1.0 - (row + 0.5) / rows
        for column in range(columns):
            ox, oy, oz, dx, dy, dz, _ = camera_ray(
                camera, (2 * column + 1) / columns - 1.0, 1.0 - (2 * row + 1) / rows
            )
            ground = (floor - oy) / dy if dy < -1e-6 else FAR
            key = 1.0
            sky = 1.0
            pool = 1.0
            if 0.0 < ground < FAR:
                x = ox + ground * dx
                y = oy + ground * dy
                z = oz + ground * dz
                key, sky = light_at(
                    density,
                    occupied,
                    lattice,
                    sigma,
                    towards,
                    light,
                    shadow_depths,
                    bias,
                    x,
                    y,
                    z,
                    dither(column, row),
                )
                key = 0.25 + 0.75 * key  # the surroundings throw some light back
                sky = 0.5 + 0.5 * sky
                away = ((x - middle[0]) ** 2 + (z - middle[2]) ** 2) / (extent * extent)
                pool = 1.0 + 0.5 * math.exp(-0.7 * away)  # the lamp stands near the scene
            for c in range(3):
                whole = towards[0, 1] * strength[0, c] + strength[1, c]
                part = key * towards[0, 1] * strength[0, c] + sky * strength[1, c]
                color = backdrop[0, c] + level * (backdrop[1, c] - backdrop[0, c])
                behind[row, column, c] = pool * color * part / whole
