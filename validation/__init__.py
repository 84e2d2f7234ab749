"""Physics cases against measured or analytical results; each module is one case."""
