"""API keys of model providers that admins store in the settings. They are encrypted in the server's records.

    keys = ProviderKeys(settings, records, secrets)
    await keys.put(user, "openai", api_key="sk-…", models=["gpt-4o"])
    (await keys.load()).fill_spec("gpt-4o")              {"provider": "openai", "model": "gpt-4o", "api_key": "sk-…"}

A key leaves this module only inside of the spec of a model. The encryption key is the setting `encryption_key`, or
a file in the data folder. Servers that share a database need the setting, since each of them decrypts the keys.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wick._internal.frozen import canonical_json, digest
from wick._internal.redaction import Secrets, is_strong
from wick.config.provider_models import (
    GATEWAY,
    PROVIDERS_WITH_KEYS,
    SHARED_KEYS,
    default_model,
    find_provider,
    sort_providers,
)
from wick.errors import ConfigError
from wick.server.auth.identity import User
from wick.server.auth.signed_cookies import decrypt, encrypt
from wick.server.auth.tokens import load_or_create_secret
from wick.server.errors import ApiError
from wick.server.records import Records
from wick.server.settings import Settings

KIND = "provider_key"  # of records
OWNER = "*"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A stored key. `api_key` is empty if it cannot be decrypted."""

    provider: str
    models: tuple[str, ...]
    base_url: str = ""
    by: str = ""
    at: float = 0.0
    api_key: str = field(default="", repr=False)

    @property
    def names(self) -> list[str]:
        """The names of its models, as users choose them."""
        return [f"{self.provider}:{model}" for model in self.models]

    def build_spec(self, model: str, provider: str = "", options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the spec of a model with this key."""
        if not self.api_key:
            raise ConfigError(
                f"the stored key of {self.provider} cannot be decrypted; set encryption_key to the one that it was "
                "stored with, or enter the key again in the settings"
            )
        address = {"base_url": self.base_url} if self.base_url else {}
        return {
            "provider": provider or self.provider,
            "model": model,
            **(options or {}),
            "api_key": self.api_key,
            **address,
        }


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """The stored keys at one time, by provider. `version` changes with each of them."""

    by_provider: Mapping[str, StoredKey] = field(default_factory=dict)
    version: str = ""

    def fill_spec(self, spec: Any) -> Any:
        """Return the spec of a model with the stored key of its provider. A spec with an address or a key is kept."""
        if not self.by_provider or not isinstance(spec, str | Mapping):
            return spec
        provider, model, options = find_provider(spec)
        if provider == "auto" and not options:
            usable = [key for key in self.by_provider.values() if key.api_key and key.models]
            return usable[0].build_spec(usable[0].models[0]) if usable else spec
        key = self.by_provider.get(SHARED_KEYS.get(provider, provider))
        return spec if key is None else key.build_spec(model, provider, options)

    def fill_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of an agent with keys in the specs of all its models."""
        filled = dict(options)
        if not self.by_provider:
            return filled
        filled["model"] = self.fill_spec(options.get("model", "auto"))
        for key in ("critique", "summarization"):
            if isinstance(value := options.get(key), Mapping) and value.get("model") is not None:
                filled[key] = {**value, "model": self.fill_spec(value["model"])}
        if isinstance(value := options.get("fallback"), Mapping) and isinstance(value.get("models"), list):
            filled["fallback"] = {**value, "models": [self.fill_spec(spec) for spec in value["models"]]}
        if isinstance(value := options.get("subagents"), Mapping):
            filled["subagents"] = self._fill_subagents(value)
        return filled

    def _fill_subagents(self, options: Mapping[str, Any]) -> dict[str, Any]:
        def fill(agent: Any) -> Any:
            has_model = isinstance(agent, Mapping) and agent.get("model") is not None
            return {**agent, "model": self.fill_spec(agent["model"])} if has_model else agent

        filled, agents = dict(options), options.get("agents")
        if isinstance(agents, Mapping):
            filled["agents"] = {name: fill(agent) for name, agent in agents.items()}
        elif isinstance(agents, list):
            filled["agents"] = [fill(agent) for agent in agents]
        if isinstance(models := options.get("models"), Mapping):
            filled["models"] = {name: self.fill_spec(spec) for name, spec in models.items()}
        return filled


class ProviderKeys:
    """The stored keys of a server: written by admins, read when agents are built."""

    def __init__(self, settings: Settings, records: Records, secrets: Secrets) -> None:
        self._settings, self._records, self._secrets = settings, records, secrets

    async def load(self) -> StoredKeys:
        """Return the stored keys. Each is redacted from results, traces and logs from now on."""
        rows = {row.id: row.data for row in await self._records.list(KIND, OWNER)}
        if not rows:
            return StoredKeys()
        passphrase = self._find_passphrase()
        found = {}
        for provider in sort_providers({*rows}):
            row = rows[provider]
            key = decrypt(passphrase, row["sealed"]) if passphrase else None
            found[provider] = StoredKey(
                provider, tuple(row["models"]), row["base_url"], row["by"], row["at"], key or ""
            )
        self._secrets.learn(key.api_key for key in found.values())
        return StoredKeys(found, digest(canonical_json([rows, passphrase])))

    async def put(
        self, user: User, provider: str, *, api_key: str = "", base_url: str = "", models: Sequence[str] = ()
    ) -> StoredKey:
        """Encrypt and store the key of a provider. Without `api_key`, keep the stored one for the same address."""
        api_key = api_key.strip()
        self.check(provider, api_key, base_url)
        passphrase = self._find_passphrase(create=True)
        row = await self._records.get(KIND, OWNER, provider)
        if not api_key:
            if row is None:
                raise ApiError(422, "invalid", "enter the key", fields={"api_key": "enter the key"})
            if row["base_url"] != base_url:
                # otherwise a stored key could be read by sending it to another address
                message = "enter the key again, since the address has changed"
                raise ApiError(422, "invalid", message, fields={"api_key": message})
        self._secrets.learn([api_key])
        names = [*models] or [name for name in [default_model(provider)] if name]
        at = time.time()
        data = {
            "sealed": encrypt(passphrase, api_key) if api_key else row["sealed"],  # type: ignore[index]
            "base_url": base_url,
            "models": names,
            "by": user.name,
            "at": at,
        }
        await self._records.put(KIND, OWNER, provider, data)
        return StoredKey(provider, tuple(names), base_url, user.name, at)

    async def delete(self, provider: str) -> bool:
        """Delete the key of a provider; return False if no key is stored."""
        return await self._records.delete(KIND, OWNER, provider)

    def check(self, provider: str, api_key: str, base_url: str) -> StoredKey:
        """Return a key that is not stored; raise an error with its field if it cannot be used."""
        if provider not in PROVIDERS_WITH_KEYS:
            known = ", ".join(PROVIDERS_WITH_KEYS)
            raise ApiError(404, "not_found", f"there is no provider {provider[:50]!r} with a key; there are {known}")
        if base_url and not base_url.startswith(("http://", "https://")):
            message = "an address begins with http:// or https://"
            raise ApiError(422, "invalid", message, fields={"base_url": message})
        if provider == GATEWAY and not base_url:
            message = "a gateway needs its address, such as https://llm.example.com/v1"
            raise ApiError(422, "invalid", message, fields={"base_url": message})
        if api_key and not is_strong(api_key):
            message = "this key is too short to be recognized in texts and hidden; use a longer one"
            raise ApiError(422, "invalid", message, fields={"api_key": message})
        return StoredKey(provider, (), base_url, api_key=api_key)

    def find_problem(self) -> str:
        """Return why no key can be stored, or an empty text."""
        if self._settings.encryption_key or not self._settings.on_postgres:
            return ""
        return (
            "the servers of one database need the same encryption key; set encryption_key in the server.yaml of each, "
            "or the variable WICK_ENCRYPTION_KEY, and restart them"
        )

    def _find_passphrase(self, *, create: bool = False) -> str:
        """Return the encryption key of the settings or of the data folder, or an empty text."""
        if self._settings.encryption_key:
            return self._settings.encryption_key
        if problem := self.find_problem():
            if create:
                raise ApiError(409, "conflict", problem)
            return ""
        path = self._settings.data / "encryption_key"
        return load_or_create_secret(path) if create or path.exists() else ""
