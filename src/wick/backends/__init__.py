"""Backends: files and commands on this machine, in a container, or files in the thread itself."""
