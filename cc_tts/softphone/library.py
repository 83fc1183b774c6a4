"""The pjsua2 that ``CC_TTS_PJSUA2`` chooses, as for the server. Runs on: the SIP thread."""

from cc_tts.ua import pjsua2_build

pjsua2_build.select(pjsua2_build.chosen())

import pjsua2 as pj  # noqa: E402 - select() says where it is found

__all__ = ["pj"]
