"""The hosts of agents and threads: this process, or a server."""
