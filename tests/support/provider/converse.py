"""Amazon Bedrock ConverseStream: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from struct import pack
from typing import Any
from zlib import crc32

from provider.checks import NAME, check_distinct, check_keys, check_list, check_number, check_schema, need
from provider.script import Event, Reply, Tokens, dumps

KEYS = set(
    "messages system inferenceConfig toolConfig guardrailConfig additionalModelRequestFields requestMetadata "
    "outputConfig performanceConfig promptVariables".split()
)
BLOCKS = {
    "user": {"text", "image", "document", "toolResult", "cachePoint"},
    "assistant": {"text", "toolUse", "reasoningContent", "cachePoint"},
}
REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "content_filtered"}


class Converse:
    """The wire format of /converse-stream: binary messages with checksums."""

    name = "converse"
    path = "/converse-stream"

    def streams(self, asked: Mapping[str, Any]) -> bool:
        return True

    def encode(self, event: Event) -> bytes:
        if event.tag == "error":
            return message({":message-type": "exception", ":exception-type": event.name}, dumps(event.data).encode())
        kind, data = event.name or event.tag, event.data
        if isinstance(data, dict) and len(data) == 1 and not event.name:
            kind, data = next(iter(data.items()))
        payload = (
            data
            if isinstance(data, bytes)
            else (data if isinstance(data, str) else dumps(data)).encode("utf-8", "surrogatepass")
        )
        return message({":event-type": kind, ":content-type": "application/json", ":message-type": "event"}, payload)

    def events(self, reply: Reply, asked: Mapping[str, Any]) -> Iterator[Event]:
        yield Event("start", {"messageStart": {"role": "assistant"}})
        index = 0
        for thought in reply.thoughts:
            for text in reply.pieces(thought.text):
                yield _delta("reasoning", index, {"reasoningContent": {"text": text}})
            yield _delta("signature", index, {"reasoningContent": {"signature": thought.signature}})
            yield Event("part", {"contentBlockStop": {"contentBlockIndex": index}})
            index += 1
        for text in reply.pieces(reply.text):
            yield _delta("text", index, {"text": text})
        if reply.text:
            yield Event("part", {"contentBlockStop": {"contentBlockIndex": index}})
            index += 1
        for number, piece in reply.call_pieces():
            if piece is None:
                use = {"toolUse": {"toolUseId": reply.calls[number].id, "name": reply.calls[number].name}}
                start = {"contentBlockIndex": index + number, "start": use}
                yield Event("call", {"contentBlockStart": start}, number=number)
            else:
                yield _delta("args", index + number, {"toolUse": {"input": piece}}, number)
        for number in range(len(reply.calls)):
            yield Event("call done", {"contentBlockStop": {"contentBlockIndex": index + number}}, number=number)
        yield Event("finish", {"messageStop": {"stopReason": REASONS[reply.reason]}})
        usage = {"usage": _usage(reply.tokens)} if reply.tokens is not None else {}
        yield Event("end", {"metadata": {**usage, "metrics": {"latencyMs": 7}}})

    def whole(self, reply: Reply, asked: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError("wick asks this API for streams alone")

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"message": message}

    def error_event(self, message: str) -> Event:
        return Event("error", {"message": message}, "throttlingException")

    def check(self, asked: Mapping[str, Any], headers: Mapping[str, str], issued: Mapping[str, str]) -> None:
        known = re.match(r"Bearer \S|AWS4-HMAC-SHA256 Credential=", headers.get("authorization", ""))
        need(known, "Missing Authentication Token", 401)
        need(headers.get("content-type", "").startswith("application/json"), "Unsupported content type.", 415)
        check_keys(asked, KEYS, "The request has an unknown member {}.")
        _check_messages(asked, issued)
        for block in asked.get("system", ()):
            need("cachePoint" in block or block.get("text", "").strip(), "The text field in the system is blank.")
        _check_tools(asked)
        _check_config(asked)


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return a binary message with its checksums."""
    lines = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + pack(">H", len(text.encode())) + text.encode()
        for name, text in headers.items()
    )
    prelude = pack(">II", 16 + len(lines) + len(payload), len(lines))
    checked = prelude + pack(">I", crc32(prelude)) + lines + payload
    return checked + pack(">I", crc32(checked))


def _delta(tag: str, index: int, delta: dict[str, Any], number: int = 0) -> Event:
    return Event(tag, {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}, number=number)


def _usage(tokens: Tokens) -> dict[str, Any]:
    """Cached tokens are counted beside the input, not in it."""
    counts = {"inputTokens": tokens.input - tokens.cached, "outputTokens": tokens.output}
    counts |= {"totalTokens": tokens.input + tokens.output}
    return counts | {"cacheReadInputTokens": tokens.cached, "cacheWriteInputTokens": 0}


def _check_messages(asked: Mapping[str, Any], issued: Mapping[str, str]) -> None:
    before, names = "assistant", list[str]()
    check_list(asked.get("messages"), "messages", lambda one, where: None)
    waiting: list[str] = []
    for number, one in enumerate(asked["messages"]):
        where, role = f"messages.{number}", one.get("role")
        need({*one} == {"role", "content"} and role in BLOCKS, f"{where}: invalid role {role!r}")
        need(number or role == "user", "A conversation must start with a user message.")
        need(role != before, "A conversation must alternate between user and assistant roles.")
        before = role
        check_list(
            one["content"], f"{where}.content", lambda block, place, r=role: _check_block(block, place, r, issued)
        )
        names += [block["document"]["name"] for block in one["content"] if "document" in block]
        if any("document" in block for block in one["content"]):
            need(any("text" in block for block in one["content"]), f"{where}: a document needs a text beside it.")
        results = [block["toolResult"]["toolUseId"] for block in one["content"] if "toolResult" in block]
        need(
            sorted(results) == sorted(waiting),
            f"Expected toolResult blocks at {where} for the following Ids: {', '.join(waiting)}",
        )
        waiting = [block["toolUse"]["toolUseId"] for block in one["content"] if "toolUse" in block]
        check_distinct(waiting, f"{where}: tool use ids must be unique.")
        if waiting or results:
            need(
                "toolConfig" in asked, "The toolConfig field must be defined when using toolUse and toolResult blocks."
            )
    need(before == "user", "The conversation must end with a user message.")
    check_distinct(names, "Messages contain duplicate document names.")


def _check_block(block: dict[str, Any], where: str, role: str, issued: Mapping[str, str]) -> None:
    need(len(block) == 1 and {*block} <= BLOCKS[role], f"{where}: invalid block {sorted(block)} of the role {role}")
    kind, value = next(iter(block.items()))
    if kind == "text":
        need(
            isinstance(value, str) and value.strip(), f"The text field in the ContentBlock object at {where} is blank."
        )
    elif kind == "image":
        need(value["format"] in ("png", "jpeg", "gif", "webp"), f"{where}: invalid format")
        need(re.fullmatch(r"[A-Za-z0-9+/]+=*", value["source"]["bytes"]), f"{where}: invalid bytes")
    elif kind == "document":
        need({*value} == {"format", "name", "source"}, f"{where}: invalid document")
        need(re.fullmatch(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]{1,200}", value["name"]), f"{where}: invalid document name")
    elif kind == "toolUse":
        need(NAME.fullmatch(str(value.get("toolUseId"))), f"{where}: toolUseId does not match [a-zA-Z0-9_-]+")
        need(NAME.fullmatch(str(value.get("name"))), f"{where}: name does not match [a-zA-Z0-9_-]+")
        need(isinstance(value.get("input"), dict), f"{where}: input is not an object")
    elif kind == "toolResult":
        need({"toolUseId", "content"} <= {*value} <= {"toolUseId", "content", "status"}, f"{where}: invalid toolResult")
        need(value.get("status", "success") in ("success", "error"), f"{where}: invalid status")
        for part in value["content"]:
            need({*part} <= {"text", "json", "image", "document"}, f"{where}: invalid content {sorted(part)}")
            need(part.get("text", "x").strip(), f"{where}: the text field is blank")
    elif kind == "reasoningContent" and "reasoningText" in value:
        thought = value["reasoningText"]
        need(issued.get(thought.get("signature")) == thought["text"], f"{where}: Invalid `signature`")


def _check_tools(asked: Mapping[str, Any]) -> None:
    if "toolConfig" not in asked:
        return
    config = asked["toolConfig"]
    check_keys(config, {"tools", "toolChoice"}, "toolConfig has an unknown member {}.")
    names: list[str] = []
    for tool in config.get("tools") or ():
        if "cachePoint" in tool:
            continue
        spec = tool["toolSpec"]
        check_keys(spec, {"name", "description", "inputSchema", "strict"}, "toolSpec has an unknown member {}.")
        need(NAME.fullmatch(str(spec.get("name"))), "toolSpec.name does not match [a-zA-Z0-9_-]+")
        check_schema(spec["inputSchema"]["json"], f"Invalid schema of {spec['name']}")
        names.append(spec["name"])
    need(names, "toolConfig.tools must not be empty.")
    check_distinct(names, "The tool names are not unique.")
    choice = config.get("toolChoice", {"auto": {}})
    need(len(choice) == 1 and {*choice} <= {"auto", "any", "tool"}, f"Invalid toolChoice {choice}.")
    need("tool" not in choice or choice["tool"]["name"] in names, f"Invalid toolChoice {choice}.")


def _check_config(asked: Mapping[str, Any]) -> None:
    config = asked.get("inferenceConfig", {})
    check_keys(config, {"maxTokens", "temperature", "topP", "stopSequences"}, "inferenceConfig: unknown member {}.")
    check_number(config, "temperature", 0, 1)
    check_number(config, "topP", 0, 1)
    check_number(config, "maxTokens", 1, kind=int)
    need(isinstance(config.get("stopSequences", []), list), "stopSequences must be a list.")
    if "outputConfig" in asked:
        form = asked["outputConfig"]["textFormat"]
        need({*form} == {"type", "structure"} and form["type"] == "json_schema", "Invalid textFormat.")
        check_schema(json.loads(form["structure"]["jsonSchema"]["schema"]), "Invalid schema of the output")
