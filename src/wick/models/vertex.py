"""Gemini, through Vertex AI of Google Cloud: the dialect of the Gemini API with tokens in place of a key."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import ClassVar

from wick.errors import ConfigError
from wick.models import _http, openai_common
from wick.models._http import ModelServer, TimeLimits
from wick.models._network import NetworkSettings, PathText, check_address, check_host_label, quote_path, quote_segment
from wick.models.access_tokens import GoogleTokens, TokenSource, bearer_authorizer
from wick.models.google import Google, Thinking
from wick.models.google_replies import GeminiReply
from wick.models.openai_common import read_variable
from wick.protocols import Delta, Request

_DEFAULT_FILE = "~/.config/gcloud/application_default_credentials.json"  # of `gcloud auth application-default login`


class Vertex(Google):
    """A Gemini model at Vertex AI.

    `token` is a function that returns an access token, `api_key` is a fixed one. Else GOOGLE_OAUTH_ACCESS_TOKEN, the
    file in GOOGLE_APPLICATION_CREDENTIALS or the one of `gcloud auth application-default login` is used, for Google's
    own address only.
    """

    provider: ClassVar[str] = "vertex"

    def __init__(
        self,
        model: str,
        *,
        project: str = "",
        location: str = "",
        base_url: str = "",
        api_key: str | None = None,
        token: TokenSource | None = None,
        headers: Mapping[str, str] | None = None,
        limits: TimeLimits = openai_common.DEFAULT_LIMITS,
        thinking: Thinking = None,
        verify: bool | PathText = True,
        cert: PathText | Sequence[PathText] = (),
        trust_env: bool = True,
    ) -> None:
        self._set_model(model, thinking)
        network = NetworkSettings(verify, cert, trust_env)
        use_environment = not base_url and not token
        address = base_url or read_variable("GOOGLE_VERTEX_BASE_URL")
        key = api_key or (read_variable("GOOGLE_OAUTH_ACCESS_TOKEN") if use_environment else "")
        sent_headers = openai_common.build_headers("authorization", key, headers)
        self._token = token
        if use_environment and "authorization" not in sent_headers:
            self._token = _find_tokens(network, limits)
        saved = self._token.project if isinstance(self._token, GoogleTokens) else ""
        project = project or read_variable("GOOGLE_CLOUD_PROJECT") or saved
        location = location or read_variable("GOOGLE_CLOUD_LOCATION") or "global"
        if not project:
            raise ConfigError("Vertex AI needs a project: set GOOGLE_CLOUD_PROJECT, or give project=…")
        check_host_label(location, "the location of Vertex AI")
        address = address or f"https://{'' if location == 'global' else f'{location}-'}aiplatform.googleapis.com"
        where = f"projects/{quote_segment(project, 'the project of Vertex AI')}/locations/{location}"
        path = self.model if "/" in self.model else f"publishers/google/models/{self.model}"
        path = quote_path(path, "the model of Vertex AI")
        self.server = ModelServer(
            self.provider,
            f"{check_address(address, 'Vertex AI')}/v1/{where}/{path}:streamGenerateContent?alt=sse",
            sent_headers,
            limits,
            unreachable="check the network, and the location",
            unauthorized="check the access token, and that it may use Vertex AI in this project",
            network=network,
        )

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        authorize = bearer_authorizer(self._token) if self._token else None
        return _http.stream(self.server, self.body(request), GeminiReply(self.server), authorize)


def _find_tokens(network: NetworkSettings, limits: TimeLimits) -> GoogleTokens:
    """Return the tokens for the credentials of the environment; raise ConfigError if there are none."""
    path = read_variable("GOOGLE_APPLICATION_CREDENTIALS")
    if not path and os.path.exists(os.path.expanduser(_DEFAULT_FILE)):
        path = _DEFAULT_FILE
    if not path:
        raise ConfigError(
            "Vertex AI needs credentials: set GOOGLE_APPLICATION_CREDENTIALS to the key file of a service account, set "
            "GOOGLE_OAUTH_ACCESS_TOKEN, or run: gcloud auth application-default login"
        )
    return GoogleTokens(path, network, limits)
