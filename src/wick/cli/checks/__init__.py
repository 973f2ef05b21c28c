"""Checks behind `wick doctor`, `wick agents check` and `wick hooks test`."""
