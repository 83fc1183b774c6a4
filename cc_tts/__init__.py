"""cc-tts: a SIP user agent that says, in a natural voice, what REST or the dialplan asks for."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else onnxruntime (from 1.29 on) reports each start to its maker

__version__ = "0.1.0"
