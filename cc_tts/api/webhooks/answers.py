"""A webhook may answer ``call.incoming`` with commands, as if the client had sent them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from weakref import WeakSet

from msgspec import UNSET, UnsetType

from cc_tts import logs
from cc_tts.api import schemas
from cc_tts.api.calls import check_prompts
from cc_tts.api.context import ApiContext
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import Holder
from cc_tts.api.webhooks.routes import readable_by
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.events import types
from cc_tts.errors import (
    BodyTooLarge,
    CcTtsError,
    ClientError,
    FieldError,
    Unprocessable,
    WrongState,
)
from cc_tts.processes.tasks import TaskSet
from cc_tts.webhooks.post import MAX_ANSWER_BYTES
from cc_tts.webhooks.target import WebhookTarget

OF_THE_ANSWER: Final = frozenset({400, 413, 422})
"""The statuses of errors that are the fault of the answer, whatever the call is doing."""

MAX_POINTER_CHARS: Final = 100
"""The most characters of a pointer that are logged (unmeasured), since the application chooses its names."""

log = logs.get(__name__)


class IncomingAnswer(schemas.Body, frozen=True):
    """The JSON with which a webhook may answer ``call.incoming``: as if the client had sent these commands."""

    answer: bool = False
    speak: schemas.Speak | UnsetType = UNSET
    gather: schemas.Gather | UnsetType = UNSET


class IncomingAnswers:
    """Carries out the answers of webhooks to ``call.incoming``; the first answer for a call counts. Runs on:
    the event loop.
    """

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._answered: WeakSet[Call] = WeakSet()
        self._tasks = TaskSet()

    def take(self, target: WebhookTarget, call_id: str, answer: bytes, why_late: str) -> None:
        """Carry out an answer, unless it is too late."""
        self._tasks.begin(self._follow(target, call_id, answer, why_late), f"answer to {call_id}")

    async def _follow(self, target: WebhookTarget, call_id: str, answer: bytes, why_late: str) -> None:
        result, call = "late" if why_late else "used", None
        try:
            call = self._context.registry.call(call_id)
            if why_late:
                self._refuse(target, call, result, why_late)
            else:
                await self._act(target, call, answer)
        except CcTtsError as error:
            result = "unusable" if error.http_status in OF_THE_ANSWER else "refused"
            self._refuse(
                target, call, error.code, error.detail, error.field_errors if isinstance(error, ClientError) else ()
            )
        self._context.services.metrics.webhook_answers.labels(result=result).inc()

    def _refuse(
        self, target: WebhookTarget, call: Call | None, code: str, detail: str, faults: Sequence[FieldError] = ()
    ) -> None:
        """Log why an answer has no effect, since the application gets no response. The detail may repeat prompt text, so
        only the fields are logged.
        """
        fields = [each.pointer[:MAX_POINTER_CHARS] for each in faults]
        call_id = None if call is None else call.id
        log.warning("webhook_answer_not_used", webhook=target.name, call_id=call_id, code=code, fields=fields)
        if call is not None and call.state is not CallState.TERMINATED:
            call.publish(types.CallCommandFailed(command="webhook_answer", detail=f"{target.name}: {detail}"))

    async def _act(self, target: WebhookTarget, call: Call, answer: bytes) -> None:
        """Speak, gather and answer as requested.

        Raises:
            CcTtsError: it cannot be read, or the call does not take it.
        """
        if len(answer) > MAX_ANSWER_BYTES:
            raise BodyTooLarge(f"an answer has at most {MAX_ANSWER_BYTES} bytes")
        body = bodies.decode(answer, IncomingAnswer)
        prompt = None if body.speak is UNSET else body.speak.prompt(pointer="/speak")
        gather = None if body.gather is UNSET else self._gather(target, call, body.gather.request())
        prompts = {"/speak": prompt}
        if gather is not None:
            prompts |= {"/gather/prompt": gather.prompt, "/gather/invalid_prompt": gather.invalid_prompt}
        await check_prompts(call, self._context, prompts)
        if call in self._answered:
            raise WrongState("another webhook has answered already")
        self._answered.add(call)
        if prompt is not None:
            call.speak(prompt)
        if gather is not None:
            call.gather(gather)
        if body.answer:
            call.accept()

    def _gather(self, target: WebhookTarget, call: Call, gather: GatherRequest) -> GatherRequest:
        if gather.digits_to.connection:
            raise Unprocessable.about(FieldError("/gather/digits_to/connection", "a webhook has no connection"))
        holder = Holder("", frozenset(), target.tenant)
        return replace(gather, digits_to=readable_by(self._context.webhooks, call, gather.digits_to, holder))
