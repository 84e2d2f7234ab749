"""Objects: what is simulated."""
