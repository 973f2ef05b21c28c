"""Structured output: final answers that are validated against a schema, with retries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import isawaitable
from typing import Any, Generic, Literal, get_origin, overload

from pydantic import BaseModel, RootModel, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import from_json

from wick._internal.frozen import canonical_json, freeze, thaw
from wick._internal.tool_flow import declare_flow
from wick._internal.tool_schema import NO_ARGS, BoundArguments, FunctionArguments, encode_arguments, find_injected
from wick.capability import Capability
from wick.constants import OUTPUT_RETRIES
from wick.decisions import Continue, Stop
from wick.errors import ConfigError, InvalidArgs, ModelError
from wick.hooks import Next, after, before, wrap
from wick.messages import Message
from wick.operations import ANSWERED, ModelCall, Output, Run, Step, ToolUse
from wick.protocols import holds_schema
from wick.tools import Tool, tool

TOOL, KEY = "final_answer", "answer"  # of a schema that has no name
ANSWER = "answer"  # the kind of these tools; children do not inherit them
INNER = -99.0  # after hooks that set the model and the tools; outside of Budget, so that a skipped call is not reserved
OUTERMOST = 100.0  # before Limits checks the step
FLOW: dict[str, Any] = {"effect": "read", "returns": "own", "targets": []}  # an answer goes to the caller only
ACCEPTED = "Accepted."
REFUSED = (400, 422)  # status codes of providers for an unsupported schema
FINISHED = ("completed", "finish reason")

Schema = Any  # a type, or a JSON Schema as a mapping

_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)


class StructuredOutput(Capability, Generic[Output]):
    """Validates the final answer against `schema`: a type or a JSON Schema, or several by name.

    A type is a pydantic model, a dataclass, or another type that pydantic knows, such as `list[int]`.

    The value is `result.output`; its JSON is stored in `thread.values["outputs"]`. Providers with native support get
    the schema in the request; other models answer by calling a tool. An invalid answer goes back with the error, up to
    `retries` times. `Agent(…, output_type=StructuredOutput(Trip, retries=1))` also gives `result.output` its type.

    `validator` is a function that gets the value, and the deps or the run in parameters of these types. If it raises a
    ValueError, the answer is invalid.
    """

    @overload
    def __init__(
        self,
        schema: type[Output],
        *,
        retries: int = ...,
        native: bool | None = ...,
        need: Literal["all", "any"] = ...,
        validator: Callable[..., Any] | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: StructuredOutput[dict[str, Any]],
        schema: Mapping[str, Any],
        *,
        retries: int = ...,
        native: bool | None = ...,
        need: Literal["all", "any"] = ...,
        validator: Callable[..., Any] | None = ...,
    ) -> None: ...
    def __init__(
        self,
        schema: type[Any]
        | type[BaseModel]
        | Mapping[str, Any],  # agents.yaml reads this hint, to import a class by name
        *,
        retries: int = OUTPUT_RETRIES,
        native: bool | None = None,
        need: Literal["all", "any"] = "all",
        validator: Callable[..., Any] | None = None,
    ) -> None:
        if type(retries) is not int or retries < 0:
            raise ConfigError(f"StructuredOutput(retries={retries!r}): give a whole number of at least 0")
        if native not in (None, True, False) or need not in ("all", "any"):
            raise ConfigError('StructuredOutput takes native=True, False or None, and need="all" or "any"')
        self.several = not _is_schema(schema)
        if not self.several:
            schemas = {KEY: schema}
        elif isinstance(schema, Mapping) and schema and all(map(_is_schema, schema.values())):
            schemas = dict(schema)
        else:
            forms = "a type, such as a pydantic model, a JSON Schema, or several as {name: schema}"
            raise ConfigError(f"StructuredOutput takes {forms}, not {schema!r}{_hint_at_model(schema)}")
        name: Any  # the caller may not check types
        for name in schemas if self.several else ():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ConfigError(f"{name!r} cannot name an answer: take up to 50 letters, digits, - and _")
        if self.several and native:
            raise ConfigError("StructuredOutput(native=True) holds an answer to one schema; leave it out for several")
        if validator is not None and not callable(validator):
            raise ConfigError(f"StructuredOutput(validator={validator!r}): give a function that takes the answer")
        self.retries, self.native, self.need, self.validator = retries, native, need, validator
        self._injected, self._deps = ({}, ()) if validator is None else find_injected(validator)
        self.forms = [self._build_form(name, given) for name, given in schemas.items()]
        self.by_tool = {form.tool.name: form for form in self.forms}

    def tools(self) -> list[Tool]:
        return [form.tool for form in self.forms]

    def _build_form(self, name: str, schema: Schema) -> _AnswerForm:
        async def take(use: ToolUse, **fields: Any) -> str:
            state: _AnswerState = use.run.scratch.setdefault(self, _AnswerState())
            await self._store_answers(use.run, state, {form.name: form.parse(thaw(use.args))})
            missing = [other.tool.name for other in self.forms if other.name not in state.given]
            return ACCEPTED if self._is_complete(state) else f"{ACCEPTED} Still wanted: {', '.join(missing)}."

        form = _build_form(name, f"answer_{name}" if self.several else TOOL, schema, take)
        return form

    @before(Run)
    def recall(self, run: Run) -> None:
        """Initialize the state; a resumed run restores the answers it has accepted."""
        for parameter in self._deps:
            if parameter.required and not parameter.accepts(run.deps):
                needed = f"the validator of the output has the parameter {parameter.name}: {parameter.type_name}"
                raise ConfigError(f"{needed}; pass agent.run(…, deps=…) an object of this type")
        state = run.scratch[self] = _AnswerState()
        if not run.resumed:
            return
        output = run.thread.messages[run.thread.output_from :]
        taken = {message.name for message in output if message.role == "tool" and message.text.startswith(ACCEPTED)}
        for form in self.forms:
            if form.tool.name in taken and form.name in run.thread.values.get("outputs", {}):
                state.recall(form, run.thread.values["outputs"][form.name])

    @before(Step, priority=OUTERMOST)
    def mark_answered(self, step: Step) -> None:
        """Note that the model is not called in this step, so that limits do not stop a run that has its answer."""
        state = step.run.scratch.get(self)
        if state is not None and not step.pending and self._is_unreported(step.run, state):
            step.notes[ANSWERED] = True

    @before(ModelCall, priority=INNER)
    def add_schema(self, call: ModelCall) -> None:
        """Add the schema to the request: as the provider's response format, or as tools."""
        state = call.run.scratch.get(self)
        if call.purpose or state is None:
            return
        others = [tool for tool in call.tools if tool.name not in self.by_tool]
        can_be_native = not (self.several or state.refused or self.native is False)
        state.native = can_be_native and (self.native is True or holds_schema(call.model, tools=bool(others)))
        if state.native:
            call.tools, call.settings["response_format"] = others, thaw(self.forms[0].schema)
        else:
            call.tools = [*others, *self.tools()]
            call.settings.pop("response_format", None)
            how = "each of these" if self.need == "all" else "the one of these that fits"
            hint = (
                f"When you have the answer, give it by calling {how}: {', '.join(self.by_tool)}. A text does not count."
                if self.several
                else f"When you have the answer, give it by calling {TOOL}: a text in its place does not count."
            )
            call.system = "\n\n".join(filter(None, (call.system, hint)))

    @wrap(ModelCall, priority=INNER)
    async def ask(self, call: ModelCall, next: Next[Message]) -> Message:
        """Skip the model call if the answer is complete; fall back to tools if the provider refuses the schema."""
        state = call.run.scratch.get(self)
        if call.purpose or state is None:
            return await next(call)
        if self._is_unreported(call.run, state):
            state.is_reported = True
            answer = state.stored if self.several else state.stored[KEY]
            return Message("assistant", json.dumps(answer, ensure_ascii=False))
        if self._is_complete(state):
            state.reset()  # new user input needs a new answer
        try:
            return await next(call)
        except ModelError as error:
            if not state.native or self.native or error.status not in REFUSED:
                raise
            state.refused = True
            call.run.record("schema_refused", model=call.model.name, error=str(error))
        return await next(call)

    @after(ToolUse)
    def count(self, use: ToolUse) -> Stop | None:
        """Count a rejected answer as a failure. The tool result has told the model why."""
        state = use.run.scratch.get(self)
        mine = use.tool is not None and use.tool.name in self.by_tool
        if not mine or state is None or use.error is not None or not use.result.error:
            return None
        state.failures += 1
        return self._stop_after_failures(use.result.error) if state.failures > self.retries else None

    @after(Step)
    async def check(self, step: Step) -> Stop | Continue | None:
        """Continue a run that finished without a valid answer; stop it after the last retry."""
        run, state = step.run, step.run.scratch.get(self)
        over = isinstance(step.result, Stop) and step.result.kind in FINISHED and run.stopping is None
        if not over or state is None or self._is_complete(state):
            return None
        last = run.output[-1] if len(run.output) else None
        try:
            await self._accept_text(run, state, last.text if last is not None and last.role == "assistant" else "")
        except InvalidArgs as error:
            state.failures += 1
            if state.failures > self.retries:
                return self._stop_after_failures(str(error))
            missing = [form.tool.name for form in self.forms if form.name not in state.given]
            hint = (
                "Answer again, with JSON that fits the schema and with nothing else."
                if state.native
                else f"Call {', '.join(missing)}."
            )
            return Continue(f"Your answer was not taken: {error}. {hint}")
        return None

    def _stop_after_failures(self, problem: str) -> Stop:
        times = f"{self.retries} {'retry' if self.retries == 1 else 'retries'}"
        return Stop(f"retry limit: no answer fitted after {times}: {problem}")

    @after(Run)
    async def hand_over(self, run: Run) -> None:
        state = run.scratch.get(self)
        if state is None or run.error is not None:
            return
        if run.result.outcome == "completed" and not self._is_complete(state):  # a resumed run may end without a step
            try:
                await self._accept_text(run, state, run.result.text)
            except InvalidArgs as error:
                if state.failures:  # the retries were used up
                    run.result = replace(
                        run.result, outcome="stopped", reason=self._stop_after_failures(str(error)).reason
                    )
                return
        if self._is_complete(state):
            run.result = replace(run.result, value=dict(state.given) if self.several else state.given[KEY])

    # -- accepted answers ----------------------------------------------------------------------------------------------

    def _is_complete(self, state: _AnswerState) -> bool:
        return len(state.given) >= (len(self.forms) if self.need == "all" else 1)

    def _is_unreported(self, run: Run, state: _AnswerState) -> bool:
        """Return True if the answer is complete, and is the next assistant message in place of a reply."""
        return self._is_complete(state) and not state.is_reported and run.thread.messages[-1].role == "tool"

    async def _accept_text(self, run: Run, state: _AnswerState, text: str) -> None:
        """Accept an answer given as text; raise InvalidArgs if it is not valid."""
        body = text.strip()
        if fenced := _FENCED.fullmatch(body):
            body = fenced[1]
        try:
            data = _require_object(from_json(body, allow_inf_nan=False))
        except ValueError as error:
            raise InvalidArgs(f"it is not JSON ({error})") from None
        if not self.several:
            await self.forms[0].tool.prepare(data)
            return await self._store_answers(run, state, {KEY: self.forms[0].parse(data)})
        forms = {form.name: form for form in self.forms}
        if unknown := [name[:50] for name in data if name not in forms]:
            raise InvalidArgs(f"there is no answer {unknown[0]!r}; the answers are {', '.join(forms)}")
        for name, value in data.items():
            await forms[name].tool.prepare(_require_object(value))
        await self._store_answers(run, state, {name: forms[name].parse(value) for name, value in data.items()})
        if not self._is_complete(state):
            raise InvalidArgs("something is missing")

    async def _store_answers(self, run: Run, state: _AnswerState, read: Mapping[str, tuple[Any, Any]]) -> None:
        """Store answers that the validator accepts; raise InvalidArgs for others."""
        if not read:
            return
        if self.validator is not None:
            given: dict[str, Any] = dict.fromkeys(self._injected, run)
            given |= {found.name: run.deps for found in self._deps if found.is_injected and found.wants(run.deps)}
            try:
                for value, _ in read.values():
                    if isawaitable(checked := self.validator(value, **given)):
                        await checked
            except ValueError as error:
                raise InvalidArgs(str(error)) from None
        stored = {name: data for name, (_, data) in read.items()}
        run.thread.values["outputs"] = {**thaw(run.thread.values.get("outputs", {})), **stored}
        if not read.keys() <= state.given.keys():  # a repeated answer is not progress
            state.failures = 0
        state.given |= {name: value for name, (value, _) in read.items()}
        state.stored |= stored


@dataclass(slots=True)
class _AnswerState:
    """The accepted answers of a run, as values and as JSON."""

    given: dict[str, Any] = field(default_factory=dict)
    stored: dict[str, Any] = field(default_factory=dict)
    failures: int = 0  # in a row
    is_reported: bool = False  # the answer was sent as the final assistant message
    native: bool = False  # the request has the schema as response format
    refused: bool = False  # the provider rejected the schema

    def reset(self) -> None:
        self.given, self.stored, self.is_reported = {}, {}, False

    def recall(self, form: _AnswerForm, stored: Any) -> None:
        try:
            self.given[form.name], self.stored[form.name] = form.parse(thaw(stored))
        except InvalidArgs:
            return  # the stored JSON does not round-trip through the schema; the model answers again


def _require_object(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InvalidArgs("it must be a JSON object")
    return data


# -- schemas ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AnswerForm:
    """One schema, and the tool that accepts an answer of this schema."""

    name: str
    tool: Tool
    schema: Mapping[str, Any]
    model: type[BaseModel] | None
    field: str = ""  # of the generated model, if the output type is not a pydantic model

    def parse(self, args: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the value of JSON data and the JSON to store; raise InvalidArgs if it does not match the schema."""
        try:
            data = self.tool.validate(args)
            if self.model is None:
                return thaw(data), data
            found = self.model.model_validate_json(canonical_json(data))
            value = getattr(found, self.field) if self.field else found
            return value, thaw(freeze(found.model_dump(mode="json", by_alias=True, warnings=False)))
        except InvalidArgs as error:
            raise InvalidArgs(str(error).removeprefix(f"{self.tool.name}: ")) from None
        except Exception as error:  # custom serializers may return anything, for example NaN
            raise InvalidArgs(f"it cannot be kept as JSON ({error})") from None


@dataclass(frozen=True, eq=False)
class _ModelTool(Tool):
    """A tool with the fields of a pydantic model as arguments."""

    model: type[BaseModel] = BaseModel

    @cached_property
    def arguments(self) -> FunctionArguments:
        injected, _ = find_injected(self.fn)
        return _ModelArguments(dict(self.foreign or {}), injected, (), self.model, (), {}, frozenset())


class _ModelArguments(FunctionArguments):
    """Arguments that a pydantic model validates without converting them."""

    __slots__ = ()

    def validate(self, tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
        self._validate_model(tool, encode_arguments(tool, args), args)
        return thaw(dict(args))  # type: ignore[no-any-return]

    def bind(
        self, tool: str, data: bytes, args: Mapping[str, Any] = NO_ARGS, *, checked: bool = False
    ) -> BoundArguments:
        """Bind no values: the tool reads the arguments as they are sealed."""
        if not checked:
            self._validate_model(tool, data, args)
        return BoundArguments({}, freeze(from_json(data)), data)


def _build_form(name: str, tool_name: str, given: Schema, take: Callable[..., Any]) -> _AnswerForm:
    about = f"Give your final answer{'' if name == KEY else f': {name}'}."
    options: dict[str, Any] = {"read_only": True, "kind": ANSWER}
    if isinstance(given, Mapping):
        schema = _resolve_root(given)
        if schema.get("type") != "object":
            raise ConfigError(f"the schema of {name!r} must be of type object; put the value into a field of an object")
        untyped = tool(take, name=tool_name, description=about, parameters=schema, **options, **FLOW)
        described = untyped.schema["parameters"]  # raises for an invalid schema
        return _AnswerForm(name, untyped, described, None)
    is_model = isinstance(given, type) and issubclass(given, BaseModel)
    try:
        model: type[BaseModel] = given if is_model else RootModel[given]
        field, schema = "" if is_model else "root", _resolve_root(model.model_json_schema())
        if {"type": "null"} in schema.get("anyOf", ()):
            raise ConfigError(
                f"{given}: the output cannot be None, which means a missing output; use a model with an optional field"
            )
        if schema.get("type") != "object":  # a tool takes an object
            model, field = create_model("Answer", value=(given, ...)), "value"
            schema = model.model_json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{getattr(given, '__name__', given)} cannot be described as a JSON Schema: {error}"
        ) from None
    flow = declare_flow(**FLOW)
    typed = _ModelTool(tool_name, about, take, foreign=schema, model=model, flow=flow, **options)
    return _AnswerForm(name, typed, schema, model, field)


def _resolve_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without a `$ref` at its root, as that of a recursive model."""
    reference = str(schema.get("$ref", ""))
    if reference.startswith("#/$defs/"):
        schema = {**schema, **schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})}
        schema = {key: value for key, value in schema.items() if key != "$ref"}
    return dict(schema)


def _hint_at_model(schema: object) -> str:
    """Return how another output type is given."""
    if isinstance(schema, BaseModel):
        return f"; give the class itself: {type(schema).__name__}"
    return "; without an output_type, result.text is the text" if schema is str else ""


def _is_schema(given: object) -> bool:
    if isinstance(given, Mapping):
        return any(isinstance(given.get(key), str) for key in ("type", "$ref", "$schema"))
    return given is not str and (isinstance(given, type) or get_origin(given) is not None)
