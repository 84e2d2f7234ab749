"""The live bridge: a host's client, the supervising server, and the ranks that it starts."""
