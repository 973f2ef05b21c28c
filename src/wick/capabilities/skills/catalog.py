"""Skills on disk: folders with a SKILL.md, and reading and writing them.

for found in await SkillFolder(Folder("~/.wick/skills"), ".").list_skills():    a Skill or a SkillProblem
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from wick._internal import front_matter
from wick._internal.prompt_text import to_one_line
from wick._internal.worker_threads import run_in_thread
from wick._internal.zip_archives import unpack
from wick.backends.files import FileBackend, HostFolder, read_bytes
from wick.constants import (
    ARCHIVE_ENTRIES,
    FRONT_MATTER_BYTES,
    SKILL_BYTES,
    SKILL_COPIES,
    SKILL_DESCRIPTION_CHARS,
    SKILL_NAME_CHARS,
    SKILLS,
)
from wick.errors import BackendError, ConfigError

FILE = "SKILL.md"
COPIES = SKILL_COPIES


@dataclass(frozen=True, slots=True)
class Skill:
    """A folder with a SKILL.md. `meta` is its front matter, `path` is the path shown to the model."""

    name: str
    description: str
    path: str
    meta: Mapping[str, Any]
    files: FileBackend  # the file system that has it
    folder: str  # its path in `files`
    borrowed: bool = False  # on this machine; copied to `path` in the workspace when it is read
    enabled: bool = True

    @property
    def key(self) -> str:
        """Return the normalized name, which identifies a skill."""
        return slugify(self.name).casefold()

    @property
    def line(self) -> str:
        """Return the line for the system prompt."""
        return f"[{self.name}] {self.description} → Read {self.path} for full instructions"


@dataclass(frozen=True, slots=True)
class SkillProblem:
    """The reason why a SKILL.md was skipped."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The skills that were found, the first of each name, and the problems with others."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()

    @property
    def enabled(self) -> tuple[Skill, ...]:
        return tuple(skill for skill in self.skills if skill.enabled)

    def find(self, name: str) -> Skill | None:
        return next((skill for skill in self.enabled if skill.key == slugify(name).casefold()), None)


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """A folder that contains skills."""

    files: FileBackend
    path: str
    borrowed: bool = False

    async def list_skills(self) -> list[Skill | SkillProblem]:
        try:
            listing = await self.files.glob(f"**/{FILE}", self.path, everything=True)
        except BackendError as error:
            return [self._build_problem(self.path, error)]
        # Leave out uploads in progress, and skills nested in another skill.
        shown = [file for file in sorted(listing["files"]) if not re.search(r"(?:^|/)\.upload-[^/]*/", file)]
        folders = {posixpath.dirname(file) for file in shown}
        files = [file for file in shown if not _is_within(posixpath.dirname(file), folders)]
        results = list[Skill | SkillProblem]()
        for file in files[:SKILLS]:
            try:
                results.append(await self.read_skill(file))
            except (BackendError, ConfigError) as error:
                results.append(self._build_problem(file, error))
        if len(files) > SKILLS:
            results.append(
                self._build_problem(self.path, f"of the {len(files):,} skills there, {SKILLS} were looked at")
            )
        return results

    def _build_problem(self, path: str, reason: object) -> SkillProblem:
        """Return a problem with printable one-line texts, as the log requires."""
        return SkillProblem(to_one_line(self._display_path(path), 500), to_one_line(str(reason), 500))

    async def read_skill(self, file: str) -> Skill:
        data, _ = await read_bytes(self.files, file, FRONT_MATTER_BYTES + 100)
        name, description, meta = await run_in_thread(lambda: parse_skill(data.decode(errors="replace")), "skill")
        path = f"{COPIES}/{slugify(name)}/{FILE}" if self.borrowed else self._display_path(file)
        if to_one_line(path, len(path)) != path:
            raise ConfigError("its path has signs in it that cannot be shown on a line")
        relative = posixpath.normpath(file.removeprefix(f"{self.files.workdir}/"))  # like the results of `glob`
        folder = posixpath.dirname(relative) or "."
        return Skill(name, description, path, meta, self.files, folder, self.borrowed)

    def _display_path(self, file: str) -> str:
        """Return a path in the form the operator uses: absolute, or relative to the workspace."""
        full = isinstance(self.files, HostFolder) or self.path.startswith("/")
        return posixpath.normpath(posixpath.join(self.files.workdir, file) if full else file)

    async def write_skill(self, target: str, contents: Mapping[str, bytes], *, replace: bool) -> None:
        """Write all files of a skill atomically: upload to a temporary folder, then rename it."""
        try:
            exists = bool((await self.files.glob("**", target, everything=True))["files"])
        except BackendError as error:
            if error.code != "not_found":
                raise
            exists = False
        if exists and not replace:
            raise ConfigError(
                f"there is a skill in {self._display_path(target)} already; pass replace=True to replace it"
            )
        temporary = posixpath.join(self.path, f".upload-{uuid4().hex}")
        try:
            for name, data in contents.items():
                await self.files.write(f"{temporary}/{name}", data)
            if exists:
                await self.files.delete(target, recursive=True)
            await self.files.move(temporary, target)
        except BaseException:
            with suppress(BackendError):
                await self.files.delete(temporary, recursive=True)
            raise


# -- SKILL.md -------------------------------------------------------------------------------------------------------


def parse_skill(text: str) -> tuple[str, str, dict[str, Any]]:
    """Return the name, the description and the whole front matter of a skill."""
    meta, _ = front_matter.split(text)
    texts: dict[str, str] = {}
    for key in ("name", "description"):
        value = meta.get(key)
        texts[key] = value.strip() if isinstance(value, str) else str(value) if type(value) in (int, float) else ""
        if not texts[key]:
            raise ConfigError(f"its front matter has no {key}")
    name, description = texts["name"], texts["description"]
    if len(name) > SKILL_NAME_CHARS or re.search(r"[\[\]<>/\\]", name) or to_one_line(name, len(name)) != name:
        raise ConfigError(f"its name is not a short one on one line, without brackets and slashes: {name[:100]!r}")
    return name, to_one_line(description, SKILL_DESCRIPTION_CHARS), meta


def slugify(name: str) -> str:
    """Return a name as a folder name."""
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "skill"


def _is_within(folder: str, folders: set[str]) -> bool:
    while folder not in ("", "/"):
        folder = posixpath.dirname(folder)
        if folder in folders:
            return True
    return False


async def list_skill_files(skill: Skill) -> list[str]:
    """Return the files of a skill, relative to its folder, without `__pycache__`."""
    listing = await skill.files.glob("**", skill.folder, everything=True)
    if listing["truncated"] or len(listing["files"]) > ARCHIVE_ENTRIES:
        raise BackendError(f"it has more than {ARCHIVE_ENTRIES:,} files", "too_large")
    names = (file.removeprefix(f"{skill.folder}/") for file in listing["files"])
    return [name for name in names if "__pycache__" not in name.split("/")]


async def read_skill_file(skill: Skill, name: str) -> tuple[str, str]:
    """Return the text of a skill's file, and a note if it was truncated."""
    if name.startswith("/") or ".." in name.split("/"):
        raise BackendError(f"{name!r} is not one of its files; name one as seen from its folder", "invalid")
    data, size = await read_bytes(skill.files, posixpath.join(skill.folder, name), SKILL_BYTES)
    more = f"\n\n... (truncated {size - len(data)} bytes) ..." if size > len(data) else ""
    return data.decode(errors="replace").removeprefix("\ufeff").strip(), more


def unpack_skill(data: bytes) -> tuple[str, dict[str, bytes]]:
    """Return the name of an uploaded skill, and its files relative to the folder of its SKILL.md."""
    uploaded = unpack(data) if data.startswith(b"PK") else {FILE: data}
    candidates = sorted(
        (name for name in uploaded if posixpath.basename(name) == FILE), key=lambda name: name.count("/")
    )
    if not candidates:
        raise ConfigError(f"the archive has no {FILE} in it")
    if len(candidates) > 1 and candidates[0].count("/") == candidates[1].count("/"):
        raise ConfigError("the archive has several skills in it; upload them one by one")
    folder = candidates[0].removesuffix(FILE)
    files = {name.removeprefix(folder): content for name, content in uploaded.items() if name.startswith(folder)}
    size = len(files[FILE])
    if size > SKILL_BYTES:
        raise ConfigError(f"the {FILE} has {size:,} bytes; the most is {SKILL_BYTES:,}")
    return parse_skill(files[FILE].decode(errors="replace"))[0], files
