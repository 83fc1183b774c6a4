"""The settings of PJSIP's library: its threads, its media, its log. Runs on: the SIP thread."""

from typing import Any, Final

import pjsua2 as pj

from cc_tts.ua.capacity import SPARE_HANDLES
from cc_tts.ua.messages import UaSettings
from cc_tts.ua.pjsua2_build import Pjsua2Build

_ANY_NUMBER: Final = 1 << 16
_MAX_PJSIP_LOG_LEVEL: Final = 6
"""PJLIB knows no higher one (pj/log.h)."""


def library_config(settings: UaSettings, build: Pjsua2Build, log_writer: Any) -> Any:
    config = pj.EpConfig()
    config.uaConfig.threadCnt = 0
    config.uaConfig.mainThreadOnly = True
    config.uaConfig.userAgent = settings.sip.user_agent
    # PJSIP's own resolver: getaddrinfo would block every call while one name is looked up
    for address in settings.sip.nameservers:
        config.uaConfig.nameserver.append(address)
    config.uaConfig.maxCalls = _ANY_NUMBER  # PJSIP lowers it to what the build allows
    # two ports a call, and one more while it is recorded; each has a table of all others
    calls = settings.sip.max_calls or build.max_handles
    config.medConfig.maxMediaPorts = min(config.medConfig.maxMediaPorts, 3 * calls + SPARE_HANDLES)
    config.medConfig.clockRate = settings.rtp.clock_rate_hz
    config.medConfig.sndClockRate = settings.rtp.clock_rate_hz
    config.medConfig.noVad = True
    config.medConfig.hasIoqueue = True
    config.medConfig.threadCnt = 1
    config.medConfig.ecTailLen = 0
    config.logConfig.level = settings.log.pjsip_level
    config.logConfig.consoleLevel = _MAX_PJSIP_LOG_LEVEL  # the level above decides, and it can be changed
    config.logConfig.msgLogging = 0
    config.logConfig.writer = log_writer
    return config
