"""Instructions for particular tasks: the model sees what there is, and reads what it needs when it needs it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from wick import front_matter
from wick.archives import unpack
from wick.backends.folder import Files, Folder, data_of, files_in
from wick.capability import Capability
from wick.caps import (
    ARCHIVE_ENTRIES,
    FILE_READ_BYTES,
    FRONT_MATTER_BYTES,
    SKILL_BYTES,
    SKILL_DESCRIPTION_CHARS,
    SKILL_NAME_CHARS,
    SKILLS,
)
from wick.errors import BackendError, ConfigError, ToolError
from wick.fencing import fenced, one_line
from wick.hooks import Next, before, wrap
from wick.messages import ToolResult
from wick.operations import ModelCall, Run, ToolUse
from wick.protocols import Backend
from wick.threads import Thread
from wick.tools import tool
from wick.workers import in_thread

SHIPPED = Path(__file__).parent.parent / "skills"
FILE = "SKILL.md"
BROUGHT = ".skills"  # where skills of this machine are put in a workspace, once they are read
KEY = "skills"  # in thread.values: which ones are switched on or off for a conversation
USAGE = """\
These are skills: instructions for particular tasks. When a task fits one, read its instructions before you begin, \
with load_skill(name) or by reading its file; then follow them. Paths in them are relative to the folder they stand in.\
"""


@dataclass(frozen=True, slots=True)
class Skill:
    """A folder with a SKILL.md. `meta` is all of its front matter, `path` where the model reads it."""

    name: str
    description: str
    path: str
    meta: Mapping[str, Any]
    files: Files  # where it is
    folder: str  # there
    borrowed: bool = False  # it is on this machine, and `path` in the workspace, where it is put when it is read
    enabled: bool = True

    @property
    def key(self) -> str:
        """Two skills that have the same one are the same skill."""
        return _slug(self.name).casefold()

    @property
    def line(self) -> str:
        """Its line in the catalogue."""
        return f"[{self.name}] {self.description} → Read {self.path} for full instructions"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something that was found is not among the skills."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The skills that were found, the first of each name, and what was wrong with others."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def enabled(self) -> tuple[Skill, ...]:
        return tuple(skill for skill in self.skills if skill.enabled)

    def named(self, name: str) -> Skill | None:
        return next((skill for skill in self.enabled if skill.key == _slug(name).casefold()), None)


class Skills(Capability):
    """Finds SKILL.md files, puts a catalogue of them into the system prompt, and gives the model `load_skill`.

    `paths` are folders of the `backend`; without one, of this machine. `host` are folders of this machine beside those
    of a backend, `shipped` adds the six skills that come with wick. A skill of this machine is copied into the
    workspace, to `.skills/`, when the model reads it. Of two skills with the same name the first counts: `paths` before
    `host` before what is shipped.
    """

    def __init__(
        self,
        paths: str | Sequence[str] = (),
        backend: Backend | None = None,
        *,
        host: str | Sequence[str] = (),
        shipped: bool = False,
        enabled: Sequence[str] | None = None,
        disabled: Sequence[str] = (),
    ) -> None:
        self.paths, self.host = _texts("paths", paths), _texts("host", host)
        self.only = None if enabled is None else _keys("enabled", enabled)
        self.without = _keys("disabled", disabled)
        if not (self.paths or self.host or shipped):
            raise ConfigError("Skills: name a folder that has skills in it, or say shipped=True")
        self.backend, self.shipped = backend, shipped

    # -- in a run -----------------------------------------------------------------------------------------------------

    @before(Run)
    async def find(self, run: Run) -> None:
        found = run.scratch[self] = await self.discover(run.thread)
        for problem in found.problems:
            run.record("skill_skipped", path=problem.path, reason=problem.reason)

    @before(ModelCall)
    def show(self, call: ModelCall) -> None:
        skills = self._found(call.run).enabled
        if skills and not call.purpose:
            catalogue = fenced("available_skills", "\n".join(skill.line for skill in skills))
            call.system = "\n\n".join(filter(None, (call.system, catalogue, USAGE)))

    @tool(read_only=True, idempotent=True)
    async def load_skill(
        self, name: str, run: Run, file: Annotated[str, "another file of the skill, such as reference.md"] = ""
    ) -> str:
        """Read the full instructions of a skill, or another file that belongs to it."""
        skill = self._found(run).named(name)
        if skill is None:
            raise ToolError(_no_skill(name, self._found(run).enabled))
        try:
            await self._bring(skill, run.thread)
            text, more = await _read(skill, file or FILE)
            others = "" if file else _listed(await _names(skill))
        except BackendError as error:
            raise ToolError(f"the skill {skill.name} cannot be read: {error}") from None
        folder = posixpath.dirname(skill.path)
        return fenced("skill", text, name=skill.name, file=f"{folder}/{file or FILE}") + more + others

    @wrap(ToolUse, match="read_file")
    async def bring(self, use: ToolUse, next: Next[ToolResult]) -> ToolResult:
        """A skill of this machine is put into the workspace when its file is first read there."""
        result = await next(use)
        skill = self._read_by(use)
        if skill is None or not result.error or use.trail.prevented:
            return result
        try:
            await self._bring(skill, use.run.thread)
        except BackendError as error:
            use.run.record("skill_skipped", path=skill.path, reason=str(error))
            return result
        return await next(use)

    def _found(self, run: Run) -> Catalogue:
        found: Catalogue = run.scratch.get(self, Catalogue())
        return found

    def _read_by(self, use: ToolUse) -> Skill | None:
        path = use.args.get("path")
        if self.backend is None or not isinstance(path, str):
            return None
        path = posixpath.normpath(path.removeprefix(f"{self.backend.workdir}/"))
        skills = (skill for skill in self._found(use.run).enabled if skill.borrowed)
        return next((skill for skill in skills if path.startswith(f"{posixpath.dirname(skill.path)}/")), None)

    async def _bring(self, skill: Skill, thread: Thread) -> None:
        if not skill.borrowed or self.backend is None:
            return
        files, folder = files_in(self.backend, thread), posixpath.dirname(skill.path)
        for name in await _names(skill):
            data, size = await data_of(skill.files, f"{skill.folder}/{name}", FILE_READ_BYTES)
            if size > len(data):
                raise BackendError(f"{name} is too large to be copied", "too_large")
            await files.write(f"{folder}/{name}", data)

    # -- what there is ------------------------------------------------------------------------------------------------

    async def discover(self, thread: Thread | None = None) -> Catalogue:
        """Look for skills now; those that are broken or come second are among the problems."""
        skills: dict[str, Skill] = {}
        problems: list[Problem] = []
        for place in self._places(thread):
            for found in await place.look():
                if isinstance(found, Problem):
                    problems.append(found)
                elif (first := skills.get(found.key)) is not None:
                    problems.append(Problem(found.path, f"there is a skill {first.name} already, in {first.path}"))
                elif len(skills) < SKILLS:
                    skills[found.key] = found
                else:
                    problems.append(Problem(found.path, f"there are {SKILLS} skills already"))
        named = {**(self.only or {}), **self.without}
        problems += [Problem("", f"there is no skill named {named[key]!r}") for key in named if key not in skills]
        switched: Mapping[str, bool] = thread.values.get(KEY, {}) if thread is not None else {}
        return Catalogue(tuple(self._switched(skill, switched) for skill in skills.values()), tuple(problems))

    def switch(self, thread: Thread, name: str, on: bool) -> None:
        """Switch a skill on or off for one conversation, from its next run on."""
        thread.values.put(KEY, _slug(name).casefold(), on)

    def _switched(self, skill: Skill, switched: Mapping[str, bool]) -> Skill:
        on = (self.only is None or skill.key in self.only) and skill.key not in self.without
        return replace(skill, enabled=bool(switched.get(skill.key, on)))

    def _places(self, thread: Thread | None) -> list[_Place]:
        folders = [*self.host, *([str(SHIPPED)] if self.shipped else [])]
        if self.backend is None:
            return [_Place(Folder(path), ".") for path in (*self.paths, *folders)]
        files = files_in(self.backend, thread)
        return [_Place(files, path) for path in self.paths] + [_Place(Folder(path), ".", True) for path in folders]

    # -- another one --------------------------------------------------------------------------------------------------

    async def upload(self, data: bytes, *, thread: Thread | None = None, replace: bool = False) -> Skill:
        """Put a skill into the first of the paths: the bytes of a SKILL.md, or of a zip archive that has one."""
        if not self.paths:
            raise ConfigError("there is no folder for skills that are uploaded; give Skills one in paths")
        contents = await in_thread(lambda: _contents(data), "upload")
        name = _described(contents[FILE].decode(errors="replace"))[0]
        place = self._places(thread)[0]
        target = posixpath.join(place.path, _slug(name))
        await place.put(target, contents, replace=replace)
        skill = await place.skill(posixpath.join(target, FILE))
        return self._switched(skill, thread.values.get(KEY, {}) if thread is not None else {})


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder with skills in it."""

    files: Files
    path: str
    borrowed: bool = False

    async def look(self) -> list[Skill | Problem]:
        try:
            found = await self.files.glob(f"**/{FILE}", self.path, everything=True)
        except BackendError as error:
            return [Problem(self._shown(self.path), str(error))]
        looked: list[Skill | Problem] = []
        for file in _outermost(sorted(found["files"])):
            try:
                looked.append(await self.skill(file))
            except (BackendError, ConfigError) as error:
                looked.append(Problem(self._shown(file), str(error)))
        return looked

    async def skill(self, file: str) -> Skill:
        data, _ = await data_of(self.files, file, FRONT_MATTER_BYTES + 100)
        name, description, meta = await in_thread(lambda: _described(data.decode(errors="replace")), "skill")
        path = f"{BROUGHT}/{_slug(name)}/{FILE}" if self.borrowed else self._shown(file)
        if one_line(path, len(path)) != path:
            raise ConfigError("its path has signs in it that cannot be shown on a line")
        return Skill(name, description, path, meta, self.files, posixpath.dirname(file) or ".", self.borrowed)

    def _shown(self, file: str) -> str:
        """A path as the operator writes them: in full, or as seen from the workspace."""
        full = isinstance(self.files, Folder) or self.path.startswith("/")
        return posixpath.normpath(posixpath.join(self.files.workdir, file) if full else file)

    async def put(self, target: str, contents: Mapping[str, bytes], *, replace: bool) -> None:
        """All of the files or none, in a folder of their own."""
        there = await self._has(target)
        if there and not replace:
            raise ConfigError(
                f"there is a skill in {self._shown(target)} already; say replace=True to put another there"
            )
        meanwhile = posixpath.join(self.path, f".upload-{uuid4().hex}")
        try:
            for name, data in contents.items():
                await self.files.write(f"{meanwhile}/{name}", data)
            if there:
                await self.files.delete(target, recursive=True)
            await self.files.move(meanwhile, target)
        except BaseException:
            if await self._has(meanwhile):
                await self.files.delete(meanwhile, recursive=True)
            raise

    async def _has(self, folder: str) -> bool:
        try:
            return bool((await self.files.glob("**", folder, everything=True))["files"])
        except BackendError as error:
            if error.code == "not_found":
                return False
            raise


# -- SKILL.md -------------------------------------------------------------------------------------------------------


def _described(text: str) -> tuple[str, str, dict[str, Any]]:
    """The name, the description and all the rest of a skill's front matter."""
    meta, _ = front_matter.split(text)
    name, description = (_said(meta, key) for key in ("name", "description"))
    if len(name) > SKILL_NAME_CHARS or re.search(r"[\[\]<>/\\]", name) or one_line(name, len(name)) != name:
        raise ConfigError(f"its name is not a short one on one line, without brackets and slashes: {name[:100]!r}")
    return name, one_line(description, SKILL_DESCRIPTION_CHARS), meta


def _said(meta: Mapping[str, Any], key: str) -> str:
    value = meta.get(key)
    text = value.strip() if isinstance(value, str) else str(value) if type(value) in (int, float) else ""
    if not text:
        raise ConfigError(f"its front matter has no {key}")
    return text


def _slug(name: str) -> str:
    """A name as that of a folder."""
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "skill"


def _outermost(files: Sequence[str]) -> list[str]:
    """Without those in hidden folders, and those that belong to a skill further out."""
    shown = [file for file in files if not re.search(r"(?:^|/)\.upload-[^/]*/", file)]
    folders = {posixpath.dirname(file) for file in shown}
    return [file for file in shown if not _within(posixpath.dirname(file), folders)]


def _within(folder: str, folders: set[str]) -> bool:
    while folder:
        folder = posixpath.dirname(folder)
        if folder in folders:
            return True
    return False


async def _names(skill: Skill) -> list[str]:
    """The files of a skill, seen from its folder."""
    found = await skill.files.glob("**", skill.folder, everything=True)
    if found["truncated"] or len(found["files"]) > ARCHIVE_ENTRIES:
        raise BackendError(f"it has more than {ARCHIVE_ENTRIES:,} files", "too_large")
    return [posixpath.relpath(file, skill.folder) for file in found["files"]]


async def _read(skill: Skill, name: str) -> tuple[str, str]:
    """A file of a skill, and a note if there is more of it."""
    if name.startswith("/") or ".." in name.split("/"):
        raise BackendError(f"{name!r} is not one of its files; name one as seen from its folder", "invalid")
    data, size = await data_of(skill.files, posixpath.join(skill.folder, name), SKILL_BYTES)
    more = f"\n\n... (truncated {size - len(data)} bytes) ..." if size > len(data) else ""
    return data.decode(errors="replace").removeprefix("\ufeff").strip(), more


def _listed(names: Sequence[str]) -> str:
    others = [one_line(name, 200) for name in names if name != FILE]
    shown = ", ".join(others[:50]) + (f" and {len(others) - 50} more" if len(others) > 50 else "")
    return f"\n\nOther files of this skill: {shown}" if others else ""


def _no_skill(name: str, skills: Sequence[Skill]) -> str:
    names = [skill.name for skill in skills]
    close = get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"there is no skill named {name[:100]!r}; the skills are {', '.join(names) or 'none'}{hint}"


def _contents(data: bytes) -> dict[str, bytes]:
    """The files of an uploaded skill, seen from its folder."""
    if not data.startswith(b"PK"):
        if len(data) > SKILL_BYTES:
            raise ConfigError(f"the {FILE} has {len(data):,} bytes; the most is {SKILL_BYTES:,}")
        return {FILE: data}
    files = unpack(data)
    found = sorted((name for name in files if posixpath.basename(name) == FILE), key=lambda name: name.count("/"))
    if not found:
        raise ConfigError(f"the archive has no {FILE} in it")
    if len(found) > 1 and found[0].count("/") == found[1].count("/"):
        raise ConfigError("the archive has several skills in it; upload them one by one")
    folder = found[0].removesuffix(FILE)
    return {name.removeprefix(folder): content for name, content in files.items() if name.startswith(folder)}


# -- options --------------------------------------------------------------------------------------------------------


def _texts(option: str, given: Any) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (None,)
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ConfigError(f"Skills({option}={given!r}): give a list of texts")
    return texts


def _keys(option: str, names: Any) -> dict[str, str]:
    return {_slug(name).casefold(): name for name in _texts(option, names)}
