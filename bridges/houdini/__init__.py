"""Loki in Houdini: the package, its node types as text, and what runs inside Houdini."""
