"""The data that Loki computes on and the streams that carry it in and out; no physics."""
