"""What a supervisor decides, as events in and actions out: no process is started here."""

from __future__ import annotations

import msgspec

from fake_pod import fake_form
from torpor_protocol.rpc import (
    NO_GROUP,
    Call,
    Disband,
    Disbanded,
    Form,
    RankExited,
    RankStalled,
    Shutdown,
    new_group_id,
)
from torpor_worker.formation import (
    FORK_TIMEOUT,
    KILL_TIMEOUT,
    PRELOAD_TIMEOUT,
    Formation,
    KillRanks,
    Leave,
    ReplaceForkServer,
    Send,
    Start,
)
from torpor_worker.watch import Stall

A, B, C = (new_group_id() for _ in range(3))


def ready(devices: int = 2) -> Formation:
    formation = Formation(devices, now=0.0)
    assert formation.on_ready(0.0) == []
    return formation


def running(ranks: int = 2) -> Formation:
    """Group A, rank r in process 100 + r."""
    formation = ready()
    form = fake_form(A, ranks)
    assert formation.on_message(A, form, 0.0) == [Start(form)]
    for rank in range(ranks):
        assert formation.on_forked(rank, 100 + rank) == []
    return formation


def refusals(formation: Formation, group: bytes, form: Form) -> list[str]:
    texts = []
    for rank, action in enumerate(formation.on_message(group, form, 0.0)):
        assert isinstance(action, Send) and action.group == group
        assert isinstance(action.message, RankExited)
        assert (action.message.rank, action.message.pid) == (rank, 0)
        texts.append(action.message.log_tail)
    assert formation.group == NO_GROUP
    return texts


def test_a_form_starts_ranks_and_a_repeated_one_does_nothing() -> None:
    formation = running()
    assert formation.pids() == {0: 100, 1: 101}
    assert formation.on_message(A, fake_form(A, 2), 1.0) == []


def test_a_form_waits_for_the_fork_server() -> None:
    formation = Formation(2, now=0.0)
    form = fake_form(A, 2)
    assert formation.on_message(A, form, 1.0) == []
    assert formation.on_message(A, form, 2.0) == []
    assert formation.on_ready(9.0) == [Start(form)]


def test_a_newer_form_takes_the_place_of_one_that_waits() -> None:
    formation = Formation(2, now=0.0)
    newer = fake_form(B)
    formation.on_message(A, fake_form(A), 1.0)
    formation.on_message(B, newer, 2.0)
    assert formation.on_ready(9.0) == [Start(newer)]
    assert formation.group == B


def test_a_disband_takes_back_a_form_that_waits() -> None:
    formation = Formation(2, now=0.0)
    formation.on_message(A, fake_form(A), 1.0)
    assert formation.on_message(A, Disband(), 2.0) == [Send(A, Disbanded())]
    assert formation.on_ready(9.0) == []


def test_disbanded_is_said_when_the_last_rank_is_reaped() -> None:
    formation = running()
    assert formation.on_message(A, Disband(), 1.0) == [KillRanks()]
    assert formation.on_exited(0, 100, -9, "", 1.1) == []
    assert formation.group == A
    assert formation.on_exited(1, 101, -9, "", 1.2) == [Send(A, Disbanded())]
    assert formation.group == NO_GROUP


def test_disband_kills_ranks_that_have_no_pid_yet() -> None:
    formation = ready()
    formation.on_message(A, fake_form(A), 0.0)
    assert formation.on_message(A, Disband(), 0.1) == [KillRanks()]
    assert formation.on_forked(0, 100) == []
    assert formation.on_exited(0, 100, -9, "", 0.2) == [Send(A, Disbanded())]


def test_disband_of_a_group_whose_ranks_are_all_dead_is_answered_at_once() -> None:
    formation = running(ranks=1)
    formation.on_exited(0, 100, 1, "", 1.0)
    assert formation.on_message(A, Disband(), 2.0) == [Send(A, Disbanded())]


def test_disband_of_another_group_is_answered_and_touches_nothing() -> None:
    formation = running()
    assert formation.on_message(B, Disband(), 1.0) == [Send(B, Disbanded())]
    assert formation.on_message(NO_GROUP, Disband(), 1.0) == [Send(NO_GROUP, Disbanded())]
    assert formation.pids() == {0: 100, 1: 101}


def test_a_second_group_starts_only_after_the_first_is_reaped() -> None:
    formation = running()
    form = fake_form(B, 2)
    assert formation.on_message(B, form, 1.0) == [KillRanks()]
    assert formation.on_exited(1, 101, -9, "", 1.1) == []
    assert formation.on_exited(0, 100, -9, "", 1.2) == [Send(A, Disbanded()), Start(form)]
    assert formation.group == B


def test_the_last_of_several_forms_wins() -> None:
    formation = running()
    last = fake_form(C)
    formation.on_message(B, fake_form(B), 1.0)
    formation.on_message(C, last, 1.1)
    formation.on_exited(1, 101, -9, "", 1.2)
    assert formation.on_exited(0, 100, -9, "", 1.3) == [Send(A, Disbanded()), Start(last)]


def test_an_unasked_exit_is_told_with_status_and_log() -> None:
    formation = running()
    told = [Send(A, RankExited(1, 101, -11, "Segmentation fault"))]
    assert formation.on_exited(1, 101, -11, "Segmentation fault", 1.0) == told
    assert formation.pids() == {0: 100}
    assert formation.on_exited(1, 101, -11, "", 1.0) == [], "told once"


def test_a_form_of_more_ranks_than_devices_is_refused() -> None:
    (text, *others) = refusals(ready(devices=2), A, fake_form(A, 3))
    assert "2 ranks" in text and "asked for 3" in text
    assert len(others) == 2


def test_a_refused_form_still_ends_the_group_before_it() -> None:
    formation = running()
    assert formation.on_message(B, fake_form(B, 3), 1.0) == [KillRanks()]
    formation.on_exited(0, 100, -9, "", 1.1)
    disbanded, *refused = formation.on_exited(1, 101, -9, "", 1.2)
    assert disbanded == Send(A, Disbanded())
    assert [type(action) for action in refused] == [Send] * 3
    assert formation.pids() == {} and formation.group == NO_GROUP


def test_a_form_that_contradicts_itself_is_refused() -> None:
    good = fake_form(A, 2)
    twice = msgspec.structs.replace(good, assignments=[good.assignments[0]] * 2)
    assert "twice" in refusals_of_first(twice)
    assert "keys" in refusals_of_first(msgspec.structs.replace(good, keys=good.keys[:1]))
    assert "another group" in refusals_of_first(fake_form(B, 2))


def refusals_of_first(form: Form) -> str:
    (first, *_) = ready().on_message(A, form, 0.0)
    assert isinstance(first, Send) and isinstance(first.message, RankExited)
    return first.message.log_tail


def test_ranks_that_were_never_forked_are_lost_with_the_fork_server() -> None:
    formation = ready()
    formation.on_message(A, fake_form(A, 2), 0.0)
    formation.on_forked(0, 100)
    (told,) = formation.on_fork_server_lost(-9, "why", 1.0)
    assert isinstance(told, Send) and isinstance(told.message, RankExited)
    assert (told.message.rank, told.message.pid, told.message.status) == (1, 0, -9)
    assert formation.pids() == {0: 100}, "still to be reaped"
    (told,) = formation.on_reaped(100, -9, "why", 1.1)
    assert isinstance(told, Send) and isinstance(told.message, RankExited)
    assert (told.message.rank, told.message.pid, told.message.status) == (0, 100, -9)
    assert told.message.log_tail == "why"
    assert formation.on_reaped(999, 0, "", 1.2) == [], "a stranger"


def test_the_loss_of_the_fork_server_ends_a_disband() -> None:
    formation = running()
    next_form = fake_form(B)
    formation.on_message(B, next_form, 1.0)
    assert formation.on_fork_server_lost(-9, "", 1.1) == []
    assert formation.on_reaped(100, -9, "", 1.2) == []
    assert formation.on_reaped(101, -9, "", 1.3) == [Send(A, Disbanded())]
    assert formation.on_ready(3.0) == [Start(next_form)]


def test_a_form_that_waits_is_lost_with_a_fork_server_that_dies_while_importing() -> None:
    formation = Formation(2, now=0.0)
    formation.on_message(A, fake_form(A, 2), 1.0)
    tail = "Why it died."
    told = [Send(A, RankExited(rank, 0, -11, tail)) for rank in (0, 1)]
    assert formation.on_fork_server_lost(-11, tail, 2.0) == told
    assert formation.on_ready(3.0) == []
    form = fake_form(B, 2)
    assert formation.on_message(B, form, 4.0) == [Start(form)]


def test_a_fork_server_that_never_gets_ready_is_replaced_again_and_again() -> None:
    formation = Formation(1, now=0.0)
    assert formation.on_tick(PRELOAD_TIMEOUT - 1) == []
    (replaced,) = formation.on_tick(PRELOAD_TIMEOUT + 1)
    assert isinstance(replaced, ReplaceForkServer)
    formation.on_fork_server_lost(-9, "", PRELOAD_TIMEOUT + 1)
    assert formation.on_tick(2 * PRELOAD_TIMEOUT) == []
    assert formation.on_tick(2 * PRELOAD_TIMEOUT + 2) != []


def test_a_fork_that_reports_no_pid_is_a_lost_rank() -> None:
    formation = ready()
    formation.on_message(A, fake_form(A), 1.0)
    assert formation.on_tick(1.0 + FORK_TIMEOUT) == []
    (replaced,) = formation.on_tick(1.1 + FORK_TIMEOUT)
    assert isinstance(replaced, ReplaceForkServer)
    (told,) = formation.on_fork_server_lost(-9, "", 1.2 + FORK_TIMEOUT)
    assert isinstance(told, Send) and isinstance(told.message, RankExited)


def test_a_rank_that_survives_its_sigkill_costs_the_fork_server() -> None:
    formation = running()
    formation.on_message(A, Disband(), 1.0)
    assert formation.on_tick(1.0 + KILL_TIMEOUT) == []
    (replaced,) = formation.on_tick(1.1 + KILL_TIMEOUT)
    assert isinstance(replaced, ReplaceForkServer)
    assert formation.on_tick(1.2 + KILL_TIMEOUT) == [], "once"


def test_stalls_name_the_rank_and_strangers_are_nobody() -> None:
    formation = running()
    stalls = [Stall(101, "T", 1.26), Stall(555, "T", 2.0)]
    assert formation.on_stalls(stalls, fork_server=50) == [
        Send(A, RankStalled(1, 101, "T", 1.26)),
    ]


def test_a_stopped_fork_server_is_replaced() -> None:
    (replaced,) = running().on_stalls([Stall(50, "T", 1.1)], fork_server=50)
    assert isinstance(replaced, ReplaceForkServer)


def test_shutdown_leaves_and_a_call_is_not_for_supervisors() -> None:
    assert running().on_message(A, Shutdown(), 1.0) == [Leave()]
    assert running().on_message(A, Call("echo"), 1.0) == []
