"""Errors of the HTTP API: a status and the body `{"error": {"code", "message"}}`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from wick.errors import (
    BackendError,
    ConfigError,
    MessageError,
    MissingExtra,
    ModelError,
    StoreError,
    ToolError,
    public_text,
)

logger = logging.getLogger("wick.server")


class ApiError(Exception):
    """An error response: a status, a code for programs and a message for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        headers: Mapping[str, str] | None = None,
        *,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})
        self.fields = dict(fields or {})  # messages by the path of a field of the request

    def body(self) -> dict[str, Any]:
        fields = {"fields": self.fields} if self.fields else {}
        return {"error": {"code": self.code, "message": self.message, **fields}}

    def response(self) -> Response:
        return JSONResponse(self.body(), self.status, self.headers)


def not_found(what: str) -> ApiError:
    """Return a 404. It does not reveal whether the object is missing or belongs to another user."""
    return ApiError(404, "not_found", f"there is no {what}")


# HTTP status by error code of stores and workspaces.
STATUS_CODES = {
    "not_found": 404,
    "conflict": 409,
    "exists": 409,
    "fenced": 409,
    "not_empty": 409,
    "not_unique": 409,
    "no_match": 409,
    "not_running": 409,
    "is_directory": 400,
    "not_directory": 400,
    "not_a_file": 400,
    "escapes": 400,
    "loop": 400,
    "linked": 400,
    "invalid": 400,
    "binary": 400,
    "not_text": 400,
    "protected": 403,
    "denied": 403,
    "too_large": 413,
    "unsupported": 501,
    "timeout": 504,
    "busy": 503,
    "locked": 503,
    "no_engine": 503,
    "unavailable": 503,
    "read_only": 503,
    "full": 507,
    "no_space": 507,
}
DAMAGED = ("corrupt", "incompatible")  # codes of a store that the operator must repair or restore
RETRY_HEADERS = {503: {"Retry-After": "1"}, 504: {"Retry-After": "1"}}
MAX_FIELDS = 20  # of an error
FRAMEWORK_CODES = {404: "not_found", 405: "method_not_allowed", 400: "invalid", 408: "too_slow", 413: "too_large"}


def as_api_error(error: Exception) -> ApiError | None:
    """Return the response for an error of wick, or None for an internal error."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BackendError):  # an unknown code is a failure of the workspace: 502
        status = STATUS_CODES.get(error.code, 502)
        return ApiError(status, error.code, str(error), RETRY_HEADERS.get(status))
    if isinstance(error, StoreError):
        status = STATUS_CODES.get(error.code, 0)
        return ApiError(status, error.code, public_text(error), RETRY_HEADERS.get(status)) if status else None
    if isinstance(error, MissingExtra):
        return ApiError(501, "missing_extra", str(error))
    if isinstance(error, ConfigError | MessageError):
        return ApiError(400, "invalid", str(error))
    if isinstance(error, ToolError | ModelError):
        return ApiError(502, "upstream", str(error))
    return None


async def handle_error(request: Request, error: Exception) -> Response:
    """Handle an error of a route. The response to an unknown error holds only the request id."""
    service = request.app.state.service
    service.runs.executor.record_damage(error)
    refusal = resolve_error(error, request.scope)
    refusal.message = service.secrets.redact_text(refusal.message)
    refusal.fields = service.secrets.redact_json(refusal.fields)
    return refusal.response()


def resolve_error(error: Exception, scope: Scope) -> ApiError:
    """Return the response for an error. Log an unknown error under the request id."""
    known, id = as_api_error(error), scope.get("wick.request_id", "")
    if known is not None:
        if isinstance(error, StoreError) and known.message != str(error):
            # the log has the full message for the operator
            logger.warning("request %s to %s failed: %s", id, scope.get("path", ""), error)
        return known
    logger.error("request %s to %s failed", id, scope.get("path", ""), exc_info=error)
    if isinstance(error, StoreError) and error.code in DAMAGED:
        return ApiError(500, error.code, f"{error.public}; the server's log has more under {id}")
    return ApiError(500, "internal", f"internal error; the server's log has more under {id}")


async def handle_invalid(request: Request, error: Exception) -> Response:
    """Handle a request that fails validation: a 422 with one sentence."""
    assert isinstance(error, RequestValidationError)
    fields = {".".join(map(str, each["loc"][1:])): str(each["msg"]) for each in error.errors()[:MAX_FIELDS]}
    fields = {field: message for field, message in fields.items() if field}
    refusal = ApiError(422, "invalid", validation_message(error.errors()), fields=fields)
    error.body = error.__traceback__ = None  # break the cycle error → traceback → frame
    return refusal.response()


def validation_message(errors: Any) -> str:
    if errors and errors[0].get("type") == "json_invalid":
        why, place = errors[0].get("ctx", {}).get("error", "unreadable"), errors[0]["loc"][-1]
        return f"the body is not valid JSON ({why}, at character {place}); /docs has its schema"[:2000]
    parts = [f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in errors[:5]]
    more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
    return f"the request is not valid: {'; '.join(parts)}{more}"[:2000]


async def handle_http(request: Request, error: Exception) -> Response:
    """Handle errors of the framework: unknown path, wrong method, unreadable body."""
    assert isinstance(error, HTTPException)
    code = FRAMEWORK_CODES.get(error.status_code, "refused")
    message = {
        404: f"there is nothing at {request.url.path[:200]}",
        405: f"{request.url.path[:200]} does not allow {request.method}",
    }.get(error.status_code, str(error.detail))
    return ApiError(error.status_code, code, message, error.headers).response()
