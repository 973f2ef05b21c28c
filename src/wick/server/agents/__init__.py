"""Agents of the server: the registry, building from configuration, workspaces and HTTP tools."""
