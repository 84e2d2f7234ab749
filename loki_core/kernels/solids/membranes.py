"""Green's strain of sheets, by triangle: from deformation gradients F = (F_u, F_v), [3, 2].

C = ((F_u.F_u - 1) / 2, (F_v.F_v - 1) / 2, F_u.F_v)
dC_0 = F_u.dF_u,    dC_1 = F_v.dF_v,    dC_2 = F_u.dF_v + F_v.dF_u
sum_m T_m d2C_m/dx_k dx_l = (g_k^T s g_l) I,     s = ((T_0, T_2), (T_2, T_1))
"""

from __future__ import annotations

import math

from loki_core.kernels.jit import parallel_kernel, prange


@parallel_kernel
def green_strains(deformation, value):
    """Write C [n, 3] from F [n, 3, 2]."""
    for n in prange(deformation.shape[0]):
        uu, vv, uv = -1.0, -1.0, 0.0
        for i in range(3):
            u, v = deformation[n, i, 0], deformation[n, i, 1]
            uu += u * u
            vv += v * v
            uv += u * v
        value[n, 0], value[n, 1], value[n, 2] = 0.5 * uu, 0.5 * vv, uv


@parallel_kernel
def green_gradients(deformation, gradients, out):
    """Write dC/dx [n, 3, 9], with gradients of the corners' shares [n, 3, 2]."""
    for n in prange(deformation.shape[0]):
        for k in range(3):
            by_u, by_v = gradients[n, k, 0], gradients[n, k, 1]
            for i in range(3):
                u, v = deformation[n, i, 0], deformation[n, i, 1]
                out[n, 0, 3 * k + i] = by_u * u
                out[n, 1, 3 * k + i] = by_v * v
                out[n, 2, 3 * k + i] = by_u * v + by_v * u


@parallel_kernel
def green_seconds(tension, gradients, definite, matrices):
    """Write sum_m T_m d2C_m/dx2 [n, 9, 9], or with the semi-definite part of s alone."""
    for n in prange(tension.shape[0]):
        uu, vv, uv = tension[n, 0], tension[n, 1], tension[n, 2]
        if definite == 1:
            middle, half = 0.5 * (uu + vv), 0.5 * (uu - vv)
            radius = math.sqrt(half * half + uv * uv)
            large, small = max(middle + radius, 0.0), max(middle - radius, 0.0)
            spread = (large - small) / (2.0 * radius) if radius > 0.0 else 0.0
            mean = 0.5 * (large + small)
            uu, vv, uv = mean + spread * half, mean - spread * half, spread * uv
        for k in range(3):
            for other in range(3):
                a, b = gradients[n, k, 0], gradients[n, k, 1]
                c, d = gradients[n, other, 0], gradients[n, other, 1]
                entry = a * (uu * c + uv * d) + b * (uv * c + vv * d)
                for i in range(3):
                    for j in range(3):
                        matrices[n, 3 * k + i, 3 * other + j] = entry if i == j else 0.0
