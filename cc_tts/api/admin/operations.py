"""The parts of the server process that operators can ask for or change, as the API sees them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta

from cc_tts.api.views import View
from cc_tts.config.sections.log import LogConfig
from cc_tts.engines.worker.link import WorkerLink
from cc_tts.processes.peer import ProcessState
from cc_tts.processes.supervisor import Supervisor


class Process(View, frozen=True, kw_only=True):
    """A child process of the server. ``pid`` is null while there is none."""

    name: str
    state: ProcessState
    pid: int | None
    num_restarts: int = msgspec.field(name="restarts")


class SpeechWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A speech worker. Fields that it has not reported yet are null."""

    name: Annotated[str, Meta(description="Of a worker elsewhere its address.")]
    where: Literal["here", "elsewhere"]
    state: ProcessState
    device: str
    generation: str
    draining: bool
    streams: Annotated[int | None, Meta(description="Texts that it speaks now.")]
    room: Annotated[int | None, Meta(description="Texts that it would take besides.")]
    utilisation: Annotated[float | None, Meta(description="The share of the last second that it computed, 0 to 1.")]
    first_audio_ms: Annotated[
        float | None, Meta(description="The first audio of a new text is expected after this long.")
    ]
    problem: Annotated[str, Meta(description="Why it does not speak, or takes no more texts; empty if it does.")]

    @classmethod
    def of(cls, link: WorkerLink) -> Self:
        load = link.load
        return cls(
            name=link.name,
            where="here" if isinstance(link.process, Supervisor) else "elsewhere",
            state=link.process.state,
            device=link.device,
            generation=link.generation,
            draining=link.is_leaving,
            streams=None if load is None else load.num_streams,
            room=None if load is None else link.room,
            utilisation=None if load is None else round(load.utilisation, 3),
            first_audio_ms=None if load is None else round(load.first_audio_ms, 1),
            problem=link.down_reason or (load.refusal if load is not None else "") or "",
        )


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a reload, by keys: ``changed`` is in force, ``needs_restart`` is not before the next start, and
    ``refused`` says why the user agent did not take a key over.
    """

    changed: list[str]
    needs_restart: list[str]
    refused: dict[str, str]


async def _never_reloaded() -> Reloaded:
    return Reloaded(changed=[], needs_restart=[], refused={})


async def _never_set(_log: LogConfig) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """``reload`` reads the configuration again, as SIGHUP does; it raises ``NotReady`` while the server starts, and
    ``ConfigError`` if nothing was changed. ``set_log`` raises ``NotReady`` likewise.
    """

    reload: Callable[[], Awaitable[Reloaded]] = _never_reloaded
    log: Callable[[], LogConfig] = LogConfig
    set_log: Callable[[LogConfig], Awaitable[None]] = _never_set
    processes: Callable[[], Sequence[Process]] = tuple
    workers: Callable[[], Sequence[SpeechWorker]] = tuple
    started_at_s: float = 0.0
