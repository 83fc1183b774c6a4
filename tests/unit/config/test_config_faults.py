"""Configurations that are refused, and the words that say why."""

from typing import Any

import pytest

from cc_tts.config import load as config
from cc_tts.errors import ConfigError

pytestmark = pytest.mark.unit

WORKERS = ["grpc://10.0.0.1:1"]
A, B = "https://line-1.example.com", "http://10.0.0.12:8080"
SEVERAL = ("ua.processes=3", "sip.transports=['udp']")
SHARED: list[tuple[list[str], list[str]]] = [([], []), (["acme"], ["acme"]), (["*"], ["acme"])]


def _with_prefixes(one: list[str], other: list[str]) -> dict[str, Any]:
    """Two trunks of these tenants with the same prefix."""
    return {
        "tenants": {"acme": {}, "x": {}},
        "trunks": {
            "a": {"domain": "a.example", "prefixes": ["+49", "+1"], "tenants": one},
            "b": {"domain": "b.example", "prefixes": ["+49"], "tenants": other},
        },
    }


@pytest.mark.parametrize(("one", "other"), [([], ["acme"]), (["x"], ["acme"])])
def test_a_prefix_belongs_to_one_trunk_of_each_tenant(one: list[str], other: list[str]) -> None:
    assert len(config.from_tree(_with_prefixes(one, other)).trunks) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["sip.prot=1"], "did you mean sip.port?"),
        (["http.max_calls=4"], "did you mean sip.max_calls?"),
        (["rout.x=1"], "did you mean routes?"),
        (["routes.a.greting=hi"], "did you mean routes.a.greeting?"),
        (["sip.port=x"], "sip.port: a whole number is needed, not text"),
        (["routes.a=5"], "routes.a: a table is needed, not a whole number"),
        (["sip.port=99999"], "sip.port: a whole number of at most 65535 is needed"),
        (["sip.port"], "section.key=value"),
        (["port=3"], "name a section and a key"),
        (["sip.host=example.com"], "is not an IPv4 address"),
        (["sip.host=::1"], "over IPv4 only"),
        (["sip.public_address=2001:db8::1"], "over IPv4 only"),
        (["sip.trusted_peers=['10.0.0.1/8']"], "has host bits set"),
        (["record.upload_networks=['internal']"], "record.upload_networks"),
        (["record.upload_hosts=['https://a.example.com']"], "record.upload_hosts: 'https://a.example.com' is no host"),
        (["sip.transports=[]"], "sip.transports is empty"),
        (["sip.transports=['sctp']"], "sip.transports[0]"),
        (["sip.transports=['tls']"], "set tls.certificate_file and tls.private_key_file"),
        (["tls.certificate_file=a.pem"], "set together"),
        (["tls.verify_client=true"], "name the CA whose clients"),
        (["tls.certificat_file=a.pem"], "did you mean tls.certificate_file?"),
        (["rtp.srtp=maybe"], "rtp.srtp"),
        (["rtp.port_max=1030"], "above rtp.port_min"),
        (["rtp.codecs=[]"], "rtp.codecs is empty"),
        (['rtp.codecs=["L16"]'], 'rtp.codecs has "L16" alone'),
        (["http.host=0.0.0.0"], "no token is configured"),
        (["http.tokens=short"], "text of at least 8 characters is needed"),
        (["playout.start_threshold_max_ms=30"], "start_threshold"),
        (["playout.window_ms=299"], "raise playout.window_ms"),
        (["registration.registrar=pbx"], "username is empty"),
        (["routes.a.unanswered_greeting=Hi"], 'is for answer = "manual"'),
        (
            ['routes."7.1".then=hangs'],
            "routes.7.1.then: 'hangs' is not one of stay, hangup, transfer, did you mean hangup?",
        ),
        (["routes.a.instructions=<|endofprompt|>"], "text without NUL and without <|"),
        (["routes.a.media_url=http://app"], "is not a URL of a WebSocket"),
        (["routes.a.media_url=ws://"], "is not a URL of a WebSocket"),
        (["routes.a.media_url='ws://app:99999/'"], "is not a URL of a WebSocket"),
        (["routes.a.media_url='ws://app/#x'"], "is not a URL of a WebSocket"),
        (["routes.a.media_url='ws://a pp/'"], "is not a URL of a WebSocket"),
        (["routes.a={media_url='ws://app', answer='manual'}"], 'leave answer = "now"'),
        (["routes.a={media_url='ws://app', then='hangup'}"], 'leave then = "stay"'),
        (["routes.a={media_url='ws://app', media_dialect='vonage'}"], "media_dialect"),
        (["routes.a.relay={url='http://app'}"], "routes.a.relay.url is not a URL of a WebSocket"),
        (["routes.a.relay={url='ws://user:pw@app'}"], "routes.a.relay.url is not a URL of a WebSocket"),
        (["routes.a.relay={welcome_greeting='Hello'}"], "url"),
        (["routes.a.relay={url='ws://app', secret='s'}"], "routes.a.relay.secret: a secret is whsec_"),
        (["routes.a.relay={url='ws://app', interruptible='maybe'}"], "interruptible"),
        (["routes.a.relay={url='ws://app', welcomeGreeting='Hello'}"], "welcomeGreeting"),
        (["routes.a={relay={url='ws://app'}, answer='manual'}"], 'leave answer = "now"'),
        (["routes.a={relay={url='ws://app'}, then='hangup'}"], "routes.a.relay.then"),
        (["routes.a={relay={url='ws://app'}, media_url='ws://app'}"], "leave one of them out"),
        (["routes.a={relay={url='ws://app'}, unanswered_greeting='Away'}"], "routes.a.relay.fallback"),
        (["relay.allowed_hosts=['a b']"], "relay.allowed_hosts"),
        (["routes.a.refer=ask"], "transfer.allowed names nobody"),
        (["routes.a.then=transfer"], "name the SIP URI in routes.a.transfer_to"),
        (["routes.a.transfer_to='sip:1@pbx'"], 'goes with then = "transfer"'),
        (["routes.a={then='transfer', transfer_to='1001'}"], "write a SIP URI"),
        (["routes.a={then='transfer', transfer_to='sip:1@pbx'}"], "no pattern of transfer.allowed takes"),
        (["quality.collector=collector.example.com"], "quality.collector: write a SIP URI"),
        (
            ["quality.collector=sips:vq@collector.example.com"],
            "quality.collector is a sips: URI, but sip.transports has no",
        ),
        (["quality.interval_s=4"], "quality.interval_s is 0, or 5 to 3600"),
        (["quality.interval_s=30"], "quality.interval_s needs quality.collector"),
        (["log.json.deep=1"], "log.json"),
        (['sip.transports=["UDP"]'], "sip.transports[0]: 'UDP' is not one of udp, tcp, tls"),
        (["routes.a.answer=later"], "routes.a.answer: 'later' is not one of now, ring, manual"),
        (["routes.a.relay={url='wss://a/b', welcom_greeting='x'}"], "did you mean routes.a.relay.welcome_greeting?"),
        (["calls.barge_in_speech={min_speech=5}"], "did you mean calls.barge_in_speech.min_speech_ms?"),
        (
            ['http.tokens=[{token="secret-one", scope=["read"]}]'],
            "http.tokens[0].scope: did you mean http.tokens[0].scopes?",
        ),
        (['http.tokens=["secret-one", {token="secret-two", tennant="a"}]'], "did you mean http.tokens[1].tenant?"),
        (['http.tokens=[{token="secret-one", tenant={name="a"}}]'], "http.tokens[0].tenant"),
        (
            ['http.tokens=[{token="secret-one", scopes=["reed"]}]'],
            "http.tokens[0].scopes[0]: 'reed' is not one of read,",
        ),
        (['auth.users=[{username="a", password="secret-one", relm="x"}]'], "unknown key auth.users[0].relm"),
        (['auth.users=[{username="a", password="secret-one", realm="x"}]'], "did you mean auth.realm?"),
        (['http.tokens=["secret-one", {token="secret-one", scopes=["read"]}]'], "http.tokens[0] and http.tokens[1]"),
        (
            ['auth.users=[{username="a", password="secret-one"}, {username="a", password="secret-two"}]'],
            "names a user twice",
        ),
        (['http.tokens=[{token="secret-one"'], "http.tokens: not valid TOML"),
        (['http.tokens={token="secret-one"}}'], "http.tokens: not valid TOML"),
        (['http.tokens=token="secret-one", scopes=["read"]}]'], "http.tokens: not valid TOML"),
        (['http.tokens="secret-one'], "http.tokens: not valid TOML"),
        (["sip.transports=['udp'"], "sip.transports: not valid TOML"),
        (["http.tokens=" + "[" * 5000], "http.tokens: not valid TOML"),
        (
            ["media.start_threshold_ms=1000", "playout.window_ms=500"],
            "media.start_threshold_ms is above playout.window_ms",
        ),
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
        (
            ["tts.model_dir=/m", "tts.models.a.model_dir=/n"],
            "tts.model_dir is called tts.models.a.model_dir now: remove",
        ),
        (["tts.dtype=auto", "tts.models={a={}, b={}}"], "tts.dtype is a key of a model now: write it below the one"),
        (["tts.dtype=auto", "tts.models=3"], "tts.dtype is a key of a model now"),
        (["tts.dtype=auto", "tts.models={a=3}"], "tts.dtype is a key of a model now"),
        (["tts.models={a=3}"], "tts.models"),
        (
            ["tenants.acme.max_calls=2", 'http.tokens=[{token="secret-one", tenant="acne"}]'],
            "http.tokens names the tenant 'acne', did you mean acme",
        ),
        (["tenants.acme.max_calls=2", "routes.a.tenant=other"], "routes.a.tenant names the tenant 'other'"),
        (["tenants.acme.max_calls=2", "tenants.acme.max_cals=3"], "did you mean tenants.acme.max_calls"),
        (["tenants.acme.max_calls=2", "tenants.acme.weight=0"], "weight: a number above 0 is needed"),
        (["tenants.acme.max_calls=2", 'tenants."a/b".max_calls=3'], "'a/b' is no name of a tenant"),
        ([*SEVERAL, "sip.transports=['udp', 'tcp']"], "spread over UDP only"),
        ([*SEVERAL, "sip.port=5072"], "5070 to 5072"),
        ([*SEVERAL, "sip.port=0"], "5070 to 5072"),
        ([*SEVERAL, "ua.first_port=65534"], "65534 to 65536"),
        ([*SEVERAL, "ua.first_port=0"], "0 to 2"),
        ([*SEVERAL, "sip.max_calls=2"], "fewer than the 3"),
        ([*SEVERAL, "rtp.port_min=20000", "rtp.port_max=20003"], "fewer calls than the 3"),
        ([*SEVERAL, "ua.processes=17"], "at most 16"),
        ({"asterisk": {"host": "0.0.0.0", "websocket_port": 9091}}, "asterisk.password is empty"),
        ({"asterisk": {"host": "pbx.example.com"}}, "not an IP address"),
        ({"asterisk": {"websocket_port": 9091, "audiosocket_port": 9091}}, "are both 9091"),
        ({"asterisk": {"username": "asterisk"}}, "goes with asterisk.password"),
        ({"asterisk": {"allowed_peers": ["10.0.0.300"]}}, "asterisk.allowed_peers"),
        ({"mrcp": {"enabled": True, "transports": []}}, "mrcp.transports is empty"),
        ({"mrcp": {"enabled": True, "sip_port": 5060}}, "mrcp.sip_port and sip.port are both 5060"),
        ({"mrcp": {"enabled": True, "control_port": 8060}}, "mrcp.control_port and mrcp.sip_port are both 8060"),
        ({"mrcp": {"enabled": True, "rtp_port_min": 16_500}}, "must be other ports than rtp.port_min to rtp.port_max"),
        ({"mrcp": {"enabled": True, "rtp_port_min": 20_001, "rtp_port_max": 20_001}}, "a session needs an even port"),
        ({"mrcp": {"enabled": True, "transports": ["tls"]}}, "set tls.certificate_file"),
        ({"mrcp": {"enabled": True, "allowed_peers": ["10.0.0.1/8"]}}, "mrcp.allowed_peers"),
        ({"mrcp": {"enabled": True, "tenant": "nobody"}}, "mrcp.tenant names the tenant 'nobody'"),
        ({"mrcp": {"enabled": True, "max_sessions": 0}}, "mrcp.max_sessions"),
        (
            {"server": {"node": "line-1"}, "cluster": {"base_url": "line-1:8080"}},
            "cluster.base_url: 'line-1:8080' is not the address of an API; write http",
        ),
        (
            {"server": {"node": "line-1"}, "cluster": {"nodes": {"line-2": "line-2:8080"}}},
            "cluster.nodes.line-2: 'line-2:8080' is not the address",
        ),
        ({"server": {"node": "line-1"}, "cluster": {"nodes": {"line 2": B}}}, "'line 2' is no name of a node"),
        ({"server": {"node": "line-1"}, "cluster": {"nodes": {"": B}}}, "'' is no name of a node"),
        ({"server": {"node": "line-1"}, "cluster": {"nodes": {"x" * 65: B}}}, "is no name of a node"),
        (
            {"server": {"node": "line-1"}, "cluster": {"nodes": {"line-1": B}, "base_url": A}},
            "line-1 is this server, with another address than cluster.base_url",
        ),
        (
            {"server": {"node": "line-1"}, "cluster": {"nodes": {"line-2": f"{A}/"}, "base_url": A}},
            "line-2 and cluster.base_url have the same address",
        ),
        (
            {"server": {"node": "line-1"}, "cluster": {"nodes": {"line-2": A, "line-3": A}}},
            "line-3 and cluster.nodes.line-2 have the same address",
        ),
        (
            {
                "server": {"node": "line-1"},
                "cluster": {"nodes": {f"line-{number}": f"{A}/{number}" for number in range(1001)}},
            },
            "1000 are possible",
        ),
        ({"server": {"node": "line-1"}, "cluster": {"nodes": {"line-2": 7}}}, "cluster.nodes"),
        ({"tts": {"workers": ["grpc://8.8.8.8:7400"]}}, "without TLS only loopback and private addresses"),
        ({"tts": {"workers": ["grpcs://gpu-1:7400"]}}, "remote.ca_file, which is empty"),
        ({"tts": {"workers": ["dns:10.0.0.1:7400"]}}, "dns: takes a name"),
        ({"tts": {"workers": ["grpc://10.0.0.1:1"] * 2}}, "names a worker twice"),
        ({"tts": {"devices": []}}, "tts.devices is empty"),
        ({"tts": {"generations": {"1": 1.0}}}, "tts.generations is set, but tts.workers names no worker"),
        ({"tts": {"workers": WORKERS, "generations": {"a b": 1.0}}}, "'a b' is no name of a generation"),
        ({"tts": {"workers": WORKERS, "generations": {"": 1.0}}}, "'' is no name of a generation"),
        ({"tts": {"workers": WORKERS, "generations": {"1" * 33: 1.0}}}, "is no name of a generation"),
        (
            {"tts": {"workers": WORKERS, "generations": {"1": 1.1}}},
            "tts.generations.1: a number of at most 1 is needed",
        ),
        ({"tts": {"workers": WORKERS, "generations": {"1": -0.1}}}, "tts.generations"),
        ({"tts": {"workers": WORKERS, "generations": {"1": 0.6, "2": 0.6}}}, "the shares add up to 1.2"),
        ({"tts": {"workers": WORKERS, "generations": {str(each): 0.1 for each in range(9)}}}, "names 9 generations"),
        ({"remote": {"certificate_file": "a.pem"}}, "are set together or not at all"),
        ({"remote": {"token": "with a space"}}, "remote.token"),
        ({"remote": {"token": "short"}}, "remote.token"),
        ({"tts": {"fallback_engine": "onnx"}}, "tts.fallback_engine"),
        ({"tts": {"workers": ["pool:8.8.8.8:8090"]}}, "without TLS only loopback and private addresses"),
        ({"tts": {"workers": ["pool:a:1", "pool:b:1"]}}, "names 2 pools"),
        ({"cluster": {"pool_url": "10.0.0.9:8090"}}, "is not the address of a pool"),
        ({"cluster": {"pool_url": "http://10.0.0.9:8090/v1"}}, "is not the address of a pool"),
        ({"cluster": {"pool_url": "http://[::1"}}, "is not the address of a pool"),
        ({"cluster": {"pool_url": "http://8.8.8.8:8090"}}, "without TLS only loopback and private addresses"),
        ({"cluster": {"pool_url": "https://pool:8090"}}, "remote.ca_file, which is empty"),
        ({"cluster": {"pool_url": "http://10.0.0.9:1"}, "tts": {"workers": ["pool:10.0.0.9:2"]}}, "they are two pools"),
        *(
            ({"trunks": {"a": keys}}, fault)
            for keys, fault in (
                ({}, "set registrar, or domain"),
                ({"registrar": "sip:a.example"}, "username is empty"),
                ({"domain": "a.example", "required": True}, "with a registrar"),
                ({"domain": "a.example", "transport": "tls"}, "sip.transports"),
                ({"domain": "a.example", "failover_to": ["b"]}, "no other trunk"),
                ({"domain": "a.example", "failover_codes": [486]}, "486"),
                ({"domain": "a.example", "tenants": ["acme"]}, "names the tenant"),
                ({"registrar": "sips:a.example", "username": "u"}, '"tls"'),
            )
        ),
        (
            {"trunks": {"alpha": {"domain": "a"}}, "routes": {"trunk:alfa": {}}},
            "'alfa', which is not there, did you mean alpha",
        ),
        (
            {"rtp": {"codecs": ["PCMA"]}, "trunks": {"a": {"domain": "a.example", "codecs": ["PCMA", "G722"]}}},
            'trunks.a.codecs has "G722", which rtp.codecs does not have',
        ),
        (
            {"routes": {"a": {"record": "dual"}}},
            "routes.a.record: nothing can be recorded as long as record.dir is empty",
        ),
        (
            {"record": {"dir": "/r"}, "routes": {"a": {"record": {"channels": "dual", "tracks": "agent"}}}},
            "routes.a.record.tracks",
        ),
        ({"routes": {"a": {"record": {"chanels": "dual"}}}}, "did you mean routes.a.record.channels?"),
        ({"routes": {"a": {"record": "stereo"}}}, "routes.a.record"),
        (
            ["sip.transports=['tcp', 'tls']", "tls.certificate_file=a", "tls.private_key_file=b", "sip.tls_port=5060"],
            "need a port each",
        ),
        ({"cluster": {"base_url": A}}, "cluster.base_url is set but server.node is empty"),
        ({"cluster": {"nodes": {"line-2": B}}}, "cluster.nodes is set but server.node is empty"),
        (
            {"server": {"node": "a"}, "cluster": {"base_url": "https://user:secret-word@line-1"}},
            "cluster.base_url: what it holds is not the address",
        ),
        (["cluster.pool_url=http://user:secret-word@10.0.0.9:8090"], "what it holds is not the address of a pool"),
        (['tts.workers=["http://user:secret-word@10.0.0.9:8090"]'], "what it holds is not the address of a worker"),
        *(
            (_with_prefixes(one, other), 'trunks.a.prefixes and trunks.b.prefixes both have "+49"')
            for one, other in SHARED
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_secrets_are_not_shown(given: dict[str, Any] | list[str], said: str) -> None:
    """``given`` is a tree of values, or what ``--set`` takes."""
    with pytest.raises(ConfigError) as caught:
        config.from_tree(given) if isinstance(given, dict) else config.load(overrides=given)
    assert said in caught.value.detail
    assert "secret-" not in caught.value.detail
