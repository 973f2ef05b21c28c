"""The limit of open file descriptors of the process."""

from __future__ import annotations

import resource

FILES = 65_536


def raise_files_limit(wanted: int = FILES) -> list[str]:
    """Raise the limit of open files as far as allowed. Return a warning if it stays below `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(hard, wanted), hard):
        if soft >= wanted or soft == resource.RLIM_INFINITY:
            return []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, most), most))
        except (OSError, ValueError):
            continue
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft >= wanted:
        return []
    return [f"only {soft:,} files and connections can be open at once; raise the limit with: ulimit -n {wanted}"]
