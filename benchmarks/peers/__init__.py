"""Peers: other programs that do the same work, each measured in a process of its own."""
