"""The softphone's own request to speak, to what is no server of ours."""

import socket
import threading

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.softphone.speak import SpeakRequest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"calls": [{}]}',
    ],
)
def test_an_answer_that_is_not_ours_is_an_error_in_the_report(answer: bytes) -> None:
    """Without it the report said nothing of why there was no speech."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        api = f"http://127.0.0.1:{listener.getsockname()[1]}"
        request = SpeakRequest(text="Hello.", api=api)
        request.start("a@b", MonotonicClock())
        assert request.finish(()).error.startswith(f"{api}: ")
