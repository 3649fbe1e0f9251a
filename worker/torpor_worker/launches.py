"""Turns the engine's Form into a command for the fork server, with what only this pod knows."""

from __future__ import annotations

import msgspec

from torpor_protocol.rpc import Form
from torpor_protocol.supervision import SupervisorSettings
from torpor_worker.forks import Fork
from torpor_worker.processes import threads_per_rank


def fork_command(form: Form, settings: SupervisorSettings) -> Fork:
    assignments = [
        msgspec.structs.replace(assignment, interface=assignment.interface or settings.interface)
        for assignment in form.assignments
    ]
    return Fork(
        endpoint=settings.endpoint,
        config=form.config,
        assignments=assignments,
        keys=form.keys,
        threads=threads_per_rank(len(assignments)),
    )
