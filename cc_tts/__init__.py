"""cc-tts: a SIP user agent that says, in a natural voice, what REST or the dialplan asks for."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else onnxruntime 1.29 and later reports each start to Microsoft

__version__ = "0.1.0"
