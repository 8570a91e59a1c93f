"""The outlook of a job on this machine: refused, free at once, or what it would wait for. Makes and takes nothing."""

from __future__ import annotations

from longboat.core.errors import Refused
from longboat.engines.engine import Submission
from longboat.engines.lifecycle.outlook import Outlook
from longboat.engines.local.queue.machine import observe_machine
from longboat.engines.local.queue.requests import requests_of
from longboat.engines.local.queue.slots import foresee_start
from longboat.engines.local.submit.preparation import SubmissionPreparation
from longboat.engines.shared.home import Home


def outlook_of(home: Home, preparation: SubmissionPreparation, submission: Submission, gpu_hour: float) -> Outlook:
    try:
        prepared = preparation.prepare(submission).submission
    except Refused as error:
        return Outlook(answer="never", reason=error.message)
    home.prepare()
    machine = observe_machine(home.root, prepared.environment, with_gpus=bool(prepared.job.gpus))
    reason = foresee_start(home, machine, requests_of(prepared.job)[0], prepared.job.priority)
    price = gpu_hour * prepared.job.gpus  # of an elastic run: at its largest
    return Outlook(answer="waits", reason=reason, price=price) if reason else Outlook(answer="now", price=price)
