"""Strand raster: a picture of thousands of thin strands, from nodes along them.

A strand is lit as a fibre (Kajiya and Kay, "Rendering Fur with Three Dimensional Textures", 1989):
diffuse light goes with the sine between tangent and lamp. Its highlights are two Gaussians of the
half angle h between the inclinations of lamp and eye (Marschner et al., "Light Scattering from
Human Hair Fibers", 2003), of which one is shifted to the root and white, one to the tip and tinted:

    L = albedo sin(t, l) + w_R exp(-(h - a)^2 / 2 b^2) + albedo w_TRT exp(-(h + 3a/2)^2 / 2 (2b)^2)

Light reaches a strand through the others: they are a medium of extinction s = area / volume, that
ray_march takes from there. Segments are drawn front to back: each adds its colour times what is
left of the pixel, clear' = clear (1 - coverage), so that strands much thinner than a pixel add up
to what they cover. A segment runs from node first[i] to the next; a `camera` is that of ray_march.
"""

from __future__ import annotations

import math

import numpy as np

from loki_core.kernels.jit import device, kernel, parallel_kernel, prange
from loki_vfx.bridges.standalone.kernels.ray_march import sample_dense

BAND = 16  # rows that one thread draws at a time
NEAR = 1e-6  # m: what is nearer to the eye is not drawn
CLEAREST = 0.004  # of a pixel; what stands behind adds less than a step of colour
SHIFT = -0.13  # rad, of the white highlight to the root
WIDTH = 0.14  # rad, of the white highlight


@parallel_kernel
def project_nodes(camera, rows, columns, nodes, radius, screen):
    """Fill `screen` [n, 4] with column, row, depth along the view [m] and radius in pixels.

    Args: camera; rows and columns of the picture; nodes [n, 3] m; radius [n] m.
    """
    for i in prange(nodes.shape[0]):
        x = nodes[i, 0] - camera[0, 0]
        y = nodes[i, 1] - camera[0, 1]
        z = nodes[i, 2] - camera[0, 2]
        depth = x * camera[3, 0] + y * camera[3, 1] + z * camera[3, 2]
        # half the picture's height at this depth, m
        half = camera[4, 0] + camera[4, 1] * max(depth, NEAR)
        u = (x * camera[1, 0] + y * camera[1, 1] + z * camera[1, 2]) / half
        v = (x * camera[2, 0] + y * camera[2, 1] + z * camera[2, 2]) / half
        screen[i, 0] = (0.5 + 0.5 * u / camera[4, 2]) * columns - 0.5
        screen[i, 1] = (0.5 - 0.5 * v) * rows - 0.5
        screen[i, 2] = depth
        screen[i, 3] = 0.5 * rows * radius[i] / half


@kernel
def splat_strands(nodes, radius, first, lattice, density):
    """Add to `density` [nx, ny, nz] the area of strands in a voxel over its volume [1/m].

    Args: nodes [n, 3] m; radius [n] m; first [m]; lattice [4] origin and voxel size [m].
    """
    h = lattice[3]
    for s in range(first.shape[0]):
        a = first[s]
        b = a + 1
        dx = nodes[b, 0] - nodes[a, 0]
        dy = nodes[b, 1] - nodes[a, 1]
        dz = nodes[b, 2] - nodes[a, 2]
        length = math.sqrt(dx * dx + dy * dy + dz * dz)
        count = 1 + int(length / h)
        area = length * (radius[a] + radius[b]) / count
        for step in range(count):
            t = (step + 0.5) / count
            x = (nodes[a, 0] + t * dx - lattice[0]) / h - 0.5
            y = (nodes[a, 1] + t * dy - lattice[1]) / h - 0.5
            z = (nodes[a, 2] + t * dz - lattice[2]) / h - 0.5
            i = min(max(math.floor(x), 0), density.shape[0] - 2)
            j = min(max(math.floor(y), 0), density.shape[1] - 2)
            k = min(max(math.floor(z), 0), density.shape[2] - 2)
            add_trilinear(density, i, j, k, x - i, y - j, z - k, area / (h * h * h))


@device
def add_trilinear(density, i, j, k, fx, fy, fz, value):
    """Share a value among the eight voxels around a place."""
    for a in range(2):
        wa = fx if a else 1.0 - fx
        for b in range(2):
            wb = wa * (fy if b else 1.0 - fy)
            density[i + a, j + b, k] += value * wb * (1.0 - fz)
            density[i + a, j + b, k + 1] += value * wb * fz


@device
def arrived(tau):
    """Light that reaches a strand after an optical depth: directly, and scattered by others."""
    return math.exp(-tau), 0.30 * math.exp(-0.2 * tau)


@parallel_kernel
def light_strands(
    camera,
    nodes,
    tangents,
    albedo,
    lattice,
    tau_key,
    tau_sky,
    towards,
    strength,
    gloss,
    colors,
):
    """Fill `colors` [n, 3] with the light that strands send to the camera.

    Args: camera; nodes [n, 3] m; tangents [n, 3] unit vectors from root to tip; albedo [n, 3];
    lattice [4] of the light volumes; tau_key and tau_sky [mx, my, mz] optical depths; towards
    [2, 3] unit vectors to lamp and sky; strength [2, 3] their colours; gloss, of the highlights.
    """
    h = lattice[3]
    for i in prange(nodes.shape[0]):
        x = (nodes[i, 0] - lattice[0]) / h - 0.5
        y = (nodes[i, 1] - lattice[1]) / h - 0.5
        z = (nodes[i, 2] - lattice[2]) / h - 0.5
        direct, spread = arrived(sample_dense(tau_key, x, y, z))
        open_sky, deep_sky = arrived(sample_dense(tau_sky, x, y, z))
        tx = tangents[i, 0]
        ty = tangents[i, 1]
        tz = tangents[i, 2]
        lx = towards[0, 0]
        ly = towards[0, 1]
        lz = towards[0, 2]
        vx, vy, vz = towards_eye(camera, nodes[i, 0], nodes[i, 1], nodes[i, 2])
        sine_l = min(max(tx * lx + ty * ly + tz * lz, -1.0), 1.0)
        sine_v = min(max(tx * vx + ty * vy + tz * vz, -1.0), 1.0)
        cosine_l = math.sqrt(1.0 - sine_l * sine_l)
        cosine_v = math.sqrt(1.0 - sine_v * sine_v)
        # the angle between lamp and eye around the strand
        around = lx * vx + ly * vy + lz * vz - sine_l * sine_v
        around = min(max(around / max(cosine_l * cosine_v, 1e-4), -1.0), 1.0)
        half = math.sqrt(0.5 + 0.5 * around)
        angle = 0.5 * (math.asin(sine_l) + math.asin(sine_v))
        white = gloss * (0.2 + 0.8 * half) * bell(angle - SHIFT, WIDTH)
        tinted = 2.2 * gloss * (0.3 + 0.7 * half) * bell(angle + 1.5 * SHIFT, 2.0 * WIDTH)
        through = 0.35 * (0.5 - 0.5 * around) ** 3  # light from behind
        # what faces the lamp is bright, but a strand has no dark side of its own
        diffuse = cosine_l * (0.45 + 0.25 * half)
        for c in range(3):
            own = albedo[i, c]
            body = own * (diffuse + through * cosine_l + tinted)
            key = direct * (body + white * cosine_l) + spread * own * (0.3 + 0.7 * own)
            sky = own * (2.4 * open_sky + 3.2 * deep_sky + 0.9)
            colors[i, c] = key * strength[0, c] + sky * strength[1, c]


@device
def bell(x, width):
    return math.exp(-0.5 * x * x / (width * width))


@device
def towards_eye(camera, x, y, z):
    """Unit vector from a place to the camera."""
    if camera[4, 1] == 0.0:
        return -camera[3, 0], -camera[3, 1], -camera[3, 2]
    x = camera[0, 0] - x
    y = camera[0, 1] - y
    z = camera[0, 2] - z
    length = max(math.sqrt(x * x + y * y + z * z), 1e-20)
    return x / length, y / length, z / length


@device
def band_span(screen, node, reach, rows):
    """First and last band of rows that a segment touches; none where the first is larger."""
    reach += max(screen[node, 3], screen[node + 1, 3]) + 1.0
    low = min(screen[node, 1], screen[node + 1, 1]) - reach
    high = max(screen[node, 1], screen[node + 1, 1]) + reach
    near = min(screen[node, 2], screen[node + 1, 2])
    if near <= NEAR or high < 0.0 or low > rows - 1.0:
        return 1, 0
    return int(max(low, 0.0)) // BAND, int(min(high, rows - 1.0)) // BAND


@kernel
def count_bands(screen, first, thinnest, rows, counts):
    """Count in `counts` [bands] how many segments touch each band."""
    for s in range(first.shape[0]):
        low, high = band_span(screen, first[s], thinnest, rows)
        for band in range(low, high + 1):
            counts[band] += 1


@kernel
def fill_bands(screen, first, thinnest, rows, place, nodes):
    """List the first nodes of each band's segments, in order, from `place` [bands] on."""
    for s in range(first.shape[0]):
        low, high = band_span(screen, first[s], thinnest, rows)
        for band in range(low, high + 1):
            nodes[place[band]] = first[s]
            place[band] += 1


@parallel_kernel
def draw_strands(camera, screen, colors, starts, nodes, thinnest, depths, light, clear, front):
    """Draw segments that are sorted front to back over an empty picture, before surfaces.

    Args: camera; screen [n, 4] as `project_nodes` fills it; colors [n, 3]; starts [bands + 1] and
    nodes: the segments of each band; thinnest half width in pixels that is drawn, thinner strands
    are drawn fainter; depths [h, w] of surfaces along the ray [m]; light [h, w, 3], 0 before; clear
    [h, w] what is left of a pixel, 1 before; front [h, w] depth of the first strand, 1e30 before.
    """
    for band in prange(starts.shape[0] - 1):
        top = band * BAND
        bottom = min(top + BAND, depths.shape[0])
        for s in range(starts[band], starts[band + 1]):
            draw_segment(
                camera,
                screen,
                colors,
                nodes[s],
                thinnest,
                top,
                bottom,
                depths,
                light,
                clear,
                front,
            )


@device
def draw_segment(camera, screen, colors, node, thinnest, top, bottom, depths, light, clear, front):
    """Draw one segment into the rows from `top` to before `bottom`."""
    rows, columns = depths.shape
    x = screen[node, 0]
    y = screen[node, 1]
    dx = screen[node + 1, 0] - x
    dy = screen[node + 1, 1] - y
    squared = dx * dx + dy * dy
    if squared < 1e-12:
        return
    # length along the ray for a unit of depth
    u = camera[4, 1] * camera[4, 2] * ((2.0 * x + 1.0 + dx) / columns - 1.0)
    v = camera[4, 1] * (1.0 - (2.0 * y + 1.0 + dy) / rows)
    slant = math.sqrt(1.0 + u * u + v * v)
    inverse = 1.0 / squared
    length = math.sqrt(squared)
    # edges of a pixel, seen along the strand
    wide = max(abs(dx), abs(dy)) / length
    narrow = max(min(abs(dx), abs(dy)) / length, 0.01)
    reach = max(thinnest, screen[node, 3], screen[node + 1, 3]) + 0.5 * (wide + narrow)
    first_row = max(top, math.ceil(min(y, y + dy) - reach))
    last_row = min(bottom - 1, math.floor(max(y, y + dy) + reach))
    for row in range(first_row, last_row + 1):
        left = min(x, x + dx) - reach
        right = max(x, x + dx) + reach
        if abs(dy) > 0.3 * abs(dx):  # only the part of the row that the segment crosses
            middle = x + (row - y) * dx / dy
            aside = reach * length / abs(dy)
            left = max(left, middle - aside)
            right = min(right, middle + aside)
        first_column = max(0, math.ceil(left))
        last_column = min(columns - 1, math.floor(right))
        for column in range(first_column, last_column + 1):
            rest = clear[row, column]
            if rest < CLEAREST:
                continue
            px = column - x
            py = row - y
            t = (px * dx + py * dy) * inverse
            # pieces meet without caps: where they overlapped, a strand would show beads
            if t < 0.0 or t >= 1.0:
                continue
            radius = screen[node, 3] + t * (screen[node + 1, 3] - screen[node, 3])
            drawn = max(radius, thinnest)
            off = abs(px * dy - py * dx) / length
            cover = pixel_part(drawn - off, wide, narrow) - pixel_part(-drawn - off, wide, narrow)
            if cover < 1e-6:
                continue
            depth = slant * (screen[node, 2] + t * (screen[node + 1, 2] - screen[node, 2]))
            if depth > depths[row, column]:
                continue
            cover *= radius / drawn
            if cover > 0.05 and depth < front[row, column]:
                front[row, column] = depth
            # a strand that is several pixels wide is round
            edge = min(off / drawn, 1.0)
            rounding = 1.0 - 0.45 * edge * edge * min(max(0.5 * drawn - 0.5, 0.0), 1.0)
            part = rest * cover
            for c in range(3):
                mixed = colors[node, c] + t * (colors[node + 1, c] - colors[node, c])
                light[row, column, c] += part * rounding * mixed
            clear[row, column] = rest - part


@device
def pixel_part(place, wide, narrow):
    """Part of a pixel on one side of a line at `place` from its middle; exact for a square.

    wide and narrow are the edges of the pixel seen along the line: what they make is a trapezium.
    """
    outer = 0.5 * (wide + narrow)
    inner = 0.5 * (wide - narrow)
    a = max(place + outer, 0.0)
    b = max(place + inner, 0.0)
    c = max(place - inner, 0.0)
    d = max(place - outer, 0.0)
    return 0.5 * (a * a - b * b - c * c + d * d) / (wide * narrow)


@parallel_kernel
def put_behind(depths, surface_colors, behind, light, clear, picture):
    """Put drawn strands before surfaces and backdrop, several places to a pixel.

    Args: depths [s h, s w] and surface_colors [s h, s w, 3] of surfaces; behind [h, w, 3]; light
    [s h, s w, 3] and clear [s h, s w] of strands; picture [h, w, 3].
    """
    rows, columns, _ = picture.shape
    some = depths.shape[0] // rows
    share = 1.0 / (some * some)
    for row in prange(rows):
        for column in range(columns):
            for c in range(3):
                total = 0.0
                for a in range(some):
                    for b in range(some):
                        i = row * some + a
                        j = column * some + b
                        seen = behind[row, column, c]
                        if depths[i, j] < np.float32(1e29):
                            seen = np.float64(surface_colors[i, j, c])
                        total += light[i, j, c] + clear[i, j] * seen
                picture[row, column, c] = share * total
