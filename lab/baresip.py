"""baresip 1.0 as a headless phone: writes its configuration, drives it by ctrl_tcp, reads its recordings.

ctrl_tcp carries JSON in netstrings. baresip hangs up when its audio file ends, so the file is padded with silence; it
records received frames only, so time without packets is missing from its recording.
"""

import asyncio
import contextlib
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np

from lab.audio_match import Samples, read_wav
from lab.children import Child
from lab.peers import require
from lab.ports import HOST, free_ports
from lab.waiting import PATIENCE_S

MODULES = ("g711", "sndfile", "aufile", "aubridge")

CONFIG = """\
poll_method             epoll
sip_listen              {host}:{sip_port}
call_local_timeout      30
call_max_calls          4
audio_path              /usr/share/baresip
audio_source            aufile,{audio}
audio_player            aubridge,nil
audio_alert             aubridge,nil
ausrc_srate             8000
auplay_srate            8000
ausrc_channels          1
auplay_channels         1
audio_txmode            thread
audio_level             no
ausrc_format            s16
auplay_format           s16
auenc_format            s16
audec_format            s16
rtp_ports               {rtp_port}-{rtp_last}
rtcp_mux                no
jitter_buffer_delay     5-10
rtp_stats               yes
net_interface           {host}
module_path             /usr/lib/baresip/modules
{modules}
module_tmp              account.so
module_app              menu.so
module_app              ctrl_tcp.so
ctrl_tcp_listen         {host}:{control_port}
snd_path                {recordings}
ringback_disabled       yes
{more}
"""


def write_padded_wav(path: Path, audio: Samples, *, seconds: float) -> None:
    """8 kHz WAV with silence after the audio up to ``seconds``."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(audio.astype("<i2").tobytes())
        file.writeframes(np.zeros(max(0, round(seconds * 8000) - len(audio)), "<i2").tobytes())


class Baresip:
    def __init__(self, child: Child, folder: Path, sip_port: int) -> None:
        self._child = child
        self._folder = folder
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._events: list[dict[str, Any]] = []
        self.sip_port = sip_port

    @classmethod
    async def start(
        cls,
        folder: Path,
        *,
        user: str = "bot",
        audio: Samples,
        answers: bool = False,
        seconds: float = 60.0,
        account_more: str = "",
        config_more: str = "",
        modules: tuple[str, ...] = MODULES,
    ) -> "Baresip":
        """Start it; ``answers`` makes it answer by itself. It says ``audio`` once a call.

        ``account_more`` are parameters of its account, ``config_more`` lines of its configuration. With a line
        ``sip_certificate`` it speaks TLS on the port after ``sip_port``.
        """
        baresip = require("baresip")
        recordings = folder / "rec"
        await asyncio.to_thread(recordings.mkdir, parents=True)
        write_padded_wav(folder / "said.wav", audio, seconds=seconds)
        sip_port, control_port, rtp_port = free_ports(2), free_ports(), free_ports(40)
        config = CONFIG.format(
            host=HOST,
            sip_port=sip_port,
            control_port=control_port,
            rtp_port=rtp_port,
            rtp_last=rtp_port + 39,
            audio=folder / "said.wav",
            recordings=recordings,
            modules="\n".join(f"module                  {name}.so" for name in modules),
            more=config_more,
        )
        mode = "auto" if answers else "manual"
        account = (
            f"<sip:{user}@{HOST}:{sip_port}>;answermode={mode};audio_codecs=pcmu,pcma;ptime=20;regint=0{account_more}\n"
        )
        for name, text in (("config", config), ("accounts", account), ("contacts", "")):
            (folder / name).write_text(text)
        child = await Child.start([baresip, "-4", "-f", str(folder)], log_path=folder / "baresip.log")
        phone = cls(child, folder, sip_port)
        try:
            await phone._connect(control_port)
        except BaseException:
            await phone.end()
            raise
        return phone

    async def _connect(self, port: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self._reader is None:
                if self._child.returncode is not None:
                    raise RuntimeError(f"baresip ended: {self._child.log[-2000:]}")
                try:
                    self._reader, self._writer = await asyncio.open_connection(HOST, port)
                except OSError:
                    await asyncio.sleep(0.05)

    async def _receive(self) -> dict[str, Any]:
        assert self._reader is not None
        length = await self._reader.readuntil(b":")
        body = await self._reader.readexactly(int(length[:-1]) + 1)
        message: dict[str, Any] = json.loads(body[:-1])
        return message

    async def command(self, name: str, params: str | None = None) -> dict[str, Any]:
        """Run one command of baresip's menu and return its answer."""
        assert self._writer is not None
        body = json.dumps(
            {"command": name, "token": name} | ({"params": params} if params is not None else {})
        ).encode()
        self._writer.write(b"%d:%s," % (len(body), body))
        async with asyncio.timeout(PATIENCE_S):
            await self._writer.drain()
            while True:
                message = await self._receive()
                if message.get("response"):
                    return message
                self._events.append(message)

    async def wait_event(self, kind: str, timeout_s: float) -> dict[str, Any]:
        """The next event of this type, such as CALL_ESTABLISHED or CALL_CLOSED."""
        async with asyncio.timeout(timeout_s):
            while True:
                for event in self._events:
                    if event.get("type") == kind:
                        self._events.remove(event)
                        return event
                self._events.append(await self._receive())

    async def dial(self, uri: str, timeout_s: float = PATIENCE_S) -> None:
        """Call and wait until the far side has answered."""
        await self.command("dial", uri)
        await self.wait_event("CALL_ESTABLISHED", timeout_s)

    async def press(self, digits: str) -> None:
        """Press keys (RFC 4733)."""
        for digit in digits:
            await self.command("sndcode", digit)

    @property
    def log(self) -> str:
        return self._child.log

    def heard(self) -> Samples:
        """What it received, from the last recording it made."""
        path = max((self._folder / "rec").glob("*-dec.wav"))
        signal, rate_hz = read_wav(path)
        assert rate_hz == 8000
        return signal

    async def end(self) -> None:
        """Quit. The recordings are complete afterwards."""
        if self._writer is not None and self._child.returncode is None:
            with contextlib.suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
                await self.command("quit")
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
        with contextlib.suppress(TimeoutError):
            await self._child.wait(5.0)
        await self._child.end()
