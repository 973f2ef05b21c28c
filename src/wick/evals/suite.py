"""Suites of cases: the schema of a suite file, and its loader.

    suite = load_suite("refunds.yaml")
    suite.cases[0].id

A YAML file has the keys of `EvalSuite`. A JSONL file has one case in each line; a line without an `id` has the other
keys of the suite. An invalid file is refused with the line and the id of the case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from wick._internal.factory_options import suggest_key
from wick._internal.safe_yaml import ConfigLineError, KeyPath, YamlSource, load_yaml, read_text
from wick.constants import EVAL_SUITE_BYTES
from wick.errors import ConfigError, MessageError
from wick.messages import Message, Messages, user
from wick.protocols import HoldsSchema
from wick.results import Outcome

RequestPart = Literal["system", "tools", "messages"]
ToolSource = Literal["recorded", "real"]
Answer = Literal["allow", "deny"]
_CASE_ID = re.compile(r"\w[\w.:-]{0,199}")
_PYTHON_NAME = re.compile(r"[\w.]+:[\w.]+")
_TEXT_KEYS = ("output", "expected_output", "answer", "response", "reference", "contains")
_FAMILIAR_KEYS = {  # of other libraries
    "rubric": "judge",
    "judges": "judge",
    "llm_judge": "judge",
    "evaluators": "scorers",
    "metrics": "scorers",
    "assertions": "expect",
    "expected": "expect",
    "name": "id",
    "prompt": "input",
    "question": "input",
    "tools": "calls",
    **dict.fromkeys(_TEXT_KEYS, "text"),
    "agent": "variants",
    "agents": "variants",
}


class StrictEvalModel(BaseModel):
    """A model that refuses unknown keys and converted types."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


def check_pattern(pattern: str) -> str:
    """Return a regular expression; raise a ValueError if it is not one."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern


def format_argument(value: Any) -> str:
    """Return an argument as the text that a pattern is compared with: a value that is not a text as readable JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def equals_argument(written: Any, sent: Any) -> bool:
    """Return True if an argument is as written in a suite. A number also equals its text, as of a `Decimal`."""
    if isinstance(written, dict) and isinstance(sent, dict):
        return written.keys() == sent.keys() and all(equals_argument(written[key], sent[key]) for key in written)
    if isinstance(written, list) and isinstance(sent, list):
        return len(written) == len(sent) and all(map(equals_argument, written, sent))
    if isinstance(written, int | float) and not isinstance(written, bool) and isinstance(sent, str):
        with suppress(InvalidOperation):
            return Decimal(sent) == Decimal(str(written))
    return bool(written == sent)


def _as_text(value: Any) -> Any:
    """Return a number as text: YAML reads `contains: 35` as a number."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _as_map(key: str, *more: type) -> BeforeValidator:
    """Return a validator that accepts a text, a number or one of `more` in place of a mapping with one key."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, (str, int, float, *more)) else value)


def _check_rubric(rubric: str) -> str:
    if _PYTHON_NAME.fullmatch(rubric):
        raise ValueError(
            f"{rubric!r} is not a rubric, which is a text such as `The answer is polite.`; name your own judge model "
            f"in the suite, `judge: {{model: '{rubric}'}}`, or a function in `scorers: ['{rubric}']`"
        )
    return rubric


def _check_scorers(value: Any) -> list[Any]:
    """Return the names of custom scorers. A judge is not one of them."""
    names: list[Any] = _as_list(value)
    for name in names:
        if name == "judge" or (isinstance(name, dict) and "judge" in name):
            raise ValueError("a judge is not a scorer; write `judge: RUBRIC` in `expect`, beside `scorers`")
        if not isinstance(name, str) or not _PYTHON_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not written as module:name, such as scorers:cites_order")
    return names


Text = Annotated[str, BeforeValidator(_as_text)]
Texts = Annotated[list[Text], BeforeValidator(_as_list)]
Names = Annotated[list[str] | None, BeforeValidator(lambda value: None if value is None else _as_list(value))]
Pattern = Annotated[str, AfterValidator(check_pattern)]


# -- recordings ------------------------------------------------------------------------------------------------------


class RecordedRequest(StrictEvalModel):
    """A request to a model in short, in the form of a cassette."""

    system: str = ""
    tools: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    messages: list[dict[str, Any]]


class RequestFingerprint(StrictEvalModel):
    """Hashes of the parts of a request to a model, in recordings of earlier versions."""

    system: str = ""
    tools: dict[str, str] = Field(default_factory=dict)
    messages: str = ""


class RecordedCall(StrictEvalModel):
    """A tool call of a recorded reply. `raw` replaces `args` if they are not valid: the text that the model wrote."""

    tool: str
    args: dict[str, Any] = Field(default_factory=dict)
    id: str = ""
    raw: str | None = None


class RecordedReasoning(StrictEvalModel):
    """A block of reasoning of a recorded reply."""

    text: str = ""
    signature: str = ""
    provider: str = ""


class EvalReply(StrictEvalModel):
    """A recorded reply of a model; a string in place of the mapping is its `text`."""

    text: str = ""
    calls: list[RecordedCall] = Field(default_factory=list)
    reasoning: list[RecordedReasoning] = Field(default_factory=list)
    purpose: str = ""
    model: str = ""
    holds_schema: Literal["", HoldsSchema] = ""  # of the recorded model: the form of a structured output depends on it
    usage: dict[str, int] = Field(default_factory=dict)
    finish: str = ""
    request: RecordedRequest | RequestFingerprint | None = None


class RecordedResult(StrictEvalModel):
    """A recorded result of a tool, for calls that have these arguments; without `args`, for any call of the tool."""

    tool: str
    args: dict[str, Any] | None = None
    output: str = ""
    error: str = ""
    data: Any = None

    @model_validator(mode="before")
    @classmethod
    def _write_output_as_text(cls, row: Any) -> Any:
        """Accept data as `output`: the model reads it as JSON, as if the tool had returned it."""
        if not isinstance(row, dict) or isinstance(row.get("output", ""), str):
            return row
        return {"data": row["output"], **row, "output": json.dumps(row["output"], ensure_ascii=False)}


class RecordedAnswer(StrictEvalModel):
    """The answer to a question about a tool use with these arguments; without `args`, about any use of the tool.

    With `run_with`, the user changed the arguments: the call runs with these.
    """

    args: dict[str, Any] | None = None
    answer: Answer
    run_with: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_answer(self) -> Self:
        if self.run_with is not None and self.answer != "allow":
            raise ValueError("`run_with` has the arguments of a call that is allowed; write `answer: allow`")
        return self


Approvals = Answer | dict[str, Answer | list[RecordedAnswer]]
Replies = list[Annotated[EvalReply, _as_map("text")]]


# -- expectations ----------------------------------------------------------------------------------------------------


class ExpectedText(StrictEvalModel):
    """Conditions for a text."""

    contains: Texts = Field(default_factory=list)
    excludes: Texts = Field(default_factory=list)
    matches: Pattern = ""
    equals: Text | None = None


class ExpectedArguments(StrictEvalModel):
    """The arguments of at least one call of a tool."""

    tool: str
    args: dict[str, Any]
    match: Literal["subset", "exact", "regex"] = "subset"

    @model_validator(mode="after")
    def _check_patterns(self) -> Self:
        for pattern in self.patterns.values() if self.match == "regex" else ():
            check_pattern(pattern)
        return self

    @property
    def patterns(self) -> dict[str, str]:
        """The arguments as regular expressions. YAML reads `true` and `7` as other values than texts."""
        return {name: format_argument(value) for name, value in self.args.items()}


class ExpectedOutput(ExpectedText):
    """Conditions for the output of at least one call of a tool."""

    tool: str


class ExpectedVerdict(StrictEvalModel):
    """A rubric for a judge model; a string in place of the mapping is the `rubric`."""

    rubric: Annotated[str, AfterValidator(_check_rubric)]
    threshold: Annotated[float, Field(ge=0, le=1, strict=False)] | None = None
    replies: Replies = Field(default_factory=list)


class Expectations(StrictEvalModel):
    """The expected behavior of an agent in one case. Every key is optional."""

    outcome: Outcome = "completed"
    calls: Names = None
    order: Names = None
    not_called: Texts = Field(default_factory=list)
    arguments: Annotated[list[ExpectedArguments], BeforeValidator(_as_list)] = Field(default_factory=list)
    outputs: Annotated[list[ExpectedOutput], BeforeValidator(_as_list)] = Field(default_factory=list)
    blocked: Names = None
    asked: Names = None
    denied: Names = None
    invalid: Names = None
    text: Annotated[ExpectedText | None, _as_map("contains", list)] = None
    max_steps: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=0)
    max_cost: Annotated[float, Field(ge=0, strict=False)] | None = None
    judge: Annotated[ExpectedVerdict | None, _as_map("rubric")] = None
    scorers: Annotated[list[str], BeforeValidator(_check_scorers)] = Field(default_factory=list)


# -- suites ----------------------------------------------------------------------------------------------------------


class EvalCase(StrictEvalModel):
    """One input for an agent, with its recordings and the expected behavior."""

    id: str
    input: str = ""
    messages: list[dict[str, Any]] = Field(default_factory=list)
    replies: Replies = Field(default_factory=list)
    results: list[RecordedResult] = Field(default_factory=list)
    tools: ToolSource | None = None
    approvals: Approvals | None = None
    expect: Expectations = Field(default_factory=Expectations)
    thread: str = ""

    def build_input(self) -> list[Message]:
        """Return the messages that the run is given."""
        return [*Messages.from_json(self.messages), *([user(self.input)] if self.input else [])]


class EvalVariant(StrictEvalModel):
    """An agent under test: one of an agents.yaml, or of a module, with changes."""

    agent: str
    model: str | dict[str, Any] | None = None
    system_prompt: str | None = None
    settings: dict[str, Any] | None = None
    permissions: dict[str, Any] | None = None
    guards: Texts = Field(default_factory=list)
    without: Texts = Field(default_factory=list)
    deps: str = ""


def _check_judge_model(model: Any) -> Any:
    if isinstance(model, str) and " " in model.strip():
        raise ValueError(f"{model!r} is not the name of a model; write a rubric in `expect`, as `judge: RUBRIC`")
    return model


class JudgeOptions(StrictEvalModel):
    """The model that judges answers, and the score from which an answer passes."""

    model: Annotated[str | dict[str, Any], AfterValidator(_check_judge_model)] = "auto"
    threshold: Annotated[float, Field(ge=0, le=1, strict=False)] = 0.7


@dataclass(slots=True)
class _SuiteOrigin:
    """The file of a suite, with the lines of its values. Suites of other files are equal all the same."""

    source: YamlSource | None = field(default=None, compare=False)


class EvalSuite(StrictEvalModel):
    """Cases, and the variants of an agent that are compared. The first variant is the reference of the others."""

    name: str = ""
    variants: dict[str, Annotated[EvalVariant, _as_map("agent")]] = Field(default_factory=dict)
    tools: ToolSource = "recorded"
    approvals: Approvals = "deny"
    requests: list[RequestPart] = Field(default_factory=lambda: [*get_args(RequestPart)])
    judge: Annotated[JudgeOptions, _as_map("model")] = Field(default_factory=JudgeOptions)
    timeout: Annotated[float, Field(gt=0, strict=False)] = 300.0
    expect: Expectations | None = None
    cases: list[EvalCase] = Field(default_factory=list)
    _origin: _SuiteOrigin = PrivateAttr(default_factory=_SuiteOrigin)

    def error_at(self, at: Sequence[int | str], problem: str, case: str = "") -> ConfigError:
        """Return an error with the line of a value in the file; that of a case is at a place below the case."""
        source = self._origin.source
        if case:
            problem = f"case {case!r}: {problem}"
        if source is None:
            return ConfigError(problem)
        rows = source.data.get("cases", [])
        index = next((index for index, row in enumerate(rows) if row["id"] == case), None)
        return source.error_at(tuple(at) if index is None else ("cases", index, *at), problem)

    def tools_of(self, case: EvalCase) -> ToolSource:
        """Return whether the tools of a case are recorded or real."""
        return case.tools or self.tools

    def approvals_of(self, case: EvalCase) -> Approvals:
        """Return the answers to questions about the tool uses of a case."""
        return self.approvals if case.approvals is None else case.approvals


def load_suite(path: str | Path) -> EvalSuite:
    """Return the suite of a YAML or JSONL file; raise a ConfigError with the line and the case of a problem."""
    path = Path(path)
    if path.suffix not in (".yaml", ".yml", ".jsonl"):
        raise ConfigError(f"{path} is not a suite; its name must end with .yaml or .jsonl")
    text = read_text(path, EVAL_SUITE_BYTES, "; split it into several suites")
    if path.suffix == ".jsonl":
        source = _parse_lines(text, str(path))
    else:
        data, lines = load_yaml(text, str(path))
        if not isinstance(data, dict):
            raise ConfigLineError(str(path), 1, (), "a suite is a mapping with the keys `variants:` and `cases:`")
        source = YamlSource(str(path), data, lines)
    suite = validate_suite(source)
    suite.name = suite.name or path.stem
    return suite


def _parse_lines(text: str, name: str) -> YamlSource:
    data: dict[str, Any] = {}
    cases, lines = list[Any](), dict[KeyPath, int]({(): 1})
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigLineError(name, number, (), f"this line is not JSON: {error}") from None
        if isinstance(row, dict) and "id" not in row and not cases and not data:
            data, lines[()] = row, number
        else:
            lines[("cases", len(cases))] = number
            cases.append(row)
    first = data.get("cases", [])
    if not isinstance(first, list):
        raise ConfigLineError(
            name, lines[()], ("cases",), "`cases` must be a list; leave it out if each line is a case"
        )
    return YamlSource(name, {**data, "cases": [*first, *cases]}, lines)


def validate_suite(source: YamlSource) -> EvalSuite:
    """Return the suite of parsed data; raise a ConfigError with the line of the first problem."""
    try:
        suite = EvalSuite.model_validate(source.data)
    except ValidationError as problem:
        # Report the deepest error of a union: it belongs to the intended branch.
        # An unknown key comes before a missing one, which it may be meant for.
        errors = sorted(problem.errors(include_url=False), key=lambda error: error["type"] != "extra_forbidden")
        error = max(errors, key=lambda error: len(error["loc"]))
        raise source.error_at(error["loc"], _describe_error(source.data, error["loc"], error)) from None
    if not suite.cases:
        raise source.error_at((), "there are no cases; write them under `cases:`, each with an `id` and an `input`")
    first = dict[str, int]()
    for index, case in enumerate(suite.cases):
        if what := _find_problem(case, first):
            raise source.error_at(("cases", index), f"case {case.id!r}: {what}")
        first[case.id] = index
    suite._origin.source = source
    return suite


def _find_problem(case: EvalCase, known: Mapping[str, int]) -> str:
    if not _CASE_ID.fullmatch(case.id):
        return "an id has letters, digits, `_`, `.`, `:` and `-`, at most 200"
    if case.id in known:
        return f"the id is used twice; case {known[case.id] + 1} has it already"
    try:
        if not case.build_input():
            return "there is no input; give `input` a string, or `messages` a list"
        Messages(case.build_input()).validate()
    except MessageError as error:
        return f"messages: {error}"
    return ""


def _describe_error(data: Any, at: Sequence[int | str], error: Any) -> str:
    """Return the problem at a place of a suite, with the id of the case and a hint for an unknown key."""
    where = ".".join(str(key) for key in at if not isinstance(key, int))
    case = ""
    if len(at) > 1 and at[0] == "cases" and isinstance(at[1], int):
        row = data["cases"][at[1]]
        case = f"case {row['id']!r}: " if isinstance(row, dict) and "id" in row else f"case {at[1] + 1}: "
        where = where.removeprefix("cases").lstrip(".")
    if error["type"] == "extra_forbidden":
        return f"{case}there is no key {where!r}; {_suggest_key(str(at[-1]), _known_keys(at[:-1]))}"
    if error["type"] == "model_type":
        known = ", ".join(_known_keys(at))
        return f"{case}{where}: this is a mapping with keys such as {known}"
    if error["type"] == "missing":
        return f"{case}the key {where!r} is missing"
    return f"{case}{where}: {error['msg'].removeprefix('Value error, ')}"


def _suggest_key(key: str, known: Sequence[str]) -> str:
    """Return a hint for an unknown key, also if it is a key of the expectations, or of another library."""
    if "expect" in known and "id" in known and (key in Expectations.model_fields or key in _TEXT_KEYS):
        inner = key if key in Expectations.model_fields else "text"
        return f"write it below `expect:`, as `expect: {{{inner}: …}}`"
    if "not_called" in known and key in ExpectedText.model_fields:
        return f"write it below `text:`, as `text: {{{key}: …}}`"
    if "rubric" in known and key == "model":
        return "name the model in the suite: `judge: {model: …}`"
    if _FAMILIAR_KEYS.get(key) in known:
        return f"did you mean {_FAMILIAR_KEYS[key]!r}?"
    return suggest_key(key, known)


def _known_keys(at: Sequence[int | str]) -> list[str]:
    """Return the keys of the mapping at a place of a suite."""
    known: Any = EvalSuite
    for key in at:
        if isinstance(key, str) and key in getattr(known, "model_fields", {}):
            known = _find_model(known.model_fields[key].annotation)
    return [*getattr(known, "model_fields", ())]


def _find_model(annotation: Any) -> Any:
    """Return the model inside of an annotation, such as `list[EvalCase]`; None without one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_find_model(inner) for inner in getattr(annotation, "__args__", ()))
    return next((model for model in found if model is not None), None)
