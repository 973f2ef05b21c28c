"""Google Gemini: https://ai.google.dev/api/generate-content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from provider.checks import check_distinct, check_keys, check_list, check_number, check_schema, need
from provider.script import Event, Reply, Tokens, dumps

KEYS = set("contents tools toolConfig safetySettings systemInstruction generationConfig cachedContent labels".split())
PARTS = {
    "user": {"text", "inlineData", "fileData", "functionResponse"},
    "model": {"text", "functionCall", "thought"},
}
CONFIG = set(
    "stopSequences responseMimeType responseSchema responseJsonSchema candidateCount maxOutputTokens temperature topP "
    "topK thinkingConfig".split()
)
KEYWORDS = set(
    "$defs $ref type format title description enum items prefixItems minItems maxItems minimum maximum anyOf oneOf "
    "properties additionalProperties required".split()
)
REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
STATUS |= {429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
SKIPPED = "skip_thought_signature_validator"


class Gemini:
    """The wire format of :streamGenerateContent?alt=sse."""

    name = "gemini"
    path = ":streamGenerateContent"

    def streams(self, asked: Mapping[str, Any]) -> bool:
        return True

    def encode(self, event: Event) -> bytes:
        return event.encode()

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[Event]:
        """The last thought's signature is at the first call, or else at the last piece of text."""
        *before, last = reply.thoughts or (None,)
        yield _chunk("start", [{"text": ""}])
        for thought in before:
            if thought is not None:
                part = {"text": thought.text, "thought": True, "thoughtSignature": thought.signature}
                yield _chunk("reasoning", [part])
        for text in reply.pieces(last.text) if last else ():
            yield _chunk("reasoning", [{"text": text, "thought": True}])
        signed = {"thoughtSignature": last.signature} if last and last.signature else {}
        pieces = reply.pieces(reply.text)
        for number, text in enumerate(pieces):
            is_last = number == len(pieces) - 1 and not reply.calls
            yield _chunk("text", [{"text": text} | (signed if is_last else {})])
        for number, call in enumerate(reply.calls):
            function = {"name": call.name, "args": _ARGS, "id": call.id}
            part = {"functionCall": function} | (signed if number == 0 else {})
            yield _with_args(_chunk("call", [part], number=number), call.args)
        usage = {"usageMetadata": _usage(reply.tokens)} if reply.tokens is not None else {}
        candidate = {"content": {"role": "model", "parts": []}, "finishReason": REASONS[reply.reason], "index": 0}
        yield Event("finish", {"candidates": [candidate], **usage})

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError("wick asks this API for streams alone")

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "status": STATUS.get(status, "UNKNOWN")}}

    def error_event(self, message: str) -> Event:
        return Event("error", self.error(503, message))

    def check(self, asked: Mapping[str, Any], headers: Mapping[str, str], issued: Mapping[str, str]) -> None:
        known = headers.get("x-goog-api-key") or headers.get("authorization")
        need(known, "Method doesn't allow unregistered callers.", 401)
        need(headers.get("content-type", "").startswith("application/json"), "Unsupported content type.", 415)
        check_keys(asked, KEYS, 'Invalid JSON payload received. Unknown name "{}": Cannot find field.')
        check_list(asked.get("contents"), "contents", lambda content, where: _check_content(content, where, issued))
        _check_answers(asked["contents"])
        if "systemInstruction" in asked:
            check_list(asked["systemInstruction"].get("parts"), "systemInstruction.parts", _check_text)
        _check_tools(asked)
        _check_config(asked.get("generationConfig", {}))


_ARGS = "\0arguments\0"


def _chunk(tag: str, parts: list[dict[str, Any]], number: int = 0) -> Event:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    return Event(tag, {"candidates": [candidate], "modelVersion": "gemini"}, number=number)


def _with_args(event: Event, args: str) -> Event:
    """Put arguments in their place. They are a part of the event's JSON here, so wrong ones spoil it."""
    try:
        value = json.loads(args) if args else None
        text = json.dumps(value, allow_nan=False)
        is_same = not args or json.loads(text, object_pairs_hook=list) == json.loads(args, object_pairs_hook=list)
    except (ValueError, RecursionError):
        is_same = False
    if is_same:
        return Event(event.tag, _replaced(event.data, value), number=event.number)
    return Event(event.tag, dumps(event.data).replace(json.dumps(_ARGS), args), number=event.number)


def _replaced(data: Any, value: Any) -> Any:
    if isinstance(data, dict):
        return {key: _replaced(item, value) for key, item in data.items() if item != _ARGS or value is not None}
    if isinstance(data, list):
        return [_replaced(item, value) for item in data]
    return value if data == _ARGS else data


def _usage(tokens: Tokens) -> dict[str, Any]:
    counts = {"promptTokenCount": tokens.input, "candidatesTokenCount": tokens.output - tokens.reasoning}
    counts |= {"totalTokenCount": tokens.input + tokens.output}
    counts |= {"cachedContentTokenCount": tokens.cached} if tokens.cached else {}
    return counts | ({"thoughtsTokenCount": tokens.reasoning} if tokens.reasoning else {})


def _check_content(content: dict[str, Any], where: str, issued: Mapping[str, str]) -> None:
    check_keys(content, {"role", "parts"}, f"Unknown name \"{{}}\" at '{where}': Cannot find field.")
    role = content.get("role")
    need(role in PARTS, f"Please use a valid role: user, model, not {role!r} at '{where}'.")
    check_list(content.get("parts"), f"{where}.parts", lambda part, place: _check_part(part, place, str(role), issued))
    calls = [part for part in content["parts"] if "functionCall" in part]
    for call in calls[:1]:  # Gemini 3 checks the first call of a turn
        name = call["functionCall"]["name"]
        need(call.get("thoughtSignature"), f"Function call `{name}` at '{where}' is missing a `thought_signature`.")


def _check_part(part: dict[str, Any], where: str, role: str, issued: Mapping[str, str]) -> None:
    kinds = [key for key in part if key not in ("thoughtSignature", "thought")]
    need(len(kinds) == 1 and kinds[0] in PARTS[role], f"Invalid part {sorted(part)} of a {role} at '{where}'.")
    signature = part.get("thoughtSignature")
    need(signature in (None, SKIPPED) or signature in issued, f"Thought signature is not valid at '{where}'.")
    kind, value = kinds[0], part[kinds[0]]
    if kind == "text":
        need(isinstance(value, str) and (value or signature), f"'{where}': must have one initialized field.")
    elif kind == "inlineData":
        check_keys(value, {"mimeType", "data"}, f"Unknown name \"{{}}\" at '{where}': Cannot find field.")
        need(re.fullmatch(r"[\w.+-]+/[\w.+-]+", str(value.get("mimeType"))), f"Unsupported MIME type at '{where}'.")
        need(re.fullmatch(r"[A-Za-z0-9+/]+=*", str(value.get("data"))), f"Base64 decoding failed at '{where}'.")
    elif kind == "fileData":
        need({*value} == {"mimeType", "fileUri"}, f"Invalid file_data at '{where}'.")
    elif kind == "functionCall":
        check_keys(value, {"name", "args", "id"}, f"Unknown name \"{{}}\" at '{where}': Cannot find field.")
        need(isinstance(value.get("args", {}), dict), f"Invalid value at '{where}.args'.")
        _check_name(value.get("name"), where)
    elif kind == "functionResponse":
        check_keys(value, {"name", "response", "id"}, f"Unknown name \"{{}}\" at '{where}': Cannot find field.")
        need(isinstance(value.get("response"), dict), f"Invalid value at '{where}.response'.")
        _check_name(value.get("name"), where)


def _check_text(part: dict[str, Any], where: str) -> None:
    need({*part} == {"text"} and part["text"], f"'{where}' must be a text.")


def _check_name(name: Any, where: str) -> None:
    need(re.fullmatch(r"[a-zA-Z_][\w.:-]{0,63}", str(name), re.ASCII), f"Invalid function name {name!r} at '{where}'.")


def _check_answers(contents: list[dict[str, Any]]) -> None:
    """The responses of a turn's calls are in the turn after it, and there are as many."""
    waiting: list[tuple[str, str]] = []
    for content in contents:
        parts = content["parts"]
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        need(
            len(answers) == len(waiting),
            "Please ensure that the number of function response parts is equal to the number of function call parts of "
            "the function call turn.",
        )
        found = [(answer["name"], answer.get("id")) for answer in answers]
        need(sorted(found) == sorted(waiting), f"The function responses {found} do not match the calls {waiting}.")
        waiting = [
            (part["functionCall"]["name"], part["functionCall"].get("id")) for part in parts if "functionCall" in part
        ]
    need(not waiting, "Please ensure that function call turn is followed by a function response turn.")


def _check_tools(asked: Mapping[str, Any]) -> None:
    names: list[str] = []
    for tool in asked.get("tools", ()):
        for function in tool["functionDeclarations"]:
            check_keys(
                function, {"name", "description", "parametersJsonSchema"}, 'Unknown name "{}": Cannot find field.'
            )
            _check_name(function.get("name"), "tools")
            if "parametersJsonSchema" in function:
                check_schema(function["parametersJsonSchema"], f"Invalid schema of {function['name']}")
                _check_keywords(function["parametersJsonSchema"])
            names.append(function["name"])
    check_distinct(names, "Duplicate function declaration found.")
    if "toolConfig" not in asked:
        return
    config = asked["toolConfig"]["functionCallingConfig"]
    need(config.get("mode") in ("AUTO", "ANY", "NONE"), f"Invalid mode {config.get('mode')!r}.")
    need(names, "Function calling config is set without function_declarations.")
    need(set(config.get("allowedFunctionNames", ())) <= set(names), "allowed_function_names are not declared.")
    need("allowedFunctionNames" not in config or config["mode"] == "ANY", "allowed_function_names need the mode ANY.")


def _check_keywords(schema: Any) -> None:
    if isinstance(schema, dict):
        check_keys(schema, KEYWORDS, "The schema keyword {} is not supported.")
        need("$ref" not in schema or {*schema} <= {"$ref", "$defs"}, "Nothing may be set beside $ref.")
        for name in ("properties", "$defs"):
            for item in schema.get(name, {}).values():
                _check_keywords(item)
        for name in ("items", "anyOf", "prefixItems", "additionalProperties"):
            _check_keywords(schema.get(name))
    elif isinstance(schema, list):
        for item in schema:
            _check_keywords(item)


def _check_config(config: Mapping[str, Any]) -> None:
    check_keys(config, CONFIG, "Unknown name \"{}\" at 'generation_config': Cannot find field.")
    check_number(config, "temperature", 0, 2)
    check_number(config, "topP", 0, 1)
    check_number(config, "maxOutputTokens", 1, kind=int)
    stops = config.get("stopSequences", [])
    need(isinstance(stops, list) and len(stops) <= 5 and all(stops), "Invalid stop_sequences.")
    if "responseJsonSchema" in config:
        need(config.get("responseMimeType") == "application/json", "A schema needs the MIME type application/json.")
        _check_keywords(config["responseJsonSchema"])
