"""Deployments of Azure OpenAI, with OpenAI's Chat Completions API."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar
from urllib.parse import quote

from wick.errors import ConfigError
from wick.models import _http, openai_common
from wick.models._http import TimeLimits
from wick.models._network import PathText, quote_segment
from wick.models.access_tokens import TokenSource, bearer_authorizer
from wick.models.google import check_address
from wick.models.openai import ChatReply, OpenAI
from wick.protocols import Delta, Request


class Azure(OpenAI):
    """A deployment of Azure OpenAI.

        Azure("my-gpt-4o")
        Azure("my-gpt-4o", token=get_bearer_token_provider(DefaultAzureCredential(), scope))

    The `base_url` is the address of the resource, such as https://NAME.openai.azure.com. Without it
    AZURE_OPENAI_ENDPOINT is used, and AZURE_OPENAI_API_KEY for that address only. With an `api_version` requests use
    the path of that version, else the path `/openai/v1`. `token` is a function that returns an access token of Entra,
    in place of a key.
    """

    example: ClassVar[str] = "my-deployment"
    limit_field: ClassVar[str] = "max_completion_tokens"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        api_key: str | None = None,
        api_version: str = "",
        token: TokenSource | None = None,
        headers: Mapping[str, str] | None = None,
        limits: TimeLimits = openai_common.DEFAULT_LIMITS,
        stream_usage: bool = True,
        replay_reasoning: bool = False,
        verify: bool | PathText = True,
        cert: PathText | Sequence[PathText] = (),
        trust_env: bool = True,
    ) -> None:
        own = not base_url
        endpoint = base_url or _variable("AZURE_OPENAI_ENDPOINT")
        if not endpoint:
            raise ConfigError(
                "Azure needs the address of your resource: set AZURE_OPENAI_ENDPOINT, as in "
                "https://NAME.openai.azure.com, or give base_url=…"
            )
        key = (api_key or (_variable("AZURE_OPENAI_API_KEY") if own and not token else "")).strip()
        sent = {"api-key": key} if key else {}
        sent |= {name.lower(): value for name, value in (headers or {}).items()}
        if own and not token and not sent.keys() & {"api-key", "authorization"}:
            raise ConfigError("Azure needs a key: set AZURE_OPENAI_API_KEY, or give api_key=… or token=…")
        version = api_version or (_variable("AZURE_OPENAI_API_VERSION") if own else "")
        super().__init__(
            model,
            base_url=_build_url(endpoint, model, version),
            name="azure",
            headers=sent,
            limits=limits,
            stream_usage=stream_usage,
            replay_reasoning=replay_reasoning,
            verify=verify,
            cert=cert,
            trust_env=trust_env,
        )
        if own:
            self.server = replace(
                self.server, unauthorized="check AZURE_OPENAI_API_KEY, and the name of the deployment"
            )
        self._authorize = bearer_authorizer(token) if token else None

    def __repr__(self) -> str:
        return f"<Azure {self.name}>"

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        return _http.stream(self.server, self.body(request), ChatReply(self.server), self._authorize)


def _build_url(endpoint: str, deployment: str, version: str) -> str:
    """Return the address of a deployment, without the last part of its path."""
    address = re.sub(r"/openai(/v1)?$", "", check_address(endpoint, "Azure"))
    if not version:
        return f"{address}/openai/v1"
    name = quote_segment(deployment, "the deployment of Azure")
    return f"{address}/openai/deployments/{name}?api-version={quote(version, safe='')}"


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()
