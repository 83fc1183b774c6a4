"""Every key of the configuration, from every source, right and wrong."""

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cc_tts.config import load as config
from cc_tts.config.schema import Config, TenantConfig
from cc_tts.config.sections.models import ModelConfig
from cc_tts.config.sections.trunks import TrunkConfig
from cc_tts.errors import ConfigError

pytestmark = pytest.mark.unit

SHIPPED = Path("configs/cc_tts.toml")


def sample_of(table: str) -> dict[str, Any]:
    """The keys of a table that the shipped file has as a comment."""
    sample = SHIPPED.read_text(encoding="utf-8").split(f"# {table}\n")[1].split("\n\n")[0]
    return tomllib.loads(re.sub(r"^# ", "", sample, flags=re.MULTILINE))


def test_the_shipped_file_states_every_key_with_its_default() -> None:
    tree = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
    defaults = Config()
    assert config.load(SHIPPED) == defaults
    example = dict(re.findall(r"^#   (\w+) = (\S+) +#", SHIPPED.read_text(encoding="utf-8"), re.MULTILINE))
    assert example == {key.name: str(key.default) for key in dataclasses.fields(TenantConfig)}
    trunk = sample_of("[trunks.alpha]")
    assert trunk.keys() == {key.name for key in dataclasses.fields(TrunkConfig)}
    assert config.from_tree({"trunks": {"a": trunk | {"domain": "a"}}}).trunks == {"a": TrunkConfig(domain="a")}
    model = sample_of("[tts.models.main]")
    assert config.from_tree({"tts": {"models": {"main": model}}}).tts.models == {
        "main": ModelConfig(model_dir=model["model_dir"])
    }
    tree["tts"]["models"] = model
    assert model.keys() == {key.name for key in dataclasses.fields(ModelConfig)}
    for section in dataclasses.fields(defaults):
        if section.name in ("tenants", "trunks"):
            continue
        value = getattr(defaults, section.name)
        keys = tree["routes"]["*"] if section.name == "routes" else tree[section.name]
        known = value["*"] if section.name == "routes" else value
        assert set(keys) == {key.name for key in dataclasses.fields(known)}, section.name


def test_every_key_of_the_shipped_file_has_a_comment() -> None:
    for line in SHIPPED.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#") and not line.startswith("port = 8080"):
            assert "#" in line, line


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[sip]\nport = 1111\nhost = '127.0.0.2'\n[http]\nport = 1\n")
    loaded = config.load(
        file, environ={"CC_TTS_SIP__PORT": "2222", "CC_TTS_HTTP__PORT": "2", "PATH": "x"}, overrides=["http.port=3"]
    )
    assert (loaded.sip.host, loaded.sip.port, loaded.http.port) == ("127.0.0.2", 2222, 3)


def test_a_password_of_digits_stays_text() -> None:
    assert config.load(overrides=["registration.password=0042"]).registration.password == "0042"
    assert config.load(environ={"CC_TTS_TTS__VOICE": "de"}).tts.voice == "de"


@pytest.mark.parametrize(
    ("text", "scopes"),
    [
        ('http.tokens=["secret-one"]', ("read", "call", "listen", "talk", "digits", "recordings", "admin")),
        ('http.tokens=[{token="secret-one", scopes=["read"]}]', ("read",)),
        ("http.tokens=secret-one", ("read", "call", "listen", "talk", "digits", "recordings", "admin")),
    ],
)
def test_tokens(text: str, scopes: tuple[str, ...]) -> None:
    (token,) = config.load(overrides=[text]).http.tokens
    assert token.token == "secret-one"
    assert token.scopes == scopes
    assert "secret-one" not in repr(token)


def test_a_route_with_dots_in_its_user() -> None:
    loaded = config.load(overrides=['routes."7.1".greeting=Hello'])
    assert loaded.routes["7.1"].greeting == "Hello"


def test_a_route_that_transfers_to_an_allowed_target() -> None:
    route = "routes.a={then='transfer', transfer_to='sip:1001@pbx'}"
    loaded = config.load(overrides=[route, "transfer.allowed=['sip:10??@pbx']"])
    assert loaded.routes["a"].transfer_to == "sip:1001@pbx"
    with pytest.raises(ConfigError, match="the application transfers the call"):
        config.load(overrides=[route.replace("}", ", answer='manual'}"), "transfer.allowed=['sip:10??@pbx']"])


def test_models_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[tts.models.v2]\nmodel_dir = "/m/2"\nflow_steps = 6\n[tts.models.v3]\nmodel_dir = "/m/3"\n')
    loaded = config.load(file, environ={"CC_TTS_TTS__MODELS__V3__VOICES_DIR": "007", "CC_TTS_TTS__VOICES_DIR": "/v"})
    assert loaded.tts.models == {
        "v2": ModelConfig(model_dir="/m/2", flow_steps=6),
        "v3": ModelConfig(model_dir="/m/3", voices_dir="007"),
    }


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["tts.models.a.dtype=float16"], "tts.models.a: object missing required field `model_dir`"),
        (
            ["tts.models.a.model_dir=/m", "tts.models.b.model_dir="],
            "tts.models.b.model_dir: text of at least 1 character is needed",
        ),
        (["tts.models.a.model_dir=/m", "tts.models.a.flow_stops=6"], "did you mean tts.models.a.flow_steps"),
        (["tts.models.A.model_dir=/m"], "'A' is no name of a model"),
        (["tts.models.a.model_dir=/m", "tts.models.a.devices=['gpu']"], "tts.models.a.devices: 'gpu' is not a device"),
        (
            [
                "tts.models.a.model_dir=/m",
                "tts.models.b.model_dir=/n",
                "tts.voices_dir=/v",
                "tts.models.b.voices_dir=/v/",
            ],
            "tts.models.a and tts.models.b have the same voices_dir",
        ),
    ],
)
def test_faults_of_models(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config.load(overrides=overrides)


def test_the_former_keys_of_a_model_are_taken_and_the_new_ones_named() -> None:
    said: list[str] = []
    environ = {"CC_TTS_TTS__MODEL_DIR": "/m", "CC_TTS_TTS__FLOW_STEPS": "6", "CC_TTS_TTS__VOICES_DIR": "/v"}
    tts = config.load(environ=environ, overrides=["tts.graphs=false"], warn=said.append).tts
    assert (tts.models, tts.voices_dir) == ({"main": ModelConfig(model_dir="/m", flow_steps=6, graphs=False)}, "/v")
    assert said[0] == "tts.model_dir is called tts.models.main.model_dir now; the next version refuses the former name"
    assert len(said) == 3
    named = config.load(environ={"CC_TTS_TTS__DTYPE": "float16"}, overrides=["tts.models.v3.model_dir=/m"])
    assert named.tts.models == {"v3": ModelConfig(model_dir="/m", dtype="float16")}


def test_former_keys_without_a_model_have_no_effect() -> None:
    said: list[str] = []
    loaded = config.load(overrides=["tts.model_dir=", "tts.dtype=auto", "tts.flow_steps=10"], warn=said.append)
    assert loaded == Config()
    (sentence,) = said
    assert "no effect without one: remove tts.model_dir, tts.dtype, tts.flow_steps; the next version" in sentence


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["tts.model_dir=/m", "tts.models.a.model_dir=/n"],
            "tts.model_dir is called tts.models.a.model_dir now: remove",
        ),
        (["tts.dtype=auto", "tts.models={a={}, b={}}"], "tts.dtype is a key of a model now: write it below the one"),
        (["tts.dtype=auto", "tts.models=3"], "tts.dtype is a key of a model now"),
        (["tts.dtype=auto", "tts.models={a=3}"], "tts.dtype is a key of a model now"),
        (["tts.models={a=3}"], "tts.models"),
    ],
)
def test_former_keys_that_are_not_clear(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config.load(overrides=overrides)


def test_tenants_of_tokens_and_routes() -> None:
    loaded = config.load(
        environ={
            "CC_TTS_TENANTS__ACME__MAX_CALLS": "40",
            "CC_TTS_HTTP__TOKENS": '[{token = "secret-one", tenant = "acme"}, "secret-two"]',
            "CC_TTS_ROUTES__SALES__TENANT": "acme",
        }
    )
    assert loaded.tenants == {"acme": TenantConfig(max_calls=40)}
    assert [token.tenant for token in loaded.http.tokens] == ["acme", ""]
    assert loaded.routes["sales"].tenant == "acme"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ('http.tokens=[{token="secret-one", tenant="acne"}]', "http.tokens names the tenant 'acne', did you mean acme"),
        ("routes.a.tenant=other", "routes.a.tenant names the tenant 'other'"),
        ("tenants.acme.max_cals=3", "did you mean tenants.acme.max_calls"),
        ("tenants.acme.weight=0", "weight: a number above 0 is needed"),
        ('tenants."a/b".max_calls=3', "'a/b' is no name of a tenant"),
    ],
)
def test_faults_of_tenants(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config.load(overrides=["tenants.acme.max_calls=2", override])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sip.prot=1", "did you mean sip.port?"),
        ("http.max_calls=4", "did you mean sip.max_calls?"),
        ("rout.x=1", "did you mean routes?"),
        ("routes.a.greting=hi", "did you mean routes.a.greeting?"),
        ("sip.port=x", "sip.port: a whole number is needed, not text"),
        ("sip.port=99999", "sip.port: a whole number of at most 65535 is needed"),
        ("sip.port", "section.key=value"),
        ("port=3", "name a section and a key"),
        ("sip.host=example.com", "is not an IPv4 address"),
        ("sip.host=::1", "over IPv4 only"),
        ("sip.public_address=2001:db8::1", "over IPv4 only"),
        ("sip.trusted_peers=['10.0.0.1/8']", "has host bits set"),
        ("record.upload_networks=['internal']", "record.upload_networks"),
        ("record.upload_hosts=['https://a.example.com']", "record.upload_hosts: 'https://a.example.com' is no host"),
        ("sip.transports=[]", "sip.transports is empty"),
        ("sip.transports=['sctp']", "sip.transports[0]"),
        ("sip.transports=['tls']", "set tls.certificate_file and tls.private_key_file"),
        ("tls.certificate_file=a.pem", "set together"),
        ("tls.verify_client=true", "name the CA whose clients"),
        ("tls.certificat_file=a.pem", "did you mean tls.certificate_file?"),
        ("rtp.srtp=maybe", "rtp.srtp"),
        ("rtp.port_max=1030", "above rtp.port_min"),
        ("rtp.codecs=[]", "rtp.codecs is empty"),
        ('rtp.codecs=["L16"]', 'rtp.codecs has "L16" alone'),
        ("http.host=0.0.0.0", "no token is configured"),
        ("http.tokens=short", "text of at least 8 characters is needed"),
        ("playout.start_threshold_max_ms=30", "start_threshold"),
        ("playout.window_ms=299", "raise playout.window_ms"),
        ("registration.registrar=pbx", "username is empty"),
        ("routes.a.unanswered_greeting=Hi", 'is for answer = "manual"'),
        ('routes."7.1".then=hangs', "routes.7.1.then: 'hangs' is none of stay, hangup, transfer, did you mean hangup?"),
        ("routes.a.instructions=<|endofprompt|>", "text without NUL and without <|"),
        ("routes.a.media_url=http://app", "is not a URL of a WebSocket"),
        ("routes.a.media_url=ws://", "is not a URL of a WebSocket"),
        ("routes.a.media_url='ws://app:99999/'", "is not a URL of a WebSocket"),
        ("routes.a.media_url='ws://app/#x'", "is not a URL of a WebSocket"),
        ("routes.a.media_url='ws://a pp/'", "is not a URL of a WebSocket"),
        ("routes.a={media_url='ws://app', answer='manual'}", 'leave answer = "now"'),
        ("routes.a={media_url='ws://app', then='hangup'}", 'leave then = "stay"'),
        ("routes.a={media_url='ws://app', media_dialect='vonage'}", "media_dialect"),
        ("routes.a.relay={url='http://app'}", "routes.a.relay.url is not a URL of a WebSocket"),
        ("routes.a.relay={url='ws://user:pw@app'}", "routes.a.relay.url is not a URL of a WebSocket"),
        ("routes.a.relay={welcome_greeting='Hello'}", "url"),
        ("routes.a.relay={url='ws://app', secret='s'}", "routes.a.relay.secret: a secret is whsec_"),
        ("routes.a.relay={url='ws://app', interruptible='maybe'}", "interruptible"),
        ("routes.a.relay={url='ws://app', welcomeGreeting='Hello'}", "welcomeGreeting"),
        ("routes.a={relay={url='ws://app'}, answer='manual'}", 'leave answer = "now"'),
        ("routes.a={relay={url='ws://app'}, then='hangup'}", "routes.a.relay.then"),
        ("routes.a={relay={url='ws://app'}, media_url='ws://app'}", "leave one of them out"),
        ("routes.a={relay={url='ws://app'}, unanswered_greeting='Away'}", "routes.a.relay.fallback"),
        ("relay.allowed_hosts=['a b']", "relay.allowed_hosts"),
        ("routes.a.refer=ask", "transfer.allowed names nobody"),
        ("routes.a.then=transfer", "name the SIP URI in routes.a.transfer_to"),
        ("routes.a.transfer_to='sip:1@pbx'", 'goes with then = "transfer"'),
        ("routes.a={then='transfer', transfer_to='1001'}", "write a SIP URI"),
        ("routes.a={then='transfer', transfer_to='sip:1@pbx'}", "no pattern of transfer.allowed takes"),
        ("quality.collector=collector.example.com", "quality.collector: write a SIP URI"),
        (
            "quality.collector=sips:vq@collector.example.com",
            "quality.collector is a sips: URI, but sip.transports has no",
        ),
        ("quality.interval_s=4", "quality.interval_s is 0, or 5 to 3600"),
        ("quality.interval_s=30", "quality.interval_s needs quality.collector"),
        ("log.json.deep=1", "log.json"),
        ('sip.transports=["UDP"]', "sip.transports[0]: 'UDP' is none of udp, tcp, tls"),
        ("routes.a.answer=later", "routes.a.answer: 'later' is none of now, ring, manual"),
        ("routes.a.relay={url='wss://a/b', welcom_greeting='x'}", "did you mean routes.a.relay.welcome_greeting?"),
        ("calls.barge_in_speech={min_speech=5}", "did you mean calls.barge_in_speech.min_speech_ms?"),
    ],
)
def test_wrong_values_say_what_is_right(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(overrides=[override])
    assert said in caught.value.detail


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            'http.tokens=[{token="secret-one", scope=["read"]}]',
            "http.tokens[0].scope: did you mean http.tokens[0].scopes?",
        ),
        ('http.tokens=["secret-one", {token="secret-two", tennant="a"}]', "did you mean http.tokens[1].tenant?"),
        ('http.tokens=[{token="secret-one", tenant={name="a"}}]', "http.tokens[0].tenant"),
        ('http.tokens=[{token="secret-one", scopes=["reed"]}]', "http.tokens[0].scopes[0]: 'reed' is none of read,"),
        ('auth.users=[{username="a", password="secret-one", relm="x"}]', "unknown key auth.users[0].relm"),
        ('auth.users=[{username="a", password="secret-one", realm="x"}]', "did you mean auth.realm?"),
        ('http.tokens=["secret-one", {token="secret-one", scopes=["read"]}]', "http.tokens[0] and http.tokens[1]"),
        (
            'auth.users=[{username="a", password="secret-one"}, {username="a", password="secret-two"}]',
            "names a user twice",
        ),
        ('http.tokens=[{token="secret-one"', "http.tokens: not valid TOML"),
        ('http.tokens={token="secret-one"}}', "http.tokens: not valid TOML"),
        ('http.tokens=token="secret-one", scopes=["read"]}]', "http.tokens: not valid TOML"),
        ('http.tokens="secret-one', "http.tokens: not valid TOML"),
        ("sip.transports=['udp'", "sip.transports: not valid TOML"),
        ("http.tokens=" + "[" * 5000, "http.tokens: not valid TOML"),
    ],
)
def test_lists_are_checked_as_sections_are_and_secrets_are_not_shown(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(overrides=[override])
    assert said in caught.value.detail
    assert "secret" not in caught.value.detail


def test_a_broken_list_of_the_environment_is_no_token() -> None:
    with pytest.raises(ConfigError, match="environment CC_TTS_HTTP__TOKENS: not valid TOML") as caught:
        config.load(environ={"CC_TTS_HTTP__TOKENS": '[{token="secret-one'})
    assert "secret" not in caught.value.detail


def test_a_number_of_thousands_of_digits_is_text_or_refused(tmp_path: Path) -> None:
    digits = "1" * 5000
    assert config.load(overrides=[f"registration.password={digits}"]).registration.password == digits
    with pytest.raises(ConfigError, match=r"sip\.port: "):
        config.load(overrides=[f"sip.port={digits}"])
    (tmp_path / "a.toml").write_text(f"[sip]\nport = {digits}\n")
    with pytest.raises(ConfigError, match=r"a\.toml: "):
        config.load(tmp_path / "a.toml")


def test_tokens_as_plain_text_are_apart_by_commas() -> None:
    loaded = config.load(environ={"CC_TTS_HTTP__TOKENS": "secret-one, secret-two"})
    assert [token.token for token in loaded.http.tokens] == ["secret-one", "secret-two"]


def test_a_file_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[http]\ntokens = " + "[" * 5000 + "]" * 5000 + "\n")
    with pytest.raises(ConfigError, match="nested too deep"):
        config.load(file)


@pytest.mark.parametrize("key", ["cluster.pool_url", "tts.workers"])
def test_the_password_of_an_address_is_not_shown(key: str) -> None:
    address = "http://user:secret@10.0.0.9:8090"
    with pytest.raises(ConfigError) as caught:
        config.load(overrides=[f"{key}={address}" if key == "cluster.pool_url" else f'{key}=["{address}"]'])
    assert "is not the address of a" in caught.value.detail
    assert "secret" not in caught.value.detail


def test_a_clients_audio_can_reach_its_threshold() -> None:
    with pytest.raises(ConfigError, match=r"media\.start_threshold_ms is above playout\.window_ms"):
        config.load(overrides=["media.start_threshold_ms=1000", "playout.window_ms=500"])


def test_there_are_no_more_trunks_than_pjsua_has_accounts() -> None:
    eight = [f"trunks.t{number}.domain=pbx.example.com" for number in range(8)]
    assert len(config.load(overrides=eight[1:]).trunks) == 7
    with pytest.raises(ConfigError, match="there are 8 trunks; 7 are possible"):
        config.load(overrides=eight)


def test_tcp_and_tls_need_a_port_each() -> None:
    wanted = ["sip.transports=['tcp', 'tls']", "tls.certificate_file=a", "tls.private_key_file=b"]
    assert config.load(overrides=wanted).sip.tls_port == 5061
    with pytest.raises(ConfigError, match="need a port each"):
        config.load(overrides=[*wanted, "sip.tls_port=5060"])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["sip.transports=['udp', 'tcp']"], "spread over UDP only"),
        (["sip.port=5072"], "5070 to 5072"),
        (["sip.port=0"], "5070 to 5072"),
        (["ua.first_port=65534"], "65534 to 65536"),
        (["ua.first_port=0"], "0 to 2"),
        (["sip.max_calls=2"], "fewer than the 3"),
        (["rtp.port_min=20000", "rtp.port_max=20003"], "fewer calls than the 3"),
        (["ua.processes=17"], "at most 16"),
    ],
)
def test_several_user_agents_need_ports_and_calls_each(overrides: list[str], said: str) -> None:
    wanted = ["ua.processes=3", "sip.transports=['udp']"]
    assert list(config.load(overrides=wanted).ua.own_ports) == [5070, 5071, 5072]
    with pytest.raises(ConfigError) as caught:
        config.load(overrides=[*wanted, *overrides])
    assert said in caught.value.detail


def test_the_password_of_the_key_is_text_and_not_shown() -> None:
    loaded = config.load(environ={"CC_TTS_TLS__PRIVATE_KEY_PASSWORD": "0042"})
    assert loaded.tls.private_key_password == "0042"
    assert "0042" not in repr(loaded)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        config.load(tmp_path / "none.toml")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("[sip\nport = 1")
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        config.load(file)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[sip]\nport = 5066 # \xe9\n", r"a\.toml: this is not UTF-8 \(byte 20\); save it as UTF-8"),
        ("[sip]\n".encode("utf-16"), r"this is not UTF-8 \(byte 0\)"),
        (None, r"a\.toml: Is a directory$"),
    ],
)
def test_a_file_that_is_no_text_is_named_once(tmp_path: Path, data: bytes | None, said: str) -> None:
    file = tmp_path / "a.toml"
    file.mkdir() if data is None else file.write_bytes(data)
    with pytest.raises(ConfigError, match=said):
        config.load(file)


def test_a_file_as_editors_of_windows_write_it(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_bytes(b"\xef\xbb\xbf[sip]\r\nport = 5066\r\n")
    assert config.load(file).sip.port == 5066


def test_a_name_of_the_environment_with_one_underscore_is_told_of() -> None:
    warnings: list[str] = []
    names = {
        "CC_TTS_HTTP_TOKENS": "secret-one",
        "CC_TTS_SIP_PORT": "udp://10.0.0.7:5060",  # as Kubernetes names a service cc-tts-sip
        "CC_TTS_PJSUA2": "server",
        "CC_TTS_SERVICE_HOST": "10.0.0.7",
    }
    assert config.load(environ=names, warn=warnings.append) == Config()
    assert warnings == [
        "environment CC_TTS_HTTP_TOKENS has no effect: did you mean CC_TTS_HTTP__TOKENS?",
        "environment CC_TTS_SIP_PORT has no effect: did you mean CC_TTS_SIP__PORT?",
    ]


def test_a_value_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ConfigError, match="environment CC_TTS_TTS__VOICE: this is not UTF-8"):
        config.load(environ={"CC_TTS_TTS__VOICE": "voix-\udce9"})  # as os.environ has it (PEP 383)


def test_a_former_name_is_taken_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "cc_tts.toml"
    path.write_text("[rtp]\nquarantine_s = 2\n")
    warnings: list[str] = []
    loaded = config.load(path, warn=warnings.append)
    assert loaded.rtp.port_cooldown_s == 2
    (warning,) = warnings
    assert "rtp.port_cooldown_s" in warning
    assert config.load(environ={"CC_TTS_RTP__QUARANTINE_S": "3"}).rtp.port_cooldown_s == 3
    with pytest.raises(ConfigError, match="remove one of the two"):
        config.load(path, overrides=["rtp.port_cooldown_s=1"])
