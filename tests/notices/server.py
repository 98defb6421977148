"""A mail server for tests, on loopback: speaks SMTP as RFC 5321 has it, with STARTTLS and AUTH, and does as it is told."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any


class MailServer:
    """`mails` are what was taken. `answer(step, recipient)` may give another reply than the usual one ("RCPT", "DATA",
    "TAKEN" after the data came), or "hang up"."""

    def __init__(self, tls: ssl.SSLContext | None = None, password: str | None = None) -> None:
        self.mails: list[EmailMessage] = []
        self.sessions = 0
        self.encrypted: list[bool] = []
        self.answer: Callable[[str, str], str | None] = lambda _step, _to: None
        self.port = 0
        self._tls, self._password = tls, password
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.base_events.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.open()

    def open(self, port: int = 0) -> None:
        async def begin() -> None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
            self.port = self._server.sockets[0].getsockname()[1]

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(10)

    def shut(self) -> None:
        """Nobody answers on the port any more."""

        async def end() -> None:
            assert self._server is not None
            self._server.close()
            await self._server.wait_closed()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)

    def close(self) -> None:
        async def end() -> None:
            if self._server is not None:
                self._server.close()
            mine = asyncio.current_task()
            others = [t for t in asyncio.all_tasks() if t is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sessions += 1
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        secure = known = False
        to = ""

        async def say(text: str) -> None:
            writer.write(f"{text}\r\n".encode())
            await writer.drain()

        await say("220 mail.test ESMTP")
        while line := await reader.readline():
            words = line.decode().strip()
            verb = words.upper().split(" ")[0]
            other = self.answer("RCPT" if verb == "RCPT" else verb, words)
            if other == "hang up":
                return
            if other is not None:
                await say(other)
            elif verb in ("EHLO", "HELO"):
                can: list[str] = ["mail.test", "8BITMIME"]
                if self._tls is not None and not secure:
                    can.append("STARTTLS")
                if self._password is not None:
                    can.append("AUTH PLAIN")
                await say("\r\n".join([f"250-{c}" for c in can[:-1]] + [f"250 {can[-1]}"]))
            elif verb == "STARTTLS" and self._tls is not None:
                await say("220 go on")
                await writer.start_tls(self._tls)
                secure = True
            elif verb == "AUTH":
                given = base64.b64decode(words.split()[-1]).decode().split("\0")[-1]
                known = given == self._password
                await say("235 welcome" if known else "535 who are you")
            elif verb == "RCPT":
                to = words
                await say("550 sign in first" if self._password is not None and not known else "250 ok")
            elif verb == "DATA":
                await say("354 go on")
                raw = (await reader.readuntil(b"\r\n.\r\n"))[:-3]
                self.mails.append(_read(raw))
                self.encrypted.append(secure)
                after = self.answer("TAKEN", to)
                if after == "hang up":
                    return
                await say(after or "250 taken")
            elif verb == "QUIT":
                await say("221 bye")
                return
            else:
                await say("250 ok")


def _read(raw: bytes) -> Any:
    return message_from_bytes(raw, policy=policy.default)
