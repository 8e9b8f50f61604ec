"""Live tensors by the allocator's events, over threads."""

import threading

import torch

from trine.run.live import Live

MANY = 100_000  # bytes


def block(count: int = 1) -> torch.Tensor:
    return torch.empty(count * MANY, dtype=torch.uint8)


def test_the_peak_is_what_was_alive_at_once() -> None:
    live = Live()
    with live.watched():
        first = block(2)
        del first
        second, third = block(), block(4)
        del second
        fourth = block()
        del third, fourth
    assert live.peak() == 5 * MANY


def test_what_another_watched_thread_frees_is_gone() -> None:
    live, made, freed = Live(), list[torch.Tensor](), threading.Event()

    def make() -> None:
        with live.watched():
            made.append(block(3))
            freed.wait()
            made.append(block(2))

    def free() -> None:
        with live.watched():
            while not made:
                pass
            made.clear()
        freed.set()

    threads = [threading.Thread(target=work) for work in (make, free)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.peak() == 3 * MANY


def test_what_nobody_watches_is_not_counted() -> None:
    live = Live()
    before = block(5)
    with live.watched():
        inside = block()
    after = block(7)
    assert live.peak() == MANY
    assert before.nbytes + inside.nbytes + after.nbytes == 13 * MANY
