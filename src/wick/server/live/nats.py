"""NatsLive: the live plane over NATS.

A lost connection is opened again in the background, with all subscriptions. Meanwhile messages are dropped rather
than buffered: a reader that missed some reads the log.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from wick._internal.tasks import cancel_and_wait
from wick.constants import LIVE_BYTES, LIVE_OUTBOX_BYTES, LIVE_RECONNECT_SECONDS, LIVE_START_SECONDS
from wick.errors import ConfigError, MissingExtra
from wick.server.live import Receive
from wick.server.live.subscriptions import Subscriptions

try:
    from nats import errors
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
except ImportError:
    raise MissingExtra("nats", "nats-py", "the live plane over NATS") from None

logger = logging.getLogger("wick.server")

PING_SECONDS, PINGS = 2, 2  # a connection without a reply to so many pings is closed
PENDING_BYTES = 8_000_000  # received for one subscription and not handled yet

_Work = Callable[[Client], Any]  # returns a coroutine


class NatsLive:
    """A live plane over NATS. `urls` may have credentials, as in `nats://user:password@host:4222`."""

    name, is_shared = "nats", True

    def __init__(self, urls: Sequence[str], *, credentials: Path | None = None, ca: Path | None = None) -> None:
        self.problem = "it is not connected yet"
        self.address = ", ".join(hide_credentials(url) for url in urls)
        self._urls, self._credentials, self._ca = [*urls], credentials, ca
        self._prefix = "wick."
        self._subscriptions = Subscriptions()
        self._opened: dict[str, Subscription] = {}  # subscriptions of the current connection, by subject
        self._outbox: asyncio.Queue[_Work] = asyncio.Queue()
        self._outbox_bytes = 0
        self._client: Client | None = None  # while connected
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, cluster: str) -> None:
        self._prefix = f"wick.{cluster}."
        options = self._options()
        self._task = asyncio.create_task(self._stay_connected(options), name="live plane")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), LIVE_START_SECONDS)

    async def close(self) -> None:
        if self._task is not None:
            await cancel_and_wait((self._task,))
            self._task = None

    def publish(self, subject: str, data: bytes) -> None:
        self._send(f"{self._prefix}{subject}", data)

    def subscribe(self, subject: str, receive: Receive) -> Callable[[], None]:
        if subject not in self._subscriptions:
            self._put(lambda client: self._open(client, subject))
        self._subscriptions.add(subject, receive)

        def unsubscribe() -> None:
            self._subscriptions.remove(subject, receive)
            if subject not in self._subscriptions:
                self._put(lambda client: self._shut(subject))

        return unsubscribe

    async def request(self, subject: str, data: bytes, seconds: float) -> bytes | None:
        if self._client is None or len(data) > LIVE_BYTES:
            return None
        sent = asyncio.get_running_loop().create_future()

        async def mark_sent(client: Client) -> None:
            if not sent.done():
                sent.set_result(client)

        try:
            async with asyncio.timeout(seconds):
                self._put(mark_sent)  # after the subscriptions that are still in the outbox
                reply = await (await sent).request(f"{self._prefix}{subject}", data, timeout=seconds)
        except (errors.Error, OSError, TimeoutError):
            return None
        return bytes(reply.data)

    # -- the connection -----------------------------------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        """Return the options of the client; raise a ConfigError if a file cannot be used."""
        options: dict[str, Any] = {"servers": self._urls, "name": "wick", "allow_reconnect": False}
        options |= {"ping_interval": PING_SECONDS, "max_outstanding_pings": PINGS, "connect_timeout": 2}
        options |= {"max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}  # while it connects the first time
        try:
            if self._ca is not None:
                options["tls"] = ssl.create_default_context(cafile=str(self._ca))
            if self._credentials is not None:
                is_jwt = "BEGIN NATS USER JWT" in self._credentials.read_text(errors="replace")
                options["user_credentials" if is_jwt else "nkeys_seed"] = str(self._credentials)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"live_credentials or live_ca cannot be read: {error}; give the path of a file") from None
        return options

    async def _stay_connected(self, options: dict[str, Any]) -> None:
        pause, longest = LIVE_RECONNECT_SECONDS
        while True:
            try:
                await self._serve(options)
                pause = LIVE_RECONNECT_SECONDS[0]
                self._report_problem("the connection was lost")
            except Exception as error:  # the client also raises errors of its parser and of its TLS library
                self._report_problem(" ".join(str(error).split()) or type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _serve(self, options: dict[str, Any]) -> None:
        """Connect, and send the messages of the outbox until the connection is lost."""
        client, lost, causes = Client(), asyncio.Event(), list[Exception]()

        async def on_closed() -> None:
            lost.set()

        async def on_error(error: Exception) -> None:
            causes[:] = [error]
            if isinstance(error, errors.SlowConsumerError):
                logger.warning("messages of the live plane were dropped, since this server is too slow")

        sending: asyncio.Task[None] | None = None
        try:
            try:
                await client.connect(**options, closed_cb=on_closed, error_cb=on_error)
            except errors.NoServersError as error:
                raise causes[0] if causes else error from None
            self._outbox, self._outbox_bytes, self._opened = asyncio.Queue(), 0, {}
            for subject in self._subscriptions.subjects():
                await self._open(client, subject)
            self._client = client
            if self.problem and self._connected.is_set():
                logger.warning("the live plane is connected to NATS again at %s", self.address)
            self.problem = ""
            self._connected.set()
            sending = asyncio.create_task(self._send_outbox(client), name="live plane outbox")
            waiting = asyncio.create_task(lost.wait(), name="live plane connection")
            await asyncio.wait((sending, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        finally:
            self._client = None
            if sending is not None:
                await cancel_and_wait((sending,))
            with suppress(Exception):
                if client.is_connected:
                    await client.close()
                elif (transport := getattr(client, "_transport", None)) is not None:
                    transport.close()  # of a refused connection, which `close` would wait for

    async def _send_outbox(self, client: Client) -> None:
        while True:
            work = await self._outbox.get()
            await work(client)

    def _put(self, work: _Work) -> None:
        if self._client is not None:  # else there is nothing to send it with, and a new connection subscribes again
            self._outbox.put_nowait(work)

    def _send(self, subject: str, data: bytes) -> None:
        size = len(data)
        if size > LIVE_BYTES or self._outbox_bytes + size > LIVE_OUTBOX_BYTES or self._client is None:
            return

        async def send(client: Client) -> None:
            self._outbox_bytes -= size
            await client.publish(subject, data)

        self._outbox_bytes += size
        self._put(send)

    async def _open(self, client: Client, subject: str) -> None:
        async def receive(message: Msg) -> None:
            reply = self._subscriptions.deliver(subject, bytes(message.data))
            if reply is not None and message.reply:
                self._send(message.reply, reply)

        if subject in self._subscriptions and subject not in self._opened:
            self._opened[subject] = await client.subscribe(
                f"{self._prefix}{subject}", cb=receive, pending_bytes_limit=PENDING_BYTES
            )

    async def _shut(self, subject: str) -> None:
        if subject not in self._subscriptions and (opened := self._opened.pop(subject, None)) is not None:
            with suppress(errors.Error):
                await opened.unsubscribe()

    def _report_problem(self, problem: str) -> None:
        """Log that the connection is lost, once."""
        if not self.problem or not self._connected.is_set():
            self._connected.set()
            logger.warning(
                "NATS cannot be reached at %s: %s; streams of other servers follow the log until it can",
                self.address,
                problem,
            )
        self.problem = problem


def hide_credentials(url: str) -> str:
    """Return the address of a URL without its user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
