"""What runs inside Houdini: nodes cook by it, and the panel shows its runs.

The package lies beside Loki itself on Houdini's Python path; the solver is another process.
"""
