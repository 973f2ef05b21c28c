"""Keys of model providers, a test of them, and the models that runs may use. No route returns a key."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from wick.api.types import ModelChoice, ModelChoices, ProviderInfo, ProviderList, ProviderTest
from wick.config.provider_models import (
    PROVIDERS_WITH_KEYS,
    TEST_SECONDS,
    default_model,
    list_environment_models,
    request_reply,
)
from wick.errors import WickError
from wick.server.agents.provider_keys import StoredKey
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError, not_found
from wick.server.http.json_body import JsonRoute
from wick.server.service import Service
from wick.server.strict_models import StrictModel

router = APIRouter(tags=["settings"], route_class=JsonRoute)


class ProviderTrial(StrictModel):
    """A key to test. Without `api_key`, the stored one is tested."""

    api_key: str = Field("", max_length=4_000)
    base_url: str = Field("", max_length=2_000, description="an address in place of the provider's own")
    model: str = Field("", max_length=200, description="the model of the request; by default the first one")


class ProviderChange(StrictModel):
    """A key to store. Without `api_key`, the stored one is kept."""

    api_key: str = Field("", max_length=4_000)
    base_url: str = Field("", max_length=2_000, description="an address in place of the provider's own")
    models: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default_factory=list, max_length=50, description="the models that users may choose, the default one first"
    )


@router.get("/models")
async def list_models(caller: Caller, wick: Wick) -> ModelChoices:
    """List the models that a run may use in place of the agent's own."""
    found = await wick.registry.list_models()
    return ModelChoices(models=[ModelChoice(name=name, source=source) for name, source in found.items()])


@router.get("/settings/providers")
async def list_providers(wick: Wick) -> ProviderList:
    """List the providers of models, and where the key of each is. Keys are not returned."""
    stored = (await wick.registry.provider_keys.load()).by_provider
    in_environment = dict(list_environment_models())
    providers = [_describe(name, stored.get(name), name in in_environment) for name in PROVIDERS_WITH_KEYS]
    return ProviderList(providers=providers, problem=wick.registry.provider_keys.find_problem())


@router.put("/settings/providers/{provider}")
async def put_provider(provider: str, body: ProviderChange, caller: Caller, wick: Wick) -> ProviderInfo:
    """Encrypt and store the key of a provider. Agents use it from their next run on."""
    await wick.registry.provider_keys.put(caller, provider, **body.model_dump())
    _publish(wick, provider)
    stored = (await wick.registry.provider_keys.load()).by_provider
    return _describe(provider, stored.get(provider), provider in dict(list_environment_models()))


@router.delete("/settings/providers/{provider}", status_code=204)
async def delete_provider(provider: str, wick: Wick) -> None:
    """Delete the stored key of a provider."""
    if not await wick.registry.provider_keys.delete(provider):
        raise not_found(f"stored key of {provider[:50]!r}")
    _publish(wick, provider)


@router.post("/settings/providers/{provider}/test")
async def try_provider(provider: str, body: ProviderTrial, caller: Caller, wick: Wick) -> ProviderTest:
    """Send a small request to a provider, with the given key or the stored one."""
    keys = wick.registry.provider_keys
    stored = (await keys.load()).by_provider.get(provider)
    given = keys.check(provider, body.api_key.strip(), body.base_url or (stored.base_url if stored else ""))
    if not given.api_key:
        if stored is not None and given.base_url != stored.base_url:
            message = "enter the key again, since the address has changed"
            raise ApiError(422, "invalid", message, fields={"api_key": message})
        given = stored or given
    wick.secrets.learn([given.api_key])  # a provider may repeat it in an error
    model = body.model or next(iter((stored or given).models), "") or default_model(provider)
    if not model:
        raise ApiError(422, "invalid", "name a model to test", fields={"model": "name a model to test"})
    is_set = provider in dict(list_environment_models())
    spec = f"{provider}:{model}" if is_set and not given.api_key else given.build_spec(model)
    started = time.monotonic()
    try:
        ok, message = True, await request_reply(spec)
    except (WickError, TimeoutError) as error:
        ok, message = False, str(error) or f"no reply within {TEST_SECONDS:.0f} seconds; check the address"
    message = wick.secrets.redact_text(message)
    return ProviderTest(ok=ok, model=f"{provider}:{model}", message=message, seconds=time.monotonic() - started)


def _describe(provider: str, key: StoredKey | None, in_environment: bool) -> ProviderInfo:
    unreadable = "it cannot be decrypted with the encryption key of this server; enter it again"
    return ProviderInfo(
        provider=provider,
        source="stored" if key is not None else "environment" if in_environment else "none",
        problem=unreadable if key is not None and not key.api_key else "",
        base_url=key.base_url if key is not None else "",
        models=[*key.models] if key is not None else [],
        example=default_model(provider),
        by=key.by if key is not None else "",
        at=key.at if key is not None else None,
    )


def _publish(wick: Service, provider: str) -> None:
    wick.bus.publish("models_changed", {"provider": provider})
