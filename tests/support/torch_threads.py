"""How networks compute in tests: on one thread, so that the same sums give the same numbers.

A module makes a fixture of these, of the scope it wants: what fixtures of a wider scope make is made with gradients.
"""

from collections.abc import Iterator

import torch


def one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def one_thread_without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield from one_thread()
