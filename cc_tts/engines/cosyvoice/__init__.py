"""CosyVoice2-0.5B: text tokens become speech tokens, a mel spectrogram and 24 kHz PCM.

A bare section such as §2 is one of ``cosyvoice2-spec.md``, a description of the published model by which these modules were
written. It is not in this repository.
"""
