"""The settings of prompts that are staged, and of files that are fetched."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from cc_tts.egress.hosts import AllowedHosts, usable_url


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsConfig:
    """``[prompts]``: texts and recorded announcements that are staged under an id, and audio files at URLs."""

    dir: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    max_prompts: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    max_total_s: Annotated[float, msgspec.Meta(gt=0, le=360_000)] = 7200.0
    max_prompt_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 600.0
    max_upload_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 30)] = 33_554_432
    allowed_hosts: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=255)], ...], msgspec.Meta(max_length=1000)  # unmeasured
    ] = ()
    fetch_timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 10.0
    max_fetched_s: Annotated[float, msgspec.Meta(ge=0, le=360_000)] = 3600.0
    max_age_s: Annotated[float, msgspec.Meta(ge=0, le=2_592_000)] = 86_400.0


def is_url(prompt: str) -> bool:
    """Whether the name of a prompt is the URL of a file; an id has no colon."""
    return ":" in prompt


def fault_of_url(url: str, allowed: AllowedHosts) -> str:
    """Return why a file may not be fetched from this URL; empty if it may."""
    found = usable_url(url, "http", "https")
    if found is None:
        return "is not an http or https URL without user, password and fragment"
    return (
        ""
        if allowed.has(found.raw_host or "")
        else "is at a host that is not in prompts.allowed_hosts: add it to the configuration"
    )
