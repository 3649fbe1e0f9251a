"""How often progress is told, with a clock in the hands of the test."""

from __future__ import annotations

from torpor_protocol.rpc import Progress
from torpor_worker.progress import ProgressReporter


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_first_and_the_last_report_are_always_sent() -> None:
    sent: list[Progress] = []
    report = ProgressReporter(sent.append, rank=3, clock=Clock())
    for done in range(1, 101):
        report(done, 100, 4 * done, 400)
    assert sent == [Progress(3, 1, 100, 4, 400), Progress(3, 100, 100, 400, 400)]


def test_reports_in_between_keep_the_interval() -> None:
    sent: list[Progress] = []
    clock = Clock()
    report = ProgressReporter(sent.append, rank=0, clock=clock)
    for done in range(100):
        clock.now = done / 32  # three of them are less than INTERVAL, four are more
        report(done, 1000, 0, 0)
    assert [progress.tensors_done for progress in sent] == list(range(0, 100, 4))
