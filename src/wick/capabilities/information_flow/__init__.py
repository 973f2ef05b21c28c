"""Information flow: a model that was hijacked by a text it read cannot choose the target of a change."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from posixpath import basename, normpath
from typing import Annotated, Any

from pydantic import Field

from wick._internal.frozen import FrozenDict, FrozenList, freeze, thaw
from wick._internal.tool_flow import CONTROL, EFFECTS, RESULT_FLOW, ToolFlow
from wick._internal.visible_text import format_count
from wick.capabilities.information_flow.data_flow import DataFlow
from wick.capabilities.information_flow.grants import GRANTS, MOST_STEPS, CallGrant, PlannedStep
from wick.capabilities.information_flow.handles import (
    LOOK,
    LOOK_SYSTEM,
    describe_answer,
    describe_data,
    format_value,
    has_reference,
    parse_json,
    resolve_references,
    store_handle,
)
from wick.capabilities.information_flow.instruction_files import (
    RESTORED,
    Watch,
    begin_watches,
    describe_changes,
    end_watches,
    list_watches,
)
from wick.capabilities.information_flow.labels import Label, list_values
from wick.capabilities.information_flow.questions import TargetValue, ask_about_targets, describe_trusted_source
from wick.capabilities.information_flow.sources import (
    CHILD,
    Passage,
    Sources,
    contains_value,
    find_sources,
    get_flow,
    is_typed,
)
from wick.capabilities.information_flow.spans import find_links
from wick.capability import Capability
from wick.decisions import Ask, Block
from wick.errors import InvalidArgs, ToolError
from wick.hooks import Hook, after, before, guard
from wick.messages import Message, ToolCall, ToolResult, user
from wick.operations import ModelCall, Run, ToolUse
from wick.run_log import LABEL
from wick.threads import Thread
from wick.tools import Tool, tool
from wick.why import PASS_REASON

# Files and folders that later runs read as instructions, besides those of the agent's capabilities
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "SKILL.md", "agents.yaml")
LINK = "a link to"
MOST_SOURCES = 5  # in the reason of a call that passes
OUTERMOST = 90.0  # after hooks around those of other capabilities, so that nothing is added to a hidden result
HIDDEN = "hidden"  # in the notes of a tool use, the label of its hidden result
_OF_HANDLES = ("hide_result", "resolve_reply", "keep_data_hidden")
HANDLES_HINT = """\
Untrusted texts (mails, web pages, files, search results) reach you as references such as {{h1}} or {{h2.0.body}}, \
with their type and size. Use a reference as an argument of a tool, inside of a longer text, or in your answer to the \
user; it is replaced by the data. To learn something from the data, ask `look`; it shows you booleans and choices of \
an enum, and gives a reference for anything else."""
HINT = """\
Before you read untrusted text (mails, web pages, files, search results), call `plan` once with every tool that you \
will use to send, pay or change something, or to read private data, and with the arguments that you know already. The \
user is asked about later changes that are not in the plan."""


class InformationFlow(Capability):
    """A guard that asks the user if untrusted text chose the target of a change.

    Labels say which entries of a thread have untrusted text. From the first such entry on, reads pass, and so do
    planned calls whose targets the user typed, a trusted tool returned, or the user's own directory contains. All other
    calls are questions. See the guide, "Information flow".
    """

    def __init__(
        self, *, instructions: Iterable[str] = INSTRUCTIONS, handles: bool = False, enabled: bool = True
    ) -> None:
        self.names = frozenset(instructions)
        self.instructions = frozenset(name.casefold() for name in self.names)
        self.handles, self.enabled = handles, enabled

    def hooks(self) -> list[Hook]:
        hooks = super().hooks() if self.enabled else []
        return hooks if self.handles else [hook for hook in hooks if hook.fn.__name__ not in _OF_HANDLES]

    def tools(self) -> list[Tool]:
        tools = super().tools() if self.enabled else []
        return [tool for tool in tools if self.handles or tool.name != LOOK]

    # -- labels -------------------------------------------------------------------------------------------------------

    def label_input(self, run: Run, message: Message) -> FrozenDict:
        """Return the label of a message of the user, or of a child's prompt, which is a text of the parent's model."""
        if run.parent is None:
            return _TYPED if is_typed(message) else _NOT_TYPED
        label = self._get_state(run).sources.label_reply([state.sources for state in self._list_states(run.parent)])
        return FrozenDict({**label, "from": FrozenList()})  # the entries are in another thread

    def label_result(self, use: ToolUse) -> FrozenDict:
        """Return the label of a result, and note the grant that its call has used."""
        run, dispatch = use.run, use.state
        state = self._find_state(run)
        if dispatch.prevented is not None or dispatch.invalid:
            label = REFUSED
        else:
            notes = dispatch.notes
            label = notes.get(HIDDEN) or state.find_label(use.tool or use.bound, notes.get(RESULT_FLOW))
        if run.parent is not None or state.claims:
            self._settle_claims(use, has_run=label is not REFUSED)
            if not label["trusted"]:
                self._taint_parents(run)
        return label

    def label_reply(self, call: ModelCall) -> FrozenDict:
        """Return the label of a reply: that of everything the model has seen."""
        parent = call.run.parent
        above = () if parent is None else [state.sources for state in self._list_states(parent)]
        is_trusted = not (self.handles and call.notes.get(HIDDEN))
        return self._get_state(call.run).sources.label_reply(above, is_trusted=is_trusted)

    def analyze_program(self, code: str, tree: ast.Module, functions: Iterable[str]) -> DataFlow:
        """Return the flow of data in a program, for the labels of the arguments of its calls."""
        return DataFlow(code, tree, functions)

    @after(Run, inherit=True)
    def label_child(self, run: Run) -> None:
        """Pass the label of a child on to its parents."""
        if run.parent is not None and self._is_tainted(run):
            self._taint_parents(run)

    def _taint_parents(self, run: Run) -> None:
        """Log in the parents of a child that it has read untrusted text: they get its answer, also a partial one."""
        parent = run.parent
        while parent is not None:
            state = self._get_state(parent)
            if not state.child_tainted:
                state.child_tainted = True
                state.labels.clear()  # those of the answers of children
                parent.thread.values.put(CHILD, run.thread.id, True)
            parent = parent.parent

    # -- handles ------------------------------------------------------------------------------------------------------

    @after(ToolUse, priority=OUTERMOST)
    def hide_result(self, use: ToolUse) -> None:
        """Store an untrusted result under a handle, and show the model a description of it.

        The results of calls in a program are not hidden: the model sees only the output of the program.
        """
        result = use.result
        if use.error is not None or result.parts or use.program:
            return
        is_resolved = use.args != use.call.args  # an unknown reference is an error before that
        refers = is_resolved and _accepts_references(use.tool) and has_reference(use.call.args)
        if use.prevented is not None or use.invalid:
            if refers:  # the reason may quote the data
                id = store_handle(use.run.thread, use.bound.name, result.text, {"*": "untrusted"})
                use.result = ToolResult(error=f"it was refused: {describe_data(result.text, {}, id)}")
            return
        flow = use.notes.get(RESULT_FLOW) or get_flow(use.bound)
        label = Label.from_flow(use.bound.name, flow, child_trusted=not self._find_state(use.run).child_tainted)
        if label.trusted and not refers:
            return
        authors = label.returns if not result.error else {"*": "untrusted"}
        id = store_handle(use.run.thread, use.bound.name, result.text, authors)
        is_program = use.call.id in use.run.thread.current.calls.programs  # even its field names may be untrusted text
        data = result.text if is_program else parse_json(result.text)
        shown = describe_data(data, {} if refers else authors, id)  # it may repeat the data
        text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
        use.result = ToolResult(error=f"the tool failed: {text}") if result.error else ToolResult(text)
        use.notes[HIDDEN] = freeze(Label(True, label.private, {"*": "own"}).to_json())
        if LABEL in use.notes:  # a hook inside of this one has read it
            use.notes[LABEL] = use.notes[HIDDEN]

    @after(ModelCall, priority=OUTERMOST)
    def resolve_reply(self, call: ModelCall) -> None:
        """Replace the references in an answer to the user."""
        reply = call.result
        if call.purpose or call.error is not None or reply.tool_calls or not has_reference(reply.text):
            return
        with suppress(InvalidArgs):  # an unknown reference stays as it is
            text = format_value(resolve_references(reply.text, self._list_threads(call.run)))
            call.result = Message("assistant", text, reasoning=reply.reasoning)
            call.notes[HIDDEN] = True

    @tool(effect="read", returns="own", idempotent=True)
    async def look(self, reference: list[str] | str, question: str, schema: dict[str, Any], run: Run) -> str:
        """Ask a reader, which has no tools, about the data of references. Its answer fits the JSON Schema.

        You see booleans and choices of an enum; texts and numbers are references to use in arguments and answers.
        """
        references, threads = [reference] if isinstance(reference, str) else reference, self._list_threads(run)
        answered = Tool(
            "answer", "", lambda: None, {"type": "object", "properties": {"answer": schema}, "required": ["answer"]}
        )
        try:
            data = "\n\n".join(format_value(resolve_references(text, threads)) for text in references)
        except InvalidArgs as error:
            raise ToolError(str(error)) from None
        asked = f"Question: {question}\nSchema: {json.dumps(schema)}\nData:\n{data}"
        reply = await run.call_model([user(asked)], purpose="look", system=LOOK_SYSTEM)
        try:
            answer = answered.validate({"answer": json.loads(reply.text)})["answer"]
        except (InvalidArgs, ValueError, RecursionError):
            raise ToolError("the answer of the reader does not fit the schema; ask in another way") from None
        id = store_handle(run.thread, LOOK, json.dumps(answer), {"*": "untrusted"})
        shown = describe_answer(answer, schema, id)
        return shown if isinstance(shown, str) else json.dumps(shown)

    @guard(ToolUse)
    def keep_data_hidden(self, use: ToolUse) -> Block | None:
        """Refuse a call in a program that passes untrusted data to a tool whose arguments a model reads again."""
        if not use.program or not self._get_state(use.run).sources.program_tainted or _accepts_references(use.tool):
            return None
        clean = self._find_clean(use)
        if hidden := [name for name in use.args if name not in clean]:
            return Block(f"a model reads the arguments of {use.bound.name}, and untrusted data reached {hidden[0]}")
        return None

    def _resolve_arguments(self, run: Run, call: ToolCall) -> dict[str, Any]:
        if call.id in run.thread.current.calls.nested:  # its data may have the form of a reference
            return {**call.args}
        if _runs_programs(run.tools.get(call.name)) and has_reference(call.args):
            raise InvalidArgs("a program has no references; call the tool that returned the data in the program")
        if not _accepts_references(run.tools.get(call.name)) or not has_reference(call.args):
            return {**call.args}
        resolved: dict[str, Any] = resolve_references(call.args, self._list_threads(run))
        return resolved

    def _list_threads(self, run: Run) -> list[Thread]:
        return [one.thread for one in self._list_runs(run)]

    # -- grants -------------------------------------------------------------------------------------------------------

    @before(Run)
    def start_labels(self, run: Run) -> None:
        """Label the messages of a run, and explain the plan to its model."""
        run.progress.extensions.labelers.append(self)
        run.progress.extensions.observers.append(self)
        if self.handles:
            run.progress.extensions.resolvers.append(self._resolve_arguments)
        run.system = "\n\n".join(filter(None, (run.system, HANDLES_HINT if self.handles else HINT)))

    @tool(effect="read", returns="own", idempotent=True)
    def plan(self, steps: Annotated[list[PlannedStep], Field(max_length=MOST_STEPS)], run: Run) -> str:
        """Plan the changes of this task before reading untrusted text, so that the user is not asked about them."""
        if self._is_tainted(run):
            raise ToolError("untrusted text was read already, so a plan no longer counts; the user is asked instead")
        for step in steps:
            if step.tool not in run.tools:
                raise ToolError(f"there is no tool named {step.tool!r}; the tools are {', '.join(run.tools)}")
        for step in steps:
            number = len(run.thread.values.get(GRANTS, {})) + 1
            grant = CallGrant(step.tool, step.known, step.times)
            run.thread.values.put(GRANTS, f"grant_{number}", grant.to_json())
        return f"planned {format_count(len(steps), 'step')}"

    # -- the guard ----------------------------------------------------------------------------------------------------

    @guard(ToolUse, match=["private:?*", *(f"effect:{effect}" for effect in sorted(EFFECTS - {"read"}))])
    def check_targets(self, use: ToolUse) -> Ask | None:
        """Ask about a call whose target has no trusted source, once the run has read untrusted text."""
        states = self._list_states(use.run)
        is_tainted = self._has_untrusted_text(states)
        if not is_tainted and not (self.handles and has_reference(use.call.args)):
            return None
        flow, args = get_flow(use.tool), use.args
        if not is_tainted and flow.effect not in ("read", "write"):
            return self._check_references(use, flow, args)
        clean = self._find_clean(use) if use.program else _NONE
        if flow.effect == "read":
            if not is_tainted or CONTROL in clean or self._may_read(use.run, use.private):
                return None
            source = use.private
            return Ask(f"{use.bound.name} reads private data ({source}), not planned before untrusted text was read.")
        if flow.effect == "write":
            return self._check_written(use, flow, args)
        return self._check_change(use, flow, clean, states)

    def _find_clean(self, use: ToolUse) -> frozenset[str]:
        """Return the arguments of a call in a program that no untrusted text reached, unless they were changed.

        The program must have been written before this run or one above it read untrusted text.
        """
        if not use.program or (use.run.parent is not None and self._is_tainted(use.run.parent)):
            return _NONE
        changed = {name for name in use.args if name not in use.call.args or use.call.args[name] != use.args[name]}
        return self._get_state(use.run).sources.find_clean(use.call.id) - changed

    # -- files of instructions ----------------------------------------------------------------------------------------

    def _check_written(self, use: ToolUse, flow: ToolFlow, args: Mapping[str, Any]) -> Ask | None:
        """Ask before a file is written that later runs read as instructions: its label would be lost there."""
        if not (what := self._find_written_instructions(use, flow, args)):
            return None
        return Ask(
            f"{use.bound.name} writes {what}, which later runs read as instructions, after untrusted text was read."
        )

    def _find_written_instructions(self, use: ToolUse, flow: ToolFlow, args: Mapping[str, Any]) -> str:
        """Return what a call writes by name that later runs read as instructions; empty if it is nothing."""
        instructions = self._list_instructions(use.run)
        paths = [str(value) for name in flow.list_targets(args) for value in list_values(args[name])]
        for path in paths:
            if found := [name for name in normpath(path).split("/") if name.casefold() in instructions]:
                return found[0] if found[0] == basename(normpath(path)) else f"a file in {found[0]}"
        return ""

    async def before_effect(self, use: ToolUse) -> str:
        """Read the files of instructions before a tool that may write them although no question said so.

        A command may do so in every run: it may run a program that an earlier run has written.
        """
        flow = get_flow(use.bound)
        may_write = flow.effect == "change"
        if flow.effect == "write" and use.bound.kind == "write" and self._is_tainted(use.run):  # through a link
            may_write = not self._find_written_instructions(use, flow, use.args)
        if may_write:
            watches = list_watches(use, self.names)
            self._get_watched(use.run)[id(use)] = use, watches
            await begin_watches(watches)
        return ""

    async def after_effect(self, use: ToolUse) -> None:
        """Restore the files of instructions that a tool has changed, and note it for the model and the log."""
        if (watched := self._get_watched(use.run).pop(id(use), None)) is None:
            return
        if changed := await end_watches(watched[1]):
            use.notes[RESTORED] = describe_changes(changed)
            use.run.record(RESTORED, call=use.call.id, files=[one.to_json() for one in changed])

    async def release_effect(self, use: ToolUse) -> None:
        """Restore the files of instructions after a tool that was cancelled."""
        if (watched := self._get_watched(use.run).pop(id(use), None)) is not None:
            await end_watches(watched[1])

    @after(ToolUse, match=["effect:change", "effect:write"], priority=OUTERMOST + 1, inherit=True)
    def explain_restored(self, use: ToolUse) -> None:
        """Add to a result that files of instructions were restored."""
        result, note = use.result, use.notes.pop(RESTORED, "")
        if not note:
            return
        if isinstance(result.data, Mapping) and not result.error:
            result.output = json.dumps({**result.data, "note": note}, ensure_ascii=False)
        else:
            text = f"{result.text}\n\n{note}"
            use.result = ToolResult(error=text) if result.error else ToolResult(text)

    def _get_watched(self, run: Run) -> dict[int, _WatchedUse]:
        """Return the running tools of a run with their watches, by the id of the tool use."""
        return self._find_state(run).watched

    def _list_instructions(self, run: Run) -> frozenset[str]:
        """Return the names of files and folders that later runs read as instructions, of the runs above, too."""
        state = self._get_state(run)
        if state.instructions is None:
            owners = {hook.owner for hook in run.loop.hooks if hook.owner is not None}
            named = (basename(normpath(path)).casefold() for owner in owners for path in owner.instruction_paths())
            above = self.instructions if run.parent is None else self._list_instructions(run.parent)
            state.instructions = above.union(named)
        return state.instructions

    def _check_change(
        self, use: ToolUse, flow: ToolFlow, clean: frozenset[str], states: Sequence[_FlowState]
    ) -> Ask | None:
        """Ask about a call that was not planned, or that has a target without a trusted source."""
        args = use.args
        chosen = [name for name in flow.list_targets(args) if name not in clean]
        targets = [name for name in chosen if not _is_default(use.bound, name, args[name])]
        values = {name: list_values(args[name]) for name in targets}
        if flow.effect == "send":  # a link in a message is a target, too: it says where its reader goes
            others = [name for name in args if name not in values and name not in clean]
            content = [value for name in others for value in list_values(args[name])]
            values[LINK] = [link for text in content if isinstance(text, str) for link in find_links(text)]
        trusted, unsourced = _sort_values(values, states)
        key = use.key
        grants = _find_grants(use, key, states)
        for owner, id, known in grants:
            if unsourced.keys() <= known.keys():
                owner.claims[key] = id
                rows = [describe_trusted_source(*row) for row in trusted if row[0] not in known][:MOST_SOURCES]
                use.notes[PASS_REASON] = "; ".join([f"planned as {id}", *rows])
                return None
        if CONTROL in clean and not unsourced:
            use.notes[PASS_REASON] = _WRITTEN_BEFORE
            return None
        if flow.effect == "fetch" and not unsourced:
            use.notes[PASS_REASON] = "; ".join([describe_trusted_source(*row) for row in trusted][:MOST_SOURCES])
            return None
        if unsourced and (entries := self._find_endorsed(use, unsourced)):
            use.notes[PASS_REASON] = f"the user endorsed {', '.join(entries)} as a source of {', '.join(unsourced)}"
            return None
        found = [
            TargetValue(name, value, self._find_passage(use.run, value))
            for name, items in unsourced.items()
            for value in items
        ]
        is_planned = bool(grants) or flow.effect == "fetch"
        return ask_about_targets(use.bound.name, flow.effect, found, args, targets, is_planned=is_planned)

    def _check_references(self, use: ToolUse, flow: ToolFlow, args: Mapping[str, Any]) -> Ask | None:
        """Ask about a target that is a reference and has no trusted source. The model has chosen all others itself."""
        referring = {name for name, value in use.call.args.items() if has_reference(value)}
        targets = [name for name in flow.list_targets(args) if name in referring]
        values = {name: list_values(args[name]) for name in targets}
        states = self._list_states(use.run)
        _, unsourced = _sort_values(values, states)
        if flow.effect == "fetch":  # a whole address in an untrusted text has nothing of the user in it
            unsourced = {
                name: [value for value in items if not any(state.sources.is_quoted(value) for state in states)]
                for name, items in unsourced.items()
            }
        if not any(unsourced.values()) or self._find_endorsed(use, unsourced):
            return None
        found = [
            TargetValue(name, value, self._find_passage(use.run, value))
            for name, items in unsourced.items()
            for value in items
        ]
        return ask_about_targets(use.bound.name, flow.effect, found, args, targets, is_planned=True)

    def _find_endorsed(self, use: ToolUse, unsourced: Mapping[str, Sequence[Any]]) -> list[str]:
        """Return the entries that the user endorsed for this run, if they have all values without a trusted source."""
        runs = self._list_runs(use.run)
        endorsed = {row for run in runs for row in self._find_state(run).sources.endorsed}
        found = dict[str, None]()
        for name, value in ((name, value) for name, items in unsourced.items() for value in items):
            entries = (
                f"{author} (entry {seq})"
                for run in runs
                for author, seq, text in self._find_state(run).sources.passages
                if (run.thread.id, seq, use.bound.name, name) in endorsed and contains_value(text, value)
            )
            entry = next(entries, "")
            if not entry:
                return []
            found[entry] = None
        return [*found]

    def _list_runs(self, run: Run) -> list[Run]:
        """Return a run and the runs above it."""
        return [run] if run.parent is None else [run, *self._list_runs(run.parent)]

    def _may_read(self, run: Run, source: str) -> bool:
        """Return True if a private source was read already, or a planned tool reads it."""
        states = self._list_states(run)
        planned = {grant.tool for state in states for grant in state.sources.grants.values()}
        flows = {name: get_flow(run.tools.get(name)) for name in planned}
        return any(source in state.sources.private for state in states) or any(
            flow.name_source(name) == source for name, flow in flows.items()
        )

    def _settle_claims(self, use: ToolUse, *, has_run: bool) -> None:
        """Log that a call has used a grant, so that it counts after a pause, too. The grant may be that of a parent."""
        run: Run | None = use.run
        while run is not None:
            claims = self._find_state(run).claims
            id = claims.pop(use.key, None) if claims else None
            if has_run and id is not None and (grant := self._get_state(run).sources.grants.get(id)) is not None:
                run.thread.values.put(GRANTS, id, grant.use_once().to_json())
            run = run.parent

    def _find_passage(self, run: Run, value: Any) -> Passage | None:
        """Return an untrusted text that contains a value, if possible as a whole word."""
        sources = [self._find_state(one).sources.find_passage(value, one.thread.id) for one in self._list_runs(run)]
        found = [passage for passage in sources if passage is not None]
        return next((passage for passage in found if passage.is_whole), found[0] if found else None)

    # -- state --------------------------------------------------------------------------------------------------------

    def _is_tainted(self, run: Run) -> bool:
        """Return True if a run, or one above it, has untrusted text."""
        return self._has_untrusted_text(self._list_states(run))

    def _has_untrusted_text(self, states: Sequence[_FlowState]) -> bool:
        """Return True if one of these runs has untrusted text. A handle hides the answer of a child."""
        for state in states:
            sources = state.sources
            if sources.tainted or sources.program_tainted or (state.child_tainted and not self.handles):
                return True
        return False

    def _list_states(self, run: Run) -> list[_FlowState]:
        """Return the states of a run and of the runs above it."""
        states, above = [self._get_state(run)], run.parent
        while above is not None:
            states.append(self._get_state(above))
            above = above.parent
        return states

    def _get_state(self, run: Run) -> _FlowState:
        """Return the state of a run, with the sources of all its entries."""
        state = self._find_state(run)
        if state.sources.folded != len(run.thread.entries):
            state.sources.update(run.thread, run.tools)
        return state

    def _find_state(self, run: Run) -> _FlowState:
        scratch = run.progress.extensions.scratch
        state: _FlowState | None = scratch.get(self)
        if state is None:
            sources = find_sources(run.thread, typed_by_user=run.parent is None, hides=self.handles)
            state = scratch[self] = _FlowState(sources, child_tainted=CHILD in run.thread.values)
        return state


@dataclass(slots=True)
class _FlowState:
    """The state of one run: its sources, the claims on its grants, and whether a child read untrusted text."""

    sources: Sources
    claims: dict[str, str] = field(default_factory=dict)  # ids of its grants, by the key of a tool use, also of a child
    child_tainted: bool = False
    instructions: frozenset[str] | None = None  # names of files and folders
    watched: dict[int, _WatchedUse] = field(default_factory=dict)  # tools that are running, by the id of their use
    labels: dict[int, tuple[Tool, FrozenDict]] = field(default_factory=dict)  # by the id of the tool

    def find_label(self, tool: Tool, own: ToolFlow | None) -> FrozenDict:
        """Return the label of a tool's result, as JSON data. That of the tool's declaration is computed once.

        `own` is the declaration of this result in place of its tool's.
        """
        found = self.labels.get(id(tool)) if own is None else None
        if found is None:
            label = Label.from_flow(tool.name, own or get_flow(tool), child_trusted=not self.child_tainted)
            found = tool, freeze(label.to_json())
            if own is None:
                self.labels[id(tool)] = found  # with the tool, so that no other one gets its id
        return found[1]


_WRITTEN_BEFORE = "the program was written before untrusted text was read, and none of it reached a target"
_NONE = frozenset[str]()
_TYPED: FrozenDict = freeze({"trusted": True, "private": [], "from": []})
_NOT_TYPED: FrozenDict = freeze({"trusted": False, "private": [], "from": []})
REFUSED: FrozenDict = freeze(Label(True, (), {"*": "own"}).to_json())  # the text of a refusal is wick's


_WatchedUse = tuple[ToolUse, list[Watch]]


_FoundGrant = tuple[_FlowState, str, Mapping[str, Any]]  # its owner, its id, and its known arguments


def _find_grants(use: ToolUse, key: str, states: Sequence[_FlowState]) -> list[_FoundGrant]:
    """Return the grants for a call that are not used up; those with most known arguments first."""
    found = list[_FoundGrant]()
    for state in states:
        if not (grants := state.sources.grants):
            continue
        claims = [id for claim, id in state.claims.items() if claim != key]
        for id, grant in grants.items():
            if grant.matches(use.bound.name, use.args) and claims.count(id) < grant.times:
                found.append((state, id, grant.known))
    return sorted(found, key=lambda item: -len(item[2])) if len(found) > 1 else found


def _sort_values(
    values: Mapping[str, Sequence[Any]], states: Sequence[_FlowState]
) -> tuple[list[tuple[str, Any, int]], dict[str, list[Any]]]:
    """Return the values of targets with the trusted entry of each, and those without one, by target."""
    trusted, unsourced = list[tuple[str, Any, int]](), dict[str, list[Any]]()
    for name, items in values.items():
        for value in items:
            for state in states:
                if seq := state.sources.find_trusted_source(value):
                    trusted.append((name, value, seq))
                    break
            else:
                unsourced.setdefault(name, []).append(value)
    return trusted, unsourced


def _accepts_references(tool: Tool | None) -> bool:
    """Return False for tools whose arguments the model, or a child, reads again: todos, notes, prompts of children."""
    if tool is None or tool.name == LOOK:
        return False
    if _runs_programs(tool):
        return False
    flow = get_flow(tool)
    return (flow.effect != "write" or tool.kind == "write") and "child" not in flow.authors.values()


def _runs_programs(tool: Tool | None) -> bool:
    """Return True for `run_code`: data in place of a reference would become code."""
    return tool is not None and tool.kind == "agent" and "child" not in get_flow(tool).authors.values()


def _is_default(tool: Tool, name: str, value: Any) -> bool:
    """Return True if an argument has the default of the tool's schema, so that its author chose it."""
    schema = tool.parameters.get("properties", {}).get(name, {})
    if "default" not in schema or schema["default"] != value:
        return False
    return type(schema["default"]) is type(thaw(value))  # 1 == True == 1.0
