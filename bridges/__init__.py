"""Bridges: the ways into Loki from a shell, from host applications and over a socket."""
