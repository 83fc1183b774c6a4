"""``cc-tts doctor``: is this machine fit to serve, and if not, what to do.

::

    command ─▸ network · machine · software     one function a question: Subject ▸ Findings
                         │
                         ▼
                       probes                   the only part that touches the machine; tests put their own in its place
"""
