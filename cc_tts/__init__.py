"""cc-tts: a SIP user agent that says, in a natural voice, what REST or the dialplan asks for."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
"""From 1.29 on onnxruntime reports to its maker unless this is set before it is imported."""

__version__ = "0.1.0"
