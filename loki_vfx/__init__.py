"""What Loki installs beside `loki_core` and `loki_graph`: bridges, serialization, examples, cases.

The folders lie at the root of a checkout, where links in this one point to them.
"""
