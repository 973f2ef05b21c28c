"""The OpenAPI document of the server, with error responses and the required role of each operation."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from wick.api.types import ErrorBody
from wick.server.auth.access_table import ACCESS

REF = "#/components/schemas/"
REFUSALS = {"4XX": "The request was refused; see the error.", "5XX": "The request failed; see the error."}
UNUSED = ("HTTPValidationError", "ValidationError")  # FastAPI's own error schemas, which are not used
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "ticket": {"type": "apiKey", "in": "query", "name": "ticket", "description": "one-use, from POST /auth/tickets"},
}


def build_document(api: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of all routes."""
    document = get_openapi(title=api.title, version=api.version, summary=api.summary, routes=api.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in UNUSED:
        schemas.pop(name, None)
    body = ErrorBody.model_json_schema(ref_template=f"{REF}{{model}}")
    schemas |= body.pop("$defs")
    schemas["ErrorBody"] = body
    document["components"]["securitySchemes"] = SCHEMES
    roles = {(method, path): access for method, path, access in ACCESS}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            responses, access = operation["responses"], roles.get((method.upper(), path), "user")
            responses.pop("422", None)
            for response in responses.values():
                stream = response.get("content", {}).get("text/event-stream", {})
                if "$ref" in stream.get("schema", {}):
                    text, frame = {"type": "string"}, {"$ref": stream["schema"]["$ref"]}
                    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": frame}
                    fields = {"id": text, "event": text, "data": data}
                    item = {"type": "object", "required": ["data"], "properties": fields}
                    stream |= {"itemSchema": item, "schema": text}
            for status, description in REFUSALS.items():
                content = {"application/json": {"schema": {"$ref": f"{REF}ErrorBody"}}}
                responses.setdefault(status, {"description": description, "content": content})
            operation["security"] = [] if access == "public" else [{"bearer": []}]
            operation["x-role"] = access
    return document
