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


def test_there_are_no_more_trunks_than_pjsua_has_accounts() -> None:
    eight = [f"trunks.t{number}.domain=pbx.example.com" for number in range(8)]
    assert len(config.load(overrides=eight[1:]).trunks) == 7
    with pytest.raises(ConfigError, match="there are 8 trunks; 7 are possible"):
        config.load(overrides=eight)


def test_passwords_are_text_and_not_shown() -> None:
    loaded = config.load(environ={"CC_TTS_TLS__PRIVATE_KEY_PASSWORD": "0042"})
    assert loaded.tls.private_key_password == "0042"
    assert "0042" not in repr(loaded)
    trunk = {"domain": "a.example", "password": "hunter-two"}
    assert "hunter-two" not in repr(config.from_tree({"trunks": {"a": trunk}}))


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


def test_without_mrcp_its_ports_are_nobodys() -> None:
    assert not config.from_tree({"mrcp": {"sip_port": 5060}}).mrcp.enabled
