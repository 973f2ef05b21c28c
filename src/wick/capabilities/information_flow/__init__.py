"""Information flow: a model that was hijacked by a text it read cannot choose the target of a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from posixpath import basename, normpath
from typing import Annotated, Any

from pydantic import Field

from wick._internal.frozen import FrozenDict, freeze, thaw
from wick._internal.tool_flow import RESULT_FLOW, ToolFlow
from wick.capabilities.information_flow.grants import GRANTS, MOST_STEPS, CallGrant, PlannedStep
from wick.capabilities.information_flow.labels import Label, list_values
from wick.capabilities.information_flow.questions import describe_content, describe_target, describe_voucher
from wick.capabilities.information_flow.sources import CHILD, Passage, Sources, get_flow
from wick.capabilities.information_flow.spans import find_links
from wick.capability import Capability
from wick.decisions import Ask
from wick.errors import ToolError
from wick.hooks import after, before, guard
from wick.operations import ModelCall, Run, ToolUse
from wick.tools import Tool, tool
from wick.why import PASS_REASON

# Files and folders that later runs read as instructions, besides those of the agent's capabilities
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "SKILL.md", "agents.yaml")
MOST_VOUCHERS = 5  # in the reason of a call that passes
HINT = """\
Before you read text of others (mails, web pages, files, search results), call `plan` once with every tool that you \
will use to send, pay or change something, or to read private data, and with the arguments that you know already. The \
user is asked about later changes that are not in the plan."""


class InformationFlow(Capability):
    """A guard that asks the user if untrusted text chose the target of a change.

    Labels say which entries of a thread have text of others. From the first such entry on, reads pass, and so do
    planned calls whose targets the user typed, a trusted tool returned, or the user's own directory contains. All other
    calls are questions. See the guide, "Information flow".
    """

    def __init__(self, *, instructions: Iterable[str] = INSTRUCTIONS) -> None:
        self.instructions = frozenset(name.casefold() for name in instructions)

    # -- labels -------------------------------------------------------------------------------------------------------

    @after(ToolUse, inherit=True)
    def label_result(self, use: ToolUse) -> None:
        """Store the label of a result with it."""
        state = self._get_state(use.run)
        if use.prevented is not None or use.invalid:
            use.notes["label"] = _REFUSED
        else:
            use.notes["label"] = state.find_label(use.bound, use.notes.get(RESULT_FLOW) or get_flow(use.bound))
            if use.key in state.claims:
                self._use_grant(use)
        state.claims.pop(use.key, None)
        if use.run.parent is not None and not use.notes["label"]["trusted"]:
            self._taint_parents(use.run)

    @after(ModelCall, inherit=True)
    def label_reply(self, call: ModelCall) -> None:
        """Store the label of a reply: that of everything the model has seen."""
        if not call.purpose:
            own, *above = self._list_states(call.run)
            call.notes["label"] = reduce(Label.join, (state.label for state in above), own.sources.label).to_json()

    @after(Run, inherit=True)
    def label_child(self, run: Run) -> None:
        """Pass the label of a child on to its parents."""
        if run.parent is not None and self._is_tainted(run):
            self._taint_parents(run)

    def _taint_parents(self, run: Run) -> None:
        """Log in the parents of a child that it has read text of others: they get its answer, also a partial one."""
        parent = run.parent
        while parent is not None:
            state = self._get_state(parent)
            if not state.child_tainted:
                state.child_tainted = True
                parent.thread.values.put(CHILD, run.thread.id, True)
            parent = parent.parent

    # -- grants -------------------------------------------------------------------------------------------------------

    @before(Run)
    def explain_plan(self, run: Run) -> None:
        run.system = "\n\n".join(filter(None, (run.system, HINT)))

    @tool(effect="read", returns="own", idempotent=True)
    def plan(self, steps: Annotated[list[PlannedStep], Field(max_length=MOST_STEPS)], run: Run) -> str:
        """Plan the changes of this task before reading text of others, so that the user is not asked about them."""
        if self._is_tainted(run):
            raise ToolError("text of others was read already, so a plan no longer counts; the user is asked instead")
        for step in steps:
            if step.tool not in run.tools:
                raise ToolError(f"there is no tool named {step.tool!r}; the tools are {', '.join(run.tools)}")
        for step in steps:
            number = len(run.thread.values.get(GRANTS, {})) + 1
            grant = CallGrant(step.tool, step.known, step.times)
            run.thread.values.put(GRANTS, f"grant_{number}", grant.to_json())
        return f"{len(steps)} steps are planned"

    # -- the guard ----------------------------------------------------------------------------------------------------

    @guard(ToolUse)
    def check_targets(self, use: ToolUse) -> Ask | None:
        """Ask about a call whose target has no voucher, once the run has read untrusted text."""
        if not self._is_tainted(use.run):
            return None
        flow, args = get_flow(use.tool), thaw(use.args)
        if flow.effect == "read":
            source = flow.name_source(use.bound.name)
            if not source or self._may_read(use.run, source):
                return None
            return Ask(f"{use.bound.name} reads private data ({source}), not planned before text of others was read.")
        if flow.effect == "write":
            return self._check_written(use, flow, args)
        return self._check_change(use, flow, args)

    def _check_written(self, use: ToolUse, flow: ToolFlow, args: Mapping[str, Any]) -> Ask | None:
        """Ask before a file is written that later runs read as instructions: its label would be lost there."""
        instructions = self._list_instructions(use.run)
        paths = [str(value) for name in flow.list_targets(args) for value in list_values(args[name])]
        for path in paths:
            if found := [name for name in normpath(path).split("/") if name.casefold() in instructions]:
                what = found[0] if found[0] == basename(normpath(path)) else f"a file in {found[0]}"
                why = "which later runs read as instructions, after text of others was read."
                return Ask(f"{use.bound.name} writes {what}, {why}")
        return None

    def _list_instructions(self, run: Run) -> frozenset[str]:
        """Return the names of files and folders that later runs read as instructions, of the runs above, too."""
        state = self._get_state(run)
        if state.instructions is None:
            owners = {hook.owner for hook in run.loop.hooks if hook.owner is not None}
            named = (basename(normpath(path)).casefold() for owner in owners for path in owner.instruction_paths())
            above = self.instructions if run.parent is None else self._list_instructions(run.parent)
            state.instructions = above.union(named)
        return state.instructions

    def _check_change(self, use: ToolUse, flow: ToolFlow, args: Mapping[str, Any]) -> Ask | None:
        targets = [name for name in flow.list_targets(args) if not _is_default(use.bound, name, args[name])]
        unvouched = {name: self._find_unvouched(use.run, list_values(args[name])) for name in targets}
        if flow.effect == "send":  # a link in a message is a target, too: it says where its reader goes
            content = [value for name in args if name not in targets for value in list_values(args[name])]
            links = [link for text in content if isinstance(text, str) for link in find_links(text)]
            unvouched["a link to"] = self._find_unvouched(use.run, links)
        state = self._get_state(use.run)
        grants = self._find_grants(use, args)
        for id, known in grants:
            if not any(values for name, values in unvouched.items() if name not in known):
                state.claims[use.key] = id
                use.notes[PASS_REASON] = self._describe_pass(use.run, id, args, [n for n in targets if n not in known])
                return None
        if flow.effect == "fetch" and not any(unvouched.values()):
            use.notes[PASS_REASON] = self._describe_pass(use.run, "", args, targets)
            return None
        passages = [
            describe_target(name, value, self._find_passage(use.run, value))
            for name, values in unvouched.items()
            for value in values[:3]
        ]
        planned = "" if grants or flow.effect == "fetch" else "It was not planned before text of others was read."
        sentences = [f"{use.bound.name} ({flow.effect}):", planned, *passages, describe_content(args, targets)]
        return Ask(" ".join(filter(None, sentences)))

    def _find_grants(self, use: ToolUse, args: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the grants for a call that are not used up, those with the most known arguments first."""
        name, claims, grants = use.bound.name, list[str](), dict[str, CallGrant]()
        for state in self._list_states(use.run):
            claims += [id for key, id in state.claims.items() if key != use.key]
            grants |= state.sources.grants
        found = [
            (id, grant.known)
            for id, grant in grants.items()
            if grant.matches(name, args) and claims.count(id) < grant.times
        ]
        return sorted(found, key=lambda item: -len(item[1]))

    def _may_read(self, run: Run, source: str) -> bool:
        """Return True if a private source was read already, or a planned tool reads it."""
        states = self._list_states(run)
        planned = {grant.tool for state in states for grant in state.sources.grants.values()}
        flows = {name: get_flow(run.tools.get(name)) for name in planned}
        return any(source in state.sources.private for state in states) or any(
            flow.name_source(name) == source for name, flow in flows.items()
        )

    def _use_grant(self, use: ToolUse) -> None:
        """Log that a call has used a grant, so that it counts after a pause, too. The grant may be that of a parent."""
        id, run = self._get_state(use.run).claims.get(use.key), use.run
        while id is not None and id not in self._get_state(run).sources.grants and run.parent is not None:
            run = run.parent
        if id is not None and (grant := self._get_state(run).sources.grants.get(id)) is not None:
            run.thread.values.put(GRANTS, id, replace(grant, times=grant.times - 1).to_json())

    def _find_unvouched(self, run: Run, values: Iterable[Any]) -> list[Any]:
        states = self._list_states(run)
        return [value for value in values if not any(state.sources.find_voucher(value) for state in states)]

    def _describe_pass(self, run: Run, grant: str, args: Mapping[str, Any], targets: Iterable[str]) -> str:
        """Return the grant of a call that passes, and the entry that vouches for each of its targets."""
        sources = [state.sources for state in self._list_states(run)]
        found = [(name, value, source.find_voucher(value))
                 for name in targets for value in list_values(args[name]) for source in sources]  # fmt: skip
        vouched = dict.fromkeys(describe_voucher(*row) for row in found if row[2])
        return "; ".join([f"planned as {grant}"] * bool(grant) + [*vouched][:MOST_VOUCHERS])

    def _find_passage(self, run: Run, value: Any) -> Passage | None:
        found = (state.sources.find_passage(value) for state in self._list_states(run))
        return next(filter(None, found), None)

    # -- state --------------------------------------------------------------------------------------------------------

    def _is_tainted(self, run: Run) -> bool:
        return any(state.sources.tainted or state.child_tainted for state in self._list_states(run))

    def _list_states(self, run: Run) -> list[_FlowState]:
        """Return the states of a run and of the runs above it."""
        states = [self._get_state(run)]
        return states if run.parent is None else [*states, *self._list_states(run.parent)]

    def _get_state(self, run: Run) -> _FlowState:
        state = run.scratch.get(self)
        if state is None:
            sources, child_tainted = Sources(typed_by_user=run.parent is None), CHILD in run.thread.values
            state = run.scratch[self] = _FlowState(sources, child_tainted=child_tainted)
        state.sources.update(run.thread, run.tools)
        return state


@dataclass(slots=True)
class _FlowState:
    """The state of one run: its sources, the grants that calls have used, and whether a child read text of others."""

    sources: Sources
    claims: dict[str, str] = field(default_factory=dict)  # ids of grants, by the key of the tool use
    child_tainted: bool = False
    instructions: frozenset[str] | None = None  # names of files and folders
    labels: dict[tuple[str, str, bool], FrozenDict] = field(default_factory=dict)  # by tool, computed once

    @property
    def label(self) -> Label:
        """The label of this run's entries for a run below it: entries of another thread are no sources there."""
        return replace(self.sources.label, sources=())

    def find_label(self, tool: Tool, flow: ToolFlow) -> FrozenDict:
        """Return the label of a tool's result, as JSON data."""
        key = tool.name, repr(flow), self.child_tainted
        if key not in self.labels:
            label = Label.from_flow(tool.name, flow, child_trusted=not self.child_tainted)
            self.labels[key] = freeze(label.to_json())
        return self.labels[key]


_REFUSED: FrozenDict = freeze(Label(returns={"*": "own"}).to_json())  # the text of a refusal is wick's


def _is_default(tool: Tool, name: str, value: Any) -> bool:
    """Return True if an argument has the default of the tool's schema, so that its author chose it."""
    schema = tool.parameters.get("properties", {}).get(name, {})
    return "default" in schema and schema["default"] == value and type(schema["default"]) is type(value)
