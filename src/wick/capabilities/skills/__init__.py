"""Skills: instructions for particular tasks, listed in the system prompt and loaded on demand."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from wick._internal.prompt_text import fence_text, to_one_line
from wick._internal.worker_threads import run_in_thread
from wick.backends.files import HostFolder, files_for_thread, read_bytes
from wick.capabilities.skills.catalog import (
    FILE,
    Catalogue,
    Skill,
    SkillFolder,
    SkillProblem,
    list_skill_files,
    read_skill_file,
    slugify,
    unpack_skill,
)
from wick.capability import Capability
from wick.constants import FILE_READ_BYTES, SKILLS
from wick.errors import BackendError, ConfigError, ToolError
from wick.hooks import Next, before, wrap
from wick.messages import ToolResult
from wick.operations import ModelCall, Run, ToolUse
from wick.protocols import Backend
from wick.threads import Thread
from wick.tools import tool

SHIPPED = Path(__file__).parents[2] / "skills"
KEY = "skills"  # in `thread.values`: skills that are switched on or off for a conversation
USAGE = """\
These are skills: instructions for particular tasks. When a task fits one, read its instructions before you begin, \
with load_skill(name) or by reading its file; then follow them. Paths in them are relative to the folder they stand in.\
"""


logger = logging.getLogger(__name__)


class Skills(Capability):
    """Finds SKILL.md files, lists them in the system prompt, and adds the tool `load_skill`.

    `paths` are folders of the `backend`; without a backend, of this machine. `host` adds folders of this machine to
    those of a backend; `shipped` adds the six skills of wick. A skill of this machine is copied to `.skills/` in the
    workspace when the model reads it. The first skill of a name wins, in the order `paths`, `host`, shipped.
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
        self.paths, self.host = _check_texts("paths", paths), _check_texts("host", host)
        self.only = None if enabled is None else _parse_names("enabled", enabled)
        self.without = _parse_names("disabled", disabled)
        if not (self.paths or self.host or shipped):
            raise ConfigError("Skills: give a folder with skills, or shipped=True")
        if backend is not None and (isinstance(backend, type) or not callable(getattr(backend, "glob", None))):
            raise ConfigError(f"Skills(backend={backend!r}): give a backend, such as Local('./workspace'), or None")
        self.backend, self.shipped = backend, shipped
        for path in (*self.host, *(self.paths if backend is None else ())):
            if not Path(path).is_dir():
                logger.warning("Skills: there is no folder %s; create it, or correct the path", path)

    def instruction_paths(self) -> Sequence[str]:
        """Return its folders: a text in them is an instruction to later runs."""
        return *self.paths, *self.host, ".skills"

    # -- in a run -----------------------------------------------------------------------------------------------------

    @before(Run)
    async def find(self, run: Run) -> None:
        catalogue = run.scratch[self] = await self.discover(run.thread)
        for problem in catalogue.problems:
            run.record("skill_skipped", path=problem.path, reason=problem.reason)

    @before(ModelCall)
    def show(self, call: ModelCall) -> None:
        skills = self._get_catalogue(call.run).enabled
        if skills and not call.purpose:
            catalogue = fence_text("available_skills", "\n".join(skill.line for skill in skills))
            call.system = "\n\n".join(filter(None, (call.system, catalogue, USAGE)))

    @tool(read_only=True, idempotent=True, effect="read", returns="own")
    async def load_skill(
        self, name: str, run: Run, file: Annotated[str, "another file of the skill, such as reference.md"] = ""
    ) -> str:
        """Read the full instructions of a skill, or another file that belongs to it."""
        skill = self._get_catalogue(run).find(name)
        if skill is None:
            name, names = name[:100], [skill.name for skill in self._get_catalogue(run).enabled]
            close = get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ToolError(f"there is no skill named {name!r}; the skills are {', '.join(names) or 'none'}{hint}")
        try:
            await self._copy_skill(skill, run.thread)
            text, more = await read_skill_file(skill, file or FILE)
            names = [] if file else await list_skill_files(skill)
        except BackendError as error:
            raise ToolError(f"the skill {skill.name} cannot be read: {error}") from None
        if others := [to_one_line(other, 200) for other in names if other != FILE]:
            shown = ", ".join(others[:50]) + (f" and {len(others) - 50} more" if len(others) > 50 else "")
            more += f"\n\nOther files of this skill: {shown}"
        folder = posixpath.dirname(skill.path)
        return fence_text("skill", text, name=skill.name, file=f"{folder}/{file or FILE}") + more

    @wrap(ToolUse, match="read_file")
    async def copy_on_read(self, use: ToolUse, next: Next[ToolResult]) -> ToolResult:
        """Copy a skill of this machine into the workspace when its file is first read there."""
        result, path = await next(use), use.args.get("path")
        if self.backend is None or not isinstance(path, str) or not result.error or use.prevented:
            return result
        path = posixpath.normpath(path.removeprefix(f"{self.backend.workdir}/"))
        borrowed = [skill for skill in self._get_catalogue(use.run).enabled if skill.borrowed]
        skills = [skill for skill in borrowed if path.startswith(f"{posixpath.dirname(skill.path)}/")]
        if not skills:
            return result
        try:
            await self._copy_skill(skills[0], use.run.thread)
        except BackendError as error:
            use.run.record("skill_skipped", path=skills[0].path, reason=to_one_line(str(error), 500))
            return result
        return await next(use)

    def _get_catalogue(self, run: Run) -> Catalogue:
        catalogue: Catalogue = run.scratch.get(self, Catalogue())
        return catalogue

    async def _copy_skill(self, skill: Skill, thread: Thread) -> None:
        if not skill.borrowed or self.backend is None:
            return
        files, folder = files_for_thread(self.backend, thread), posixpath.dirname(skill.path)
        for name in await list_skill_files(skill):
            data, size = await read_bytes(skill.files, f"{skill.folder}/{name}", FILE_READ_BYTES)
            if size > len(data):
                raise BackendError(f"{name} is too large to be copied", "too_large")
            await files.write(f"{folder}/{name}", data)

    # -- discovery ----------------------------------------------------------------------------------------------------

    async def discover(self, thread: Thread | None = None) -> Catalogue:
        """Return the current skills; invalid and duplicate skills are listed as problems."""
        skills: dict[str, Skill] = {}
        problems: list[SkillProblem] = []
        for folder in self._list_folders(thread):
            for entry in await folder.list_skills():
                if isinstance(entry, SkillProblem):
                    problems.append(entry)
                elif (first := skills.get(entry.key)) is not None:
                    problems.append(SkillProblem(entry.path, f"there is a skill {first.name} already, in {first.path}"))
                elif len(skills) < SKILLS:
                    skills[entry.key] = entry
                else:
                    problems.append(SkillProblem(entry.path, f"there are {SKILLS} skills already"))
        named = {**(self.only or {}), **self.without}
        problems += [SkillProblem("", f"there is no skill named {named[key]!r}") for key in named if key not in skills]
        switched: Mapping[str, bool] = thread.values.get(KEY, {}) if thread is not None else {}
        return Catalogue(tuple(self._apply_switch(skill, switched) for skill in skills.values()), tuple(problems))

    def switch(self, thread: Thread, name: str, on: bool) -> None:
        """Switch a skill on or off for one conversation, from its next run on."""
        thread.values.put(KEY, slugify(name).casefold(), on)

    def _apply_switch(self, skill: Skill, switched: Mapping[str, bool]) -> Skill:
        on = (self.only is None or skill.key in self.only) and skill.key not in self.without
        return replace(skill, enabled=bool(switched.get(skill.key, on)))

    def _list_folders(self, thread: Thread | None) -> list[SkillFolder]:
        folders = [*self.host, *([str(SHIPPED)] if self.shipped else [])]
        if self.backend is None:
            return [SkillFolder(HostFolder(path), ".") for path in (*self.paths, *folders)]
        files = files_for_thread(self.backend, thread)
        return [SkillFolder(files, path) for path in self.paths] + [
            SkillFolder(HostFolder(path), ".", True) for path in folders
        ]

    # -- uploads ------------------------------------------------------------------------------------------------------

    async def upload(self, data: bytes, *, thread: Thread | None = None, replace: bool = False) -> Skill:
        """Install a skill in the first of `paths`: the bytes of a SKILL.md, or of a zip archive with one."""
        if not self.paths:
            raise ConfigError("there is no folder for skills that are uploaded; give Skills one in paths")
        name, contents = await run_in_thread(lambda: unpack_skill(data), "upload")
        folder = self._list_folders(thread)[0]
        target = posixpath.join(folder.path, slugify(name))
        await folder.write_skill(target, contents, replace=replace)
        skill = await folder.read_skill(posixpath.join(target, FILE))
        return self._apply_switch(skill, thread.values.get(KEY, {}) if thread is not None else {})


# -- options --------------------------------------------------------------------------------------------------------


def _check_texts(option: str, given: Any) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (None,)
    if not all(isinstance(text, str) and text.strip() and "\0" not in text for text in texts):
        raise ConfigError(f"Skills({option}={given!r}): give a list of texts")
    return texts


def _parse_names(option: str, names: Any) -> dict[str, str]:
    return {slugify(name).casefold(): name for name in _check_texts(option, names)}
