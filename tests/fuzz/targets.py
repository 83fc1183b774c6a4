"""Each parser of ours that sees hostile bytes, as a function of bytes. What it raises of its ``expected`` errors is a proper
refusal; anything else is a finding, and so is an input on which it takes seconds.
"""

import asyncio
import contextlib
import dataclasses
import inspect
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from cc_tts import wav_file
from cc_tts.api import schemas, text_stream
from cc_tts.api.events import server_sent
from cc_tts.api.http import auth, bodies, idempotency, middlewares
from cc_tts.api.media.dialect import Dialect
from cc_tts.api.media.twilio import TwilioDialect
from cc_tts.calls.adoption import record
from cc_tts.calls.dialplan import routing, tts_headers
from cc_tts.calls.dialplan.request_uri import uri_parameters
from cc_tts.calls.events.bus import EventBus
from cc_tts.clock import MonotonicClock
from cc_tts.config import load as config
from cc_tts.config.schema import AuthConfig, Config, RouteConfig, UserConfig
from cc_tts.engines.enrolment.recording import read_recording
from cc_tts.engines.worker.messages import FROM_WORKER, TO_WORKER
from cc_tts.errors import UNREADABLE, CcTtsError
from cc_tts.mrcp.control import message as mrcp_message
from cc_tts.mrcp.control import params as mrcp_params
from cc_tts.mrcp.sip import request as mrcp_sip
from cc_tts.mrcp.sip import sdp as mrcp_sdp
from cc_tts.processes.channel import COMMON_MESSAGES, Decoder
from cc_tts.softphone import sdp as softphone_sdp
from cc_tts.softphone.rtp import packets, rtcp
from cc_tts.speech.cache import prompt_files
from cc_tts.speech.incremental.text import IncrementalText, Segment
from cc_tts.speech.prompt import texts_of
from cc_tts.speech.ssml import from_ssml
from cc_tts.text.chunker import Chunking
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.pronunciation.lexicon import CompiledLexicon, Entry, Lexicon, read_pls, replacements_by
from cc_tts.text.pronunciation.replacements import with_stand_ins
from cc_tts.text.segments import Segmenting
from cc_tts.ua import messages
from cc_tts.ua.client import settings_of
from cc_tts.ua.dialogs import Dialogs
from cc_tts.ua.guard import digest, dropped_messages, sdp_check, sdp_repair, srtp_sdp
from cc_tts.ua.guard.message_filter import MessageFilter
from cc_tts.ua.guard.policy import InboundPolicy
from cc_tts.ua.refer.request import refer_request
from cc_tts.ua.sip import bye, forwarding, payload_types, reason
from cc_tts.ua.sip import message as sip_message
from cc_tts.voices.enrolment import check_recording
from lab.chunk_text import chunks_of
from tests.fakes.filtered_messages import FakeLeg
from tests.fuzz.seeds import DIGEST, FORM_OF_RTP, INVITE, LEXICON, MRCP, MRCP_OFFER, PLS, RESPONSE, SDP, SSML, WAV

CLOCK: Final = MonotonicClock()
CODECS: Final = frozenset({"PCMU/8000", "PCMA/8000", "G722/8000"})
ADDRESS: Final = ("192.0.2.1", 5060)
CONFIG: Final = Config(routes={"*": RouteConfig(greeting="Hello.")})
UA_SETTINGS: Final = tuple(
    settings_of(config.load(overrides=overrides))[0]
    for overrides in (
        ("rtp.srtp=optional",),
        ("auth.users=[{username='pbx', password='open sesame'}]", "sip.allowed_peers=['192.0.2.0/24']"),
    )
)
BODIES: Final = tuple(
    kind
    for _, kind in inspect.getmembers(schemas, inspect.isclass)
    if issubclass(kind, schemas.Body) and kind is not schemas.Body
)
TEXT_FUNCTIONS: Final = tuple(
    function
    for name, function in inspect.getmembers(sip_message, inspect.isfunction)
    if not name.startswith("_")
    and len(inspect.signature(function).parameters) == 1
    and name not in ("option_tags", "readable")
)


def text_of(data: bytes) -> str:
    """As PJSIP's messages come, see ``CLibrary.message``."""
    return data.decode("utf-8", "surrogateescape")


def unicode_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


class Library:
    """In place of PJSIP: shows one message to the filters."""

    dispatcher = "127.0.0.1:5060"

    def __init__(self, data: bytes) -> None:
        self.text = text_of(data)
        self.modules: list[Callable[[int], bool]] = []

    def register_module(self, *_: object, on_request: Any = None, on_response: Any = None) -> None:
        self.modules += filter(None, (on_request, on_response))

    def method_of(self, _rdata: int) -> str:
        return self.text.split(" ", 1)[0][:20]

    def message(self, _rdata: int) -> tuple[str, str]:
        return ADDRESS[0], self.text

    def sdp(self, _rdata: int, repaired: Callable[[str], str]) -> tuple[str, bool] | None:
        body = repaired(sip_message.body_of(self.text))
        return (body, True) if body else None

    def is_over(self, *_: str) -> bool | None:
        return None if "over" in self.text else False

    def has_dialog(self, *_: str) -> bool:
        return "known" in self.text

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def sip_text(data: bytes) -> None:
    text = text_of(data)
    for function in TEXT_FUNCTIONS:
        function(text)
    for name in ("contact", "via", "x-tts-text"):
        sip_message.header_value(text, name)
        sip_message.has_foreign_uri(text, name)
    sip_message.option_tags(sip_message.required_extensions(text))
    sip_message.readable(text)
    reason.remote_reasons(text)
    bye.quoted(text)


class AnyDialogs(Dialogs):
    """The dialogs that messages are about: a call that ends for the tag "ending", one for any other, and REFER for each."""

    def __init__(self) -> None:
        super().__init__({})

    def leg_of(self, sip_call_id: str, remote_tag: str) -> Any:
        leg = FakeLeg(sip_call_id)
        leg.is_ending = remote_tag == "ending"
        return leg

    def on_refer(self, _sip_call_id: str, _remote_tag: str, message: str) -> tuple[int, tuple[tuple[str, str], ...]]:
        try:
            refer_request(message, "call_1")
        except ValueError:
            return 400, ()
        return 202, ()


def message_filter(data: bytes) -> None:
    library = Library(data)
    for settings in UA_SETTINGS:
        policy = InboundPolicy(settings, clock=CLOCK, max_message_bytes=4_000)
        found = MessageFilter(
            cast("Any", library),
            settings,
            policy=policy,
            dialogs=AnyDialogs(),
            refusal=lambda: None,
            on_refused=lambda: None,
            on_offer=lambda _codecs: None,
        )
        for step in (found._on_request, found._on_new_request, found._on_response):
            step(0)
        policy.is_unsolicited_challenge(*library.message(0), is_ours=lambda _id: False)
    dropped_messages.answer_to(library.text, is_cut=False, server="")


def session_descriptions(data: bytes) -> None:
    text = text_of(data)
    for secure in (False, True):
        sdp_check.check(text, codecs=CODECS, secure=secure)
    srtp_sdp.fault_of(text)
    payload_types.with_event_type(sdp_repair.repaired(text), payload_types.USUAL)
    softphone_sdp.remote_audio(text)
    softphone_sdp.with_own_media(text, address="192.0.2.1", port=4000, codec="pcmu")


def digests(data: bytes) -> None:
    guard = digest.DigestGuard(AuthConfig(users=(UserConfig(username="bob", password="open sesame"),)), CLOCK)
    nonce = dict(guard.challenges("here", stale=False))["WWW-Authenticate"].partition('nonce="')[2].partition('"')[0]
    credentials = digest.parse_credentials(text_of(data).replace("NONCE", nonce))
    if credentials is not None:
        for each in (credentials, dataclasses.replace(credentials, realm="cc-tts", nonce=nonce)):
            guard.verify(each, method="INVITE", source="here")


def dispatched(data: bytes) -> None:
    forwarding.method_of(data)
    forwarding.call_id_of(data)
    forwarding.forwarded(data, ADDRESS, ADDRESS)
    forwarding.returned(data)
    forwarding.sender_port(data)
    forwarding.source_of(text_of(data))
    forwarding.refusal(data, ADDRESS, retry_after_s=1)


def dialplan(data: bytes) -> None:
    uri, *lines = text_of(data).split("\n")
    headers = dict(line.partition(":")[::2] for line in lines)
    with contextlib.suppress(CcTtsError):
        routing.decide(request_uri=uri, trusted=True, headers=headers, config=CONFIG)
    with contextlib.suppress(CcTtsError):
        tts_headers.gather_of(lines[0] if lines else uri, None, "stay")
    with contextlib.suppress(CcTtsError):
        uri_parameters(uri)
    routing.route_of(uri, CONFIG)


def ssml(data: bytes) -> None:
    found = from_ssml(unicode_of(data))
    for content in texts_of(found):
        with_stand_ins(content.text, content.replacements)


def pls(data: bytes) -> None:
    CompiledLexicon(read_pls(data))


def lexicon(data: bytes) -> None:
    """Entries as JSON in the first line, a text behind them."""
    entries, _, text = data.partition(b"\n")
    compiled = [NAMES]
    with contextlib.suppress(CcTtsError):
        compiled.append(CompiledLexicon(bodies.decode(entries, Lexicon)))
    written = unicode_of(text)
    ends = 0
    for each in replacements_by(compiled, written):
        assert ends <= each.start < each.end <= len(written)
        ends = each.end


def text(data: bytes) -> None:
    written = unicode_of(data)[:400]
    for language in ("en", "zh"):
        for chunk in chunks_of(NORMALIZER, written, Chunking(language=language)):
            chunk.spoken.encode()


def tokens(data: bytes) -> None:
    """A text in tokens of as many characters as its first byte says: nothing of it is lost."""
    size, written = 1 + (data[:1] or b"\0")[0] % 12, unicode_of(data[1:])[:2000]

    async def segments() -> str:
        incremental = IncrementalText(CLOCK, segmenting=Segmenting(), idle_timeout_s=60)
        taken: list[Segment] = []
        for start in range(0, len(written), size):
            incremental.append(written[start : start + size])
            taken.extend(iter(incremental.take, None))
        incremental.end()
        taken.extend(iter(incremental.take, None))
        assert incremental.text == written
        said = "".join(each.text for each in taken)
        return said if incremental.num_pending == 0 else said + written[len(said) :]

    assert asyncio.run(segments()) == written


def websockets(data: bytes) -> None:
    """What clients send over the sockets of texts and audio, and as bodies."""
    written = unicode_of(data)
    for read in (text_stream._DECODER.decode, Dialect(8000).read_text, TwilioDialect().read_text):
        with contextlib.suppress(CcTtsError, *UNREADABLE):
            read(written)
    for kind in BODIES:
        with contextlib.suppress(CcTtsError):
            bodies.decode(data, kind)


def channel(data: bytes) -> None:
    """The records between processes and machines, in two pieces."""
    for types in (TO_WORKER, FROM_WORKER, messages.TO_UA, messages.FROM_UA):
        with contextlib.suppress(CcTtsError):
            decoder = Decoder((*COMMON_MESSAGES, *types))
            decoder.feed(data[: len(data) // 2])
            decoder.feed(data[len(data) // 2 :])
    record.decode(data)


def files(data: bytes) -> None:
    with contextlib.suppress(CcTtsError):
        check_recording(read_recording(data))
    with contextlib.suppress(ValueError):
        prompt_files.from_file("0" * 64, data)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(ValueError):
            wav_file.read(Path(file.name), rate_hz=8000, max_s=60)


def rtp(data: bytes) -> None:
    if packets.is_rtcp(data):
        rtcp.last_sender_report(data)
    packet = packets.RtpPacket.from_bytes(data)
    packets.TelephoneEvent.from_bytes(packet.payload)


def http_heads(data: bytes) -> None:
    """Values of headers and parameters that we read ourselves."""
    value = data.decode("latin-1")
    headers = SimpleNamespace(get=lambda _name, default="": value, getall=lambda _name, default=(): (value,))
    request = cast("Any", SimpleNamespace(headers=headers, query={"types": value, "call_id": value}))
    server_sent.is_asked_for(request)
    middlewares._id_of(request)
    middlewares._trace_of(request)
    for check in (
        lambda: idempotency.check_key([value]),
        lambda: auth._check_same_origin(request),
        lambda: auth.TokenAuthenticator(()).check_origin(request),
        lambda: EventBus(CLOCK).subscribe(since=value),
    ):
        with contextlib.suppress(CcTtsError):
            check()


def configuration(data: bytes) -> None:
    written = unicode_of(data)
    config.load(environ={"CC_TTS_HTTP__TOKENS": written, "CC_TTS_AUTH__USERS": "[]"}, overrides=[f"routes.a={written}"])


NORMALIZER: Final = Normalizer()
NAMES: Final = CompiledLexicon(
    Lexicon(entries=(Entry("Mobivox", "mo bee vox"), Entry("aba", "x", whole_word=False), Entry("华为", "划为")))
)


@dataclasses.dataclass(frozen=True)
class Target:
    run: Callable[[bytes], None]
    seeds: Sequence[bytes]
    expected: tuple[type[Exception], ...] = ()

    def __call__(self, data: bytes) -> None:
        with contextlib.suppress(*self.expected):
            self.run(data)


_STREAM: Final = tuple(
    json.dumps(each).encode()
    for each in (
        {"type": "tokens", "text": "Hello", "id": 1},
        {"type": "start", "voice": "a", "barge_in": {"speech": {"min_speech_ms": 100}}},
        {"event": "media", "media": {"payload": "AAAA"}},
        {"event": "mark", "mark": {"name": "m"}},
        {"text": "Hello", "lexicons": ["a"], "queue": "replace"},
        {"to": "sip:a@192.0.2.1", "headers": {"X-A": "b"}, "speak": {"ssml": "<speak/>"}},
    )
)


def mrcp(data: bytes) -> None:
    reader = mrcp_message.MessageReader()
    for part in (data[: len(data) // 2], data[len(data) // 2 :]):
        for found in reader.feed(part):
            if isinstance(found, mrcp_message.Request):
                assert len(found.body) <= mrcp_message.MAX_MESSAGE_BYTES
                mrcp_params.illegal(found.headers)
                if not mrcp_params.illegal(found.headers):
                    mrcp_params.style_of(mrcp_params.merged({}, found))
                    mrcp_params.length_of(found.header("Jump-Size") or "")


def mrcp_offer(data: bytes) -> None:
    offer = mrcp_sdp.read(data.decode("utf-8", "surrogateescape"))
    for each in offer:
        each.accepted_port = 1544 * len(data) % 3
    answer = mrcp_sdp.answer(offer, channel="abc@speechsynth", address="192.0.2.7", sdp_id=1, version=1)
    assert answer.count("\r\nm=") == len(offer)


def mrcp_request(data: bytes) -> None:
    flow = SimpleNamespace(peer=ADDRESS, transport="UDP", send=lambda _data, _to: None)
    request = mrcp_sip.read(data.decode("utf-8", "surrogateescape"), cast("Any", flow))
    if request is not None:
        response = request.response(200, tag="t", headers=[("Allow", mrcp_sip.ALLOW)], body="v=0\r\n")
        assert response.endswith(b"\r\n\r\nv=0\r\n")


TARGETS: Final[Mapping[str, Target]] = {
    "sip_text": Target(sip_text, (INVITE, RESPONSE)),
    "message_filter": Target(
        message_filter,
        (
            INVITE,
            INVITE.replace(b";tag=t", b""),
            RESPONSE,
            *(INVITE.replace(b"INVITE", other) for other in (b"INFO", b"REGISTER")),
        ),
    ),
    "session_descriptions": Target(session_descriptions, (SDP,)),
    "digests": Target(digests, (DIGEST,), (digest.MalformedCredentials,)),
    "dispatched": Target(dispatched, (INVITE, RESPONSE)),
    "dialplan": Target(
        dialplan, (b"sip:annc@x;play=tts:a%20b;repeat=2;delay=5", b"sip:a@x\nX-TTS-Text:a\nX-TTS-Gather:max=4;finish=#")
    ),
    "ssml": Target(ssml, (SSML,), (CcTtsError,)),
    "pls": Target(pls, (PLS,), (CcTtsError,)),
    "lexicon": Target(lexicon, (LEXICON,)),
    "text": Target(
        text, ("On 3/4 at 5pm, call 0800 123. 您好，共12元。".encode(), b"**Hi** `x` <b>$12.50</b> https://a.b/c")
    ),
    "tokens": Target(
        tokens, (b"\3Hi **you** <think>no</think>, $12.50 on 3/4. ```a``` Bye!", "\4您好，共12元。".encode())
    ),
    "websockets": Target(websockets, _STREAM),
    "channel": Target(channel, (b"\x0c\x00\x00\x00\x00\x00\x00\x00\x82\xa4type\xa4Ping",)),
    "files": Target(files, (WAV,)),
    "mrcp": Target(mrcp, (MRCP,), (mrcp_message.MalformedMessage,)),
    "mrcp_offer": Target(mrcp_offer, (MRCP_OFFER,), (mrcp_sip.SipRefusal,)),
    "mrcp_request": Target(mrcp_request, (INVITE, RESPONSE)),
    "rtp": Target(rtp, (FORM_OF_RTP,), (packets.RtpError,)),
    "http_heads": Target(http_heads, (b"text/event-stream, */*", b"http://localhost:8080", b"evt_0123abcd_1")),
    "configuration": Target(configuration, (b'[{token="secret-one", scopes=["read"]}]',), (CcTtsError,)),
}
