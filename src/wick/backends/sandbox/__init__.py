"""Sandboxes of the local backend, with resource limits and protected paths."""
