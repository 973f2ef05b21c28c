"""Deployments of Azure OpenAI, with OpenAI's Chat Completions API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar
from urllib.parse import quote

from wick.errors import ConfigError
from wick.models import _http, openai_common
from wick.models._http import TimeLimits
from wick.models._network import PathText, check_address, quote_segment
from wick.models.access_tokens import TokenSource, bearer_authorizer
from wick.models.openai import ChatReplyParser, OpenAI
from wick.models.openai_common import read_variable
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
        is_default_endpoint = not base_url
        endpoint = base_url or read_variable("AZURE_OPENAI_ENDPOINT")
        if not endpoint:
            raise ConfigError(
                "Azure needs the address of your resource: set AZURE_OPENAI_ENDPOINT, as in "
                "https://NAME.openai.azure.com, or give base_url=…"
            )
        key, missing = api_key or "", ""
        if is_default_endpoint and not token:
            key = key or read_variable("AZURE_OPENAI_API_KEY")
            missing = "Azure needs a key: set AZURE_OPENAI_API_KEY, or give api_key=… or token=…"
        version = api_version or (read_variable("AZURE_OPENAI_API_VERSION") if is_default_endpoint else "")
        super().__init__(
            model,
            base_url=_build_url(endpoint, model, version),
            name="azure",
            headers=openai_common.build_headers("api-key", key, headers, missing),
            limits=limits,
            stream_usage=stream_usage,
            replay_reasoning=replay_reasoning,
            verify=verify,
            cert=cert,
            trust_env=trust_env,
        )
        if is_default_endpoint:
            self.server = replace(
                self.server, unauthorized="check AZURE_OPENAI_API_KEY, and the name of the deployment"
            )
        self._authorize = bearer_authorizer(token) if token else None

    def __repr__(self) -> str:
        return f"<Azure {self.name}>"

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        return _http.stream(self.server, self.body(request), ChatReplyParser(self.server), self._authorize)


def _build_url(endpoint: str, deployment: str, version: str) -> str:
    """Return the address of a deployment, without the last part of its path."""
    address = re.sub(r"/openai(/v1)?$", "", check_address(endpoint, "Azure"))
    if not version:
        return f"{address}/openai/v1"
    name = quote_segment(deployment, "the deployment of Azure")
    return f"{address}/openai/deployments/{name}?api-version={quote(version, safe='')}"
