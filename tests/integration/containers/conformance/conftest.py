"""The conformance cases of backends run on Docker: wickd in the container, a shell only, and an engine over TCP."""

from conformance.backends import open_kinds, place, pytest_make_collect_report

__all__ = ["opened", "place", "pytest_make_collect_report"]

opened = open_kinds("docker-daemon", "docker-exec", "docker-tcp-engine")
