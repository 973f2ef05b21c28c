"""Where commands find agents and threads: in this process, or at a server."""
