"""Export of a slides document to PowerPoint, with pictures from the workspace and native tables and charts."""

from __future__ import annotations

import posixpath
from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO

from wick._internal.worker_threads import run_in_thread
from wick.errors import BackendError, MissingExtra
from wick.protocols import Backend
from wick.server.errors import ApiError
from wick.skills.slides.build_deck import PICTURE_BYTES, PICTURES, Slide, parse_deck, parse_table, write_powerpoint

DECK_SLIDES = 300
DECK_CELLS = 10_000  # of all tables and charts
DECK_PICTURES = 100
DECK_PICTURES_BYTES = 50_000_000  # in total

Pictures = dict[str, tuple[str, bytes]]


async def export(text: str, backend: Backend | None = None, folder: str = "") -> bytes:
    """Return the bytes of a .pptx file. Pictures are read only from this folder of the workspace."""
    theme, slides = await run_in_thread(lambda: _parse_slides(text), "reading slides")
    pictures = await _load_pictures(slides, backend, folder) if backend is not None else {}

    def build() -> bytes:
        target = BytesIO()
        try:
            write_powerpoint(slides, pictures.get, target, theme)
        except ImportError:
            raise MissingExtra("slides", "python-pptx", "PowerPoint") from None
        return target.getvalue()

    return await run_in_thread(build, "making a PowerPoint file")


def _parse_slides(text: str) -> tuple[str, list[Slide]]:
    """Return the name of the theme and the slides; raise an ApiError for none or too many."""
    meta, slides = parse_deck(text)
    if not slides:
        raise ApiError(422, "invalid", "the document has no slides; write Markdown with a line --- between two slides")
    cells = sum(len(row) for slide in slides for block in slide.all_blocks if block.kind in ("table", "chart")
                for row in parse_table(block.lines))  # fmt: skip
    if len(slides) > DECK_SLIDES or cells > DECK_CELLS:
        most = f"{DECK_SLIDES} slides and {DECK_CELLS:,} cells of tables"
        raise ApiError(413, "too_large", f"a deck has at most {most}; split it into two")
    return meta.get("theme", "").lower(), slides


async def _load_pictures(slides: Sequence[Slide], backend: Backend, folder: str) -> Pictures:
    """Return the pictures that can be read. For the others, the slide shows the alternative text."""
    blocks = [block for slide in slides for block in slide.all_blocks if block.kind == "picture"]
    names = [*dict.fromkeys(block.lines[1] for block in blocks)][:DECK_PICTURES]
    pictures, room = Pictures(), DECK_PICTURES_BYTES
    for name in names:
        kind = PICTURES.get(posixpath.splitext(name)[1].lower())
        if not kind:
            continue
        try:
            content = await backend.read(posixpath.join(folder, name), limit=PICTURE_BYTES)
        except BackendError:
            continue
        if content["truncated"]:
            continue
        data = b64decode(content["content"]) if content["encoding"] == "base64" else content["content"].encode()
        if len(data) <= room:
            pictures[name], room = (kind, data), room - len(data)
    return pictures
