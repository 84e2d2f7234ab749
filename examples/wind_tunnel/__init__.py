"""Wind with threads of smoke streams around a ball in a tunnel."""
