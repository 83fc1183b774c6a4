from tests.support.captured_logs import quiet

__all__ = ["quiet"]
