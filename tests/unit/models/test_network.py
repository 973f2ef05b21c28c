"""Proxies and certificates of model servers, with a real proxy and a private certificate authority."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from certificates import Authority
from ports import own_port
from proxies import Proxy
from raw_servers import (
    HI,
    SAID,
    STREAM,
    chunked_response,
    fixed_response,
    request_deltas,
    run_raw_server,
    sized_response,
)
from wick import Agent, Thread
from wick.capabilities.retry import Retry
from wick.errors import ConfigError, ModelError
from wick.models import _http, resolve
from wick.models._network import NetworkSettings
from wick.models.anthropic import Anthropic
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses

CLIENTS = (OpenAI, OpenAIResponses, Anthropic)


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def over_tls(ca: Authority, heads: list[bytes] | None = None, **options: Any) -> AsyncIterator[int]:
    """A model server with a certificate of this CA."""
    answer = STREAM + b"transfer-encoding: chunked\r\n\r\n" + chunked_response(SAID)
    async with run_raw_server(fixed_response(answer, heads), ssl=ca.server_context(**options)) as port:
        yield port


async def fail(where: int | str, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await request_deltas(where, **options)
    return caught.value


# -- proxies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spell", [str.upper, str.lower])
async def test_https_uses_a_tunnel(ca: Authority, monkeypatch: pytest.MonkeyPatch, spell: Any) -> None:
    heads: list[bytes] = []
    async with over_tls(ca, heads) as port, Proxy({"model.test": port}) as proxy:
        monkeypatch.setenv(spell("https_proxy"), proxy.url())
        for _ in range(3):
            assert await request_deltas("https://model.test/v1", verify=ca.path, api_key="sk-123456789") == HI
        assert proxy.lines == ["CONNECT model.test:443 HTTP/1.1"], "the tunnel is reused"
        assert len(heads) == 3 and b"sk-123456789" in heads[0]


@pytest.mark.parametrize("spell", [str.upper, str.lower])
async def test_http_is_sent_to_the_proxy_with_its_whole_url(monkeypatch: pytest.MonkeyPatch, spell: Any) -> None:
    async with (
        run_raw_server(fixed_response(STREAM + sized_response(SAID))) as port,
        Proxy({"model.test": port}) as proxy,
    ):
        monkeypatch.setenv(spell("http_proxy"), proxy.url().removeprefix("http://"))
        assert await request_deltas("http://model.test:8080/v1") == HI
        assert proxy.lines == ["POST http://model.test:8080/v1/chat/completions HTTP/1.1"]
        await _http.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_gets_its_password(ca: Authority, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    plain = run_raw_server(fixed_response(STREAM + sized_response(SAID)))
    async with (
        over_tls(ca) if scheme == "https" else plain as port,
        Proxy({"model.test": port}, login="me:p@ss/word") as proxy,
    ):
        variable = f"{scheme.upper()}_PROXY"
        monkeypatch.setenv(variable, proxy.url("me:p%40ss%2Fword"))
        assert await request_deltas(f"{scheme}://model.test/v1", verify=ca.path) == HI
        monkeypatch.setenv(variable, proxy.url("me:wrong-horse"))
        error = await fail(f"{scheme}://model.test/v1", verify=ca.path)
        await _http.close()
    assert "407" in str(error) and variable in str(error) and f"127.0.0.1:{proxy.port}" in str(error)
    assert "wrong-horse" not in repr(error) and error.status == 407 and not error.retryable


async def test_a_proxy_over_tls(ca: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    async with over_tls(ca) as port, Proxy({"model.test": port}, tls=ca.server_context()) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url(scheme="https"))
        assert await request_deltas("https://model.test/v1", verify=ca.path) == HI
        assert len(proxy.lines) == 1
        await _http.close()


@pytest.mark.parametrize("listed", ["127.0.0.1", "other.test,127.0.0.1", "*"])
async def test_no_proxy_names_servers_that_are_reached_directly(monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
    async with (
        run_raw_server(fixed_response(STREAM + sized_response(SAID))) as port,
        Proxy({"127.0.0.1": port}) as proxy,
    ):
        monkeypatch.setenv("HTTP_PROXY", proxy.url())
        assert await request_deltas(port) == HI and len(proxy.lines) == 1
        monkeypatch.setenv("NO_PROXY", listed)
        assert await request_deltas(port) == HI and len(proxy.lines) == 1
        monkeypatch.setenv("NO_PROXY", f"127.0.0.1:{port + 1}")
        assert await request_deltas(port) == HI and len(proxy.lines) == 2
        assert await request_deltas(port, trust_env=False) == HI and len(proxy.lines) == 2
        await _http.close()


@pytest.mark.parametrize(
    ("refusal", "said", "retryable"),
    [
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", "the proxy answered 403 Forbidden", False),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", "the proxy answered 503 Busy", True),
        (b"", "the connection to here broke off: the server closed it", True),
        (b"SSH-2.0-x\r\n\r\n", "broke off: the reply is not an HTTP response", True),
    ],
)
async def test_a_proxy_that_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch, refusal: bytes, said: str, retryable: bool
) -> None:
    async with Proxy({}, refusal=refusal) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url("me:correct-horse"))
        error = await fail("https://model.test/v1", api_key="sk-123456789")
        await _http.close()
    advice = f"check the proxy http://127.0.0.1:{proxy.port} in HTTPS_PROXY, or add the server to NO_PROXY"
    assert said in str(error) and str(error).endswith(advice)
    assert error.retryable is retryable and len(proxy.lines) == 1
    assert "correct-horse" not in repr(error) and "sk-123456789" not in repr(error)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    with own_port() as port:
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://me:correct-horse@127.0.0.1:{port}")
        error = await fail(f"{scheme}://model.test/v1")
        await _http.close()
    expected = f"check the proxy http://127.0.0.1:{port} in {scheme.upper()}_PROXY"
    assert "cannot be reached" in str(error) and expected in str(error) and error.retryable
    assert "correct-horse" not in repr(error)


@pytest.mark.parametrize("value", ["socks5://me:correct-horse@h:1080", "http://h:port", "http://", "h:0"])
def test_a_proxy_that_cannot_be_used_is_refused_at_creation(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(ConfigError, match="HTTPS_PROXY must be like http://host:port, not .* model.test to NO_P") as e:
        OpenAI("m", base_url="https://model.test/v1")
    assert "correct-horse" not in str(e.value)
    OpenAI("m", base_url="http://model.test/v1")
    OpenAI("m", base_url="https://model.test/v1", trust_env=False)


# -- certificates ---------------------------------------------------------------------------------------------------


async def test_a_private_ca_is_trusted_by_the_environment_or_by_verify(
    ca: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(ca.folder, "other")
    async with over_tls(ca) as port:
        url = f"https://127.0.0.1:{port}/v1"
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        error = await fail(url)
        advice = "set SSL_CERT_FILE to the file of the CA that signed it, or give the path as verify"
        assert f"cannot be reached at {url}" in str(error) and str(error).endswith(advice) and not error.retryable
        monkeypatch.setenv("SSL_CERT_FILE", str(ca.path))
        assert await request_deltas(url) == HI
        monkeypatch.setenv("SSL_CERT_FILE", str(other.path))
        assert str(await fail(url)).endswith(advice)
        assert await request_deltas(url, verify=ca.path) == HI == await request_deltas(url, verify=str(ca.path))
        assert str(await fail(url, verify=other.path)).endswith(f"add the CA that signed it to {other.path}")
        assert await request_deltas(url, verify=False) == HI
        monkeypatch.setenv("SSL_CERT_FILE", str(ca.folder / "gone.pem"))
        assert str(await fail(url)).endswith(f"correct SSL_CERT_FILE: there is no {ca.folder / 'gone.pem'}")


async def test_a_folder_of_cas_is_trusted(ca: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cas"
    folder.mkdir()
    (folder / "private.pem").write_bytes(ca.path.read_bytes())
    with pytest.raises(ConfigError, match="no CA is found in the folder .*; run: openssl rehash"):
        NetworkSettings(verify=folder)
    await asyncio.to_thread(subprocess.run, ["openssl", "rehash", str(folder)], check=True)
    async with over_tls(ca) as port:
        url = f"https://127.0.0.1:{port}/v1"
        assert await request_deltas(url, verify=folder) == HI
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        monkeypatch.setenv("SSL_CERT_DIR", str(folder))
        assert await request_deltas(url) == HI


async def test_a_certificate_of_another_name_is_refused(ca: Authority) -> None:
    async with over_tls(ca) as port:
        error = await fail(f"https://localhost:{port}/v1", verify=ca.path)
    assert "localhost" in str(error) and "check the address" in str(error) and not error.retryable


async def test_a_renewed_ca_file_is_read_by_new_models(ca: Authority, tmp_path: Path) -> None:
    path = tmp_path / "current.pem"
    path.write_bytes(Authority(ca.folder, "other").path.read_bytes())
    async with over_tls(ca) as port:
        url = f"https://127.0.0.1:{port}/v1"
        await fail(url, verify=path)
        path.write_bytes(ca.path.read_bytes())
        assert await request_deltas(url, verify=path) == HI


@pytest.mark.parametrize("newest", [True, False], ids=["TLS 1.3", "TLS 1.2"])
async def test_a_server_that_demands_a_client_certificate(ca: Authority, newest: bool) -> None:
    files = ca.issue("client")
    both = ca.folder / "both.pem"
    both.write_bytes(files[0].read_bytes() + files[1].read_bytes())
    encrypted = ca.issue("encrypted", "correct-horse")
    foreign = Authority(ca.folder, "other").issue("foreign")
    async with over_tls(ca, demands_certificate=True, newest=newest) as port:
        url = f"https://127.0.0.1:{port}/v1"
        error = await fail(url, verify=ca.path)
        assert "if the server demands a client certificate, give one as cert" in str(error)
        assert await request_deltas(url, verify=ca.path, cert=files) == HI
        assert await request_deltas(url, verify=ca.path, cert=str(both)) == HI
        assert await request_deltas(url, verify=ca.path, cert=[*map(str, encrypted), "correct-horse"]) == HI
        error = await fail(url, verify=ca.path, cert=foreign)
        assert "if the server refuses the client certificate, check cert" in str(error)


@pytest.mark.parametrize("newest", [True, False], ids=["TLS 1.3", "TLS 1.2"])
async def test_the_alert_of_a_server_that_demands_a_client_certificate(ca: Authority, newest: bool) -> None:
    """A server that reports the reason before it closes the connection, as most do."""
    context = ca.server_context(demands_certificate=True, newest=newest)

    def refuse() -> None:
        accepted, _ = listener.accept()
        with context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False) as secured:
            with pytest.raises(ssl.SSLError):
                secured.do_handshake()
            hung_up.wait()

    hung_up = Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = asyncio.create_task(asyncio.to_thread(refuse))
        error = await fail(f"https://127.0.0.1:{listener.getsockname()[1]}/v1", verify=ca.path)
        hung_up.set()
        await refusing
    assert "certificate, give one as cert" in str(error) and "the TLS handshake failed" in str(error)
    assert not error.retryable
    await _http.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_files_are_checked_when_a_model_is_created(client: Any, ca: Authority, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("this is not PEM")
    files, encrypted = ca.issue("client"), ca.issue("encrypted", "correct-horse")
    gone, bad = tmp_path / "gone.pem", tmp_path / "bad.pem"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"verify": gone}, "there is no file .*gone.pem; the 'verify' of a model's spec must be true, false"),
        ({"verify": bad}, "bad.pem has no CA certificates: .*; give a file in PEM format"),
        ({"verify": ""}, "the 'verify' of a model's spec must be"),
        ({"verify": 3}, "the 'verify' of a model's spec must be"),
        ({"cert": gone}, "there is no file .*gone.pem; the 'cert' of a model's spec must be a path, or a list"),
        ({"cert": bad}, "the client certificate .*bad.pem cannot be used: .*; check that it is in PEM format"),
        ({"cert": (files[0], gone)}, "there is no file .*gone.pem"),
        ({"cert": (files[0], encrypted[1])}, "cannot be used: .*the password of the key"),
        ({"cert": (*encrypted, "wrong-horse")}, "cannot be used: .*the password of the key"),
        ({"cert": encrypted}, "cannot be used: .*the password of the key"),
        ({"cert": (*encrypted, 7)}, "the 'cert' of a model's spec must be"),
        ({"cert": (*encrypted, "wrong-horse", "more")}, "the 'cert' of a model's spec must be"),
        ({"cert": 7}, "the 'cert' of a model's spec must be"),
        ({"trust_env": "no"}, "the 'trust_env' of a model's spec must be true or false, not 'no'"),
    ]
    for options, sentence in cases:
        with pytest.raises(ConfigError, match=sentence) as caught:
            client("m", base_url="https://127.0.0.1:1/v1", **options)
        assert "horse" not in str(caught.value)
    model = client("m", base_url="https://127.0.0.1:1/v1", cert=(*encrypted, "correct-horse"))
    assert "horse" not in repr(model) + repr(model.server) + repr(model.server.network)


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic", "ollama", "gateway"])
def test_the_options_belong_to_every_server(provider: str, ca: Authority) -> None:
    given = {"verify": str(ca.path), "cert": [*map(str, ca.issue("client"))], "trust_env": False}
    model: Any = resolve({"provider": provider, "model": "m", "base_url": "https://127.0.0.1:1/v1", **given})
    network = model.server.network
    assert (network.verify, network.cert, network.trust_env) == (str(ca.path), tuple(given["cert"]), False)
    with pytest.raises(ConfigError, match="there is no file"):
        resolve({"provider": provider, "model": "m", "base_url": "https://127.0.0.1:1/v1", "verify": "/gone.pem"})


async def test_a_file_that_disappears_is_a_sentence_and_loses_nothing(ca: Authority) -> None:
    path = ca.issue("client")[0]
    path.write_bytes(b"".join(each.read_bytes() for each in ca.issue("client")))
    async with over_tls(ca) as port:
        model = OpenAI("m", base_url=f"https://127.0.0.1:{port}/v1", name="here", verify=ca.path, cert=path)
        path.unlink()
        thread = Thread()
        with pytest.raises(ModelError, match="the client certificate .* cannot be used: No such file") as caught:
            await Agent(model, hooks=[Retry(attempts=1)]).run("hello", thread=thread)
        assert not caught.value.retryable and not thread.busy
        path.write_bytes(b"".join(each.read_bytes() for each in ca.issue("client")))
        assert (await Agent(model).run("hello", thread=thread)).text == "hi"
