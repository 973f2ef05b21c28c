"""Safe files and processes below one root.

This package and `wick.wickd` also run inside containers: standard library only, Python 3.8.
"""
