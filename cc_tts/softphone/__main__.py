"""``python -m cc_tts.softphone``, which ``cc-tts call`` starts."""

import sys

from cc_tts.errors import ConfigError

try:
    from cc_tts.softphone.command import main
except ConfigError as error:  # CC_TTS_PJSUA2 names no build, or there is no pjsua2 at all
    print(f"cc-tts: {error.detail}", file=sys.stderr)  # noqa: T201 - a command line prints
    sys.exit(2)

sys.exit(main())
