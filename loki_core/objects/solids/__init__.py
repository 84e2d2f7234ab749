"""Objects whose points belong to bodies, and the system that joins them."""
