"""Search of files on this host, for a container with wickd that has neither ripgrep nor a grep that knows -P."""

from __future__ import annotations

import base64
import posixpath
from itertools import islice

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.errors import BackendError
from wick.protocols import Backend
from wick.workspace.grep import LineSearch
from wick.workspace.results import GrepMatch, GrepResult
from wick.workspace.text import cut_at_nul, is_binary

SKIPPED = ("linked", "protected", "denied", "not_found", "not_a_file")  # codes of files that a search passes over


async def search_files(
    backend: Backend, search: LineSearch, path: str, *, glob: str, everything: bool, links: bool
) -> GrepResult:
    """Return the matching lines of the files in a folder, or of one file; read them one after the other."""
    is_folder, truncated, matches = True, False, list[GrepMatch]()
    try:
        listing = await backend.glob(glob or "**", path, everything=everything, links=links)
        files, truncated = listing["files"], listing["truncated"]
    except BackendError as error:
        if error.code != "not_directory":
            raise
        is_folder, files = False, [posixpath.normpath(path.removeprefix(f"{backend.workdir}/"))]
    for file in files:
        try:
            found = await backend.read(file, links=links and not is_folder)
        except BackendError as error:
            if is_folder and error.code in SKIPPED:
                continue
            raise
        content = found["content"]
        data = base64.b64decode(content) if found["encoding"] == "base64" else content.encode()
        truncated = truncated or found["truncated"]
        lines = await run_in_thread(lambda data=data: _find_lines(search, data), "grep")  # type: ignore[misc]
        matches += [{"file": file, "line": line, "text": text} for line, text in lines]
        if len(matches) > constants.GREP_MATCHES:
            return {"matches": matches[: constants.GREP_MATCHES], "truncated": True}
    return {"matches": matches, "truncated": truncated}


def _find_lines(search: LineSearch, data: bytes) -> list[tuple[int, str]]:
    blocks = [] if is_binary(data) else [cut_at_nul(data)]
    return list(islice(search.find_lines(blocks), constants.GREP_MATCHES + 1))
