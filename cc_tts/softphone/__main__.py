"""``python -m cc_tts.softphone``: what ``cc-tts call`` starts."""

import sys

from cc_tts.softphone.command import main

sys.exit(main())
