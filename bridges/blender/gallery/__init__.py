"""The gallery: scenes of `examples/`, simulated, brought into Blender and rendered with Cycles.

    python -m loki_vfx.bridges.blender.gallery [NAME ...]

Each picture is a module of this folder, which says what is simulated and how it is lit, dressed and
seen; stage.py, materials.py and strand_children.py hold what they share.
"""

# SPDX-License-Identifier: GPL-3.0-or-later
