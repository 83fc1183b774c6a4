"""Reading the configuration: defaults, then the TOML file, the environment (``CC_TTS_SECTION__KEY``) and
``--set section.key=value``, later ones first; and what a running server can take over of a new one.
"""

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from cc_tts.config.check import check_sense
from cc_tts.config.schema import RELOADABLE, Config, RouteConfig, TenantConfig
from cc_tts.config.sections.models import FORMER_KEYS, MAIN
from cc_tts.config.sections.trunks import TrunkConfig
from cc_tts.config.wording import alternatives, fields, in_words, none_of, types_at
from cc_tts.errors import ConfigError, nearest

ENV_PREFIX = "CC_TTS_"


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    warn: Callable[[str], object] = lambda _sentence: None,
) -> Config:
    """Build the configuration from a TOML file, names ``CC_TTS_SECTION__KEY`` and texts ``section.key=value``; raises
    ``ConfigError`` for an unknown key (the nearest one is named), a wrong value, and values that contradict each other.
    ``warn`` gets a sentence for each key that goes by its former name, and for each name of the environment that would be
    a key with two underscores.
    """
    tree = {} if path is None else _read_toml(path)
    if isinstance(tree.get("webhooks"), list):  # [[webhooks]]
        tree["webhooks"] = {"endpoints": tree["webhooks"]}
    for name, value in sorted((environ or {}).items()):
        if name.startswith(ENV_PREFIX) and "__" in name:
            _set(tree, name.removeprefix(ENV_PREFIX).lower().split("__"), value, origin=f"environment {name}")
        elif name.startswith(ENV_PREFIX) and (meant := _with_two_underscores(name)):
            warn(f"environment {name} has no effect: did you mean {meant}?")
    for override in overrides:
        key, sign, value = override.partition("=")
        if not sign:
            raise ConfigError(f"--set {override}: write it as section.key=value")
        parts = re.findall(r'"([^"]*)"|([^.]+)', key.strip())  # split at the dots outside quotes: routes."7.1".greeting
        _set(tree, [quoted or plain for quoted, plain in parts], value.strip(), origin=f"--set {key}")
    _rename(tree, warn)
    return from_tree(tree)


FORMER_NAMES: Final = {
    ("rtp", "quarantine_s"): "rtp.port_cooldown_s",
    **{("tts", key): f"tts.models.NAME.{key}" for key in FORMER_KEYS},
}
"""Former sections and keys with their present names; ``NAME`` is the model's. Each is accepted for one version."""

_TOML_BEGINNINGS: Final = ("[", "{", '"', "'")
_STEP: Final = re.compile(r"[^.\[\]]+|\.\.\.")
_NO_PLAIN_TOKEN: Final = re.compile(r"""[\s\[\]{}"']""")
MAX_SHOWN_CHARS: Final = 80
"""The most characters of an unknown key in an error, since anything may be there by mistake (unmeasured)."""

_BY_NAME: Final[Mapping[str, type]] = {"tenants": TenantConfig, "routes": RouteConfig, "trunks": TrunkConfig}
"""Sections that contain a section for each name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The effect of a new configuration on a running server. Keys are named, but no values, since some are secrets."""

    config: Config
    """The running configuration with the values that can change."""
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


def reload(running: Config, wanted: Config) -> Reload:
    """Compare the running configuration with a new one; raises ``ConfigError`` if what can be taken over makes no sense
    together with what cannot.
    """
    changed: list[str] = []
    needs_restart: list[str] = []
    sections: dict[str, Any] = {}
    for section, key in _differing_keys(running, wanted):
        name = f"{section}.{key}"
        if section in RELOADABLE or name in RELOADABLE:
            changed.append(name)
            value = getattr(getattr(wanted, section), key)
            sections[section] = dataclasses.replace(sections.get(section, getattr(running, section)), **{key: value})
        else:
            needs_restart.append(name)
    for section in _BY_NAME:
        old, new = getattr(running, section), getattr(wanted, section)
        differing = [f"{section}.{name}" for name in sorted(old | new) if old.get(name) != new.get(name)]
        if section in RELOADABLE:
            changed += differing
            sections[section] = new
        else:
            needs_restart += differing
    config = dataclasses.replace(running, **sections)
    try:
        check_sense(config)
    except ConfigError as error:
        raise ConfigError(f"{error.detail} (as long as {', '.join(needs_restart)} waits for a restart)") from None
    return Reload(config=config, changed=tuple(changed), needs_restart=tuple(needs_restart))


def named_paths(value: object, key: str = "") -> Iterator[tuple[str, Path]]:
    """Yield every key of a configuration, or below ``key``, that names a file or folder, with its absolute path."""
    if dataclasses.is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        for each, below in value.items():
            yield from named_paths(below, f"{key}.{each}" if key else each)
    elif value and isinstance(value, str) and re.search(r"(^|[._])(dir|file)$", key):
        yield key, Path(value).expanduser().absolute()


def _differing_keys(running: Config, wanted: Config) -> Iterator[tuple[str, str]]:
    """Yield the keys that differ, outside the sections with names."""
    for section in dataclasses.fields(Config):
        if section.name not in _BY_NAME:
            old, new = getattr(running, section.name), getattr(wanted, section.name)
            for key in dataclasses.fields(old):
                if getattr(old, key.name) != getattr(new, key.name):
                    yield section.name, key.name


def from_tree(tree: Mapping[str, Any]) -> Config:
    """Check a tree of plain values and convert it to a :class:`Config`."""
    _check_keys(tree, Config, "")
    tree = _expand_tokens(tree)
    try:
        config = msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_readable(str(error), tree)) from error
    check_sense(config)
    return config


def _rename(tree: dict[str, Any], warn: Callable[[str], object]) -> None:
    models = _models_of_former_keys(tree)
    if models == {} and not tree["tts"].get("model_dir"):  # a file with every key and no model
        vain = [f"tts.{key}" for key in FORMER_KEYS if tree["tts"].pop(key, None) is not None]
        warn(
            f"[tts] has keys of a model, which have no effect without one: remove {', '.join(vain)}; the next version "
            "refuses them"
        )
    model = next(iter(models or {}), MAIN)
    for (section, former), where in FORMER_NAMES.items():
        keys = tree.get(section)
        if not isinstance(keys, dict) or former not in keys:
            continue
        name = where.replace("NAME", model)
        *path, key = name.split(".")
        table = tree
        for part in path:
            table = table.setdefault(part, {})
        if key in table:
            raise ConfigError(f"{section}.{former} is called {name} now: remove one of the two")
        table[key] = keys.pop(former)
        warn(f"{section}.{former} is called {name} now; the next version refuses the former name")


def _models_of_former_keys(tree: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the models with those keys that used to be in ``[tts]``. Raises ``ConfigError`` if it is ambiguous to which
    model they belong.
    """
    tts = tree.get("tts")
    former = [key for key in FORMER_KEYS if isinstance(tts, dict) and key in tts]
    if not isinstance(tts, dict) or not former:
        return None
    models = tts.get("models", {})
    if not isinstance(models, dict) or len(models) > 1 or not all(isinstance(each, dict) for each in models.values()):
        raise ConfigError(f"tts.{former[0]} is a key of a model now: write it below the one that it is for")
    return dict(models)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))  # some editors begin a file with U+FEFF
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `cc-tts config init` writes one to start from") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: this is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: its lists or tables are nested too deep") from None


def _with_two_underscores(name: str) -> str:
    """``CC_TTS_SIP__PORT`` for ``CC_TTS_SIP_PORT``; empty if there is no such key. It is not refused: Kubernetes gives
    every pod such names for the services that it finds.
    """
    section, _, key = name.removeprefix(ENV_PREFIX).lower().partition("_")
    return f"{ENV_PREFIX}{section}__{key}".upper() if key in fields(fields(Config).get(section)) else ""


def _set(tree: dict[str, Any], keys: list[str], text: str, *, origin: str) -> None:
    if not text.isprintable() and any("\ud800" <= each <= "\udfff" for each in text):
        raise ConfigError(f"{origin}: this is not UTF-8")
    if len(keys) < 2:  # noqa: PLR2004 - a section and a key
        raise ConfigError(f"{origin}: name a section and a key, as in sip.port")
    node = tree
    for key in keys[:-1]:
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{origin}: {key} is a value, not a section")
        node = child
    node[keys[-1]] = _parse_value(keys, text, origin)


def _parse_value(keys: list[str], text: str, origin: str) -> Any:
    """Read a value as TOML would; anything that is not TOML, and anything meant for a text field, is text. What begins like
    a list, a table or a quoted text is refused if it is not one: as text, a list of tokens would be one unknown token.
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, KeyError, RecursionError):  # ValueError: also a number of thousands of digits
        if not _is_text(keys) and text[:1] in _TOML_BEGINNINGS:
            raise ConfigError(f"{origin}: not valid TOML; check its quotes, brackets and braces") from None
        return text
    return text if _is_text(keys) and not isinstance(value, str) else value


def _is_text(keys: list[str]) -> bool:
    return types_at(Config, keys) == [str]


def _check_keys(tree: object, kind: Any, where: str) -> None:
    """Refuse what ``kind`` has no field for, at any depth; a value of another shape is left to msgspec."""
    if isinstance(tree, list):
        kinds = [each for each in get_args(kind) if each is not ...]
        for number, item in enumerate(tree if kinds else ()):
            _check_keys(item, kinds[min(number, len(kinds) - 1)], f"{where.removesuffix('.')}[{number}].")
    if not isinstance(tree, Mapping):
        return
    if get_origin(kind) is dict:  # tenants, routes and trunks
        known = dict.fromkeys(tree, get_args(kind)[1])
    elif not (known := next(filter(None, map(fields, alternatives(kind))), {})):  # a table or a word
        return
    for key, value in tree.items():
        if key not in known:
            raise ConfigError(_unknown_key(where, key, known))
        _check_keys(value, known[key], f"{where}{key}.")


def _unknown_key(where: str, key: str, known: Iterable[str]) -> str:
    key = key[:MAX_SHOWN_CHARS]
    for section, cls in get_type_hints(Config).items():
        if dataclasses.is_dataclass(cls) and key in get_type_hints(cls):
            return f"unknown key {where}{key}: did you mean {section}.{key}?"
    if near := nearest(key, known):
        return f"unknown key {where}{key}: did you mean {where}{near}?"
    return f"unknown key {where}{key}; known here: {', '.join(sorted(known))}"


def _expand_tokens(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """A token that is given as plain text has every scope."""
    http = tree.get("http")
    tokens = http.get("tokens") if isinstance(http, Mapping) else None
    if isinstance(tokens, str):
        tokens = [part.strip() for part in tokens.split(",") if part.strip()]
        if any(_NO_PLAIN_TOKEN.search(each) for each in tokens):
            raise ConfigError("http.tokens: not valid TOML, and no plain tokens; check its quotes, brackets and braces")
    if not isinstance(tokens, list):
        return tree
    tokens = [{"token": each} if isinstance(each, str) else each for each in tokens]
    return {**tree, "http": {**tree["http"], "tokens": tokens}}


def _readable(message: str, tree: Mapping[str, Any]) -> str:
    """Return a readable error. Msgspec writes ``Expected `int`, got `str` - at `$.sip.port```; it becomes
    ``sip.port: …``.
    """
    match = re.search(r"^(.*?)(?: - at `\$\.?(.*?)`)?$", message, re.DOTALL)
    if match and match[2]:
        kinds = types_at(Config, _STEP.findall(match[2]))
        fault = none_of(match[1], kinds) or in_words(match[1]).replace("an object", "a table")  # as TOML calls it
        return f"{_with_name(match[2], tree)}: {fault}"
    return message


def _with_name(where: str, tree: Mapping[str, Any]) -> str:
    """Return ``routes[...].voice`` with the name of the refused route, which msgspec leaves out."""
    path, unnamed, rest = where.partition("[...]")
    table: Any = tree
    kind: Any = Config
    for key in path.split(".") if unnamed else ():
        table, kind = table[key], get_type_hints(kind, include_extras=True)[key]
    for name, value in table.items() if unnamed else ():
        try:
            msgspec.convert({name: value}, kind)
        except msgspec.ValidationError:
            return f"{path}.{name[:MAX_SHOWN_CHARS]}{rest}"
    return where
