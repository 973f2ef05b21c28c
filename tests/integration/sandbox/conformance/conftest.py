"""The conformance cases of backends run on Local: in bubblewrap, under Landlock and without a sandbox."""

from conformance.backends import open_kinds, place, pytest_make_collect_report

__all__ = ["opened", "place", "pytest_make_collect_report"]

opened = open_kinds("local-bubblewrap", "local-landlock", "local-unsandboxed")
