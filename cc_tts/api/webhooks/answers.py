"""A webhook may answer ``call.incoming`` with commands, as if the client had sent them."""

from dataclasses import replace
from typing import Final
from weakref import WeakSet

from msgspec import UNSET, UnsetType

from cc_tts import logs
from cc_tts.api import schemas
from cc_tts.api.context import ApiContext
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import Holder
from cc_tts.api.webhooks.routes import readable_by
from cc_tts.calls.call import Call
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.errors import (
    CcTtsError,
    FieldError,
    Unprocessable,
    WrongState,
)
from cc_tts.processes.tasks import TaskSet
from cc_tts.webhooks.target import Target

OF_THE_ANSWER: Final = frozenset({400, 413, 422})
"""The status of errors that the answer has, whatever the call is doing."""

log = logs.get(__name__)


class IncomingAnswer(schemas.Body, frozen=True):
    """The JSON with which a webhook may answer ``call.incoming``: as if the client had sent these commands."""

    answer: bool = False
    speak: schemas.Speak | UnsetType = UNSET
    gather: schemas.Gather | UnsetType = UNSET


class IncomingAnswers:
    """Does what webhooks answer to ``call.incoming``; the first answer to a call counts. Runs on: the event loop."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._answered: WeakSet[Call] = WeakSet()
        self._tasks = TaskSet()

    def take(self, target: Target, call_id: str, answer: bytes) -> None:
        self._tasks.begin(self._follow(target, call_id, answer), f"answer to {call_id}")

    async def _follow(self, target: Target, call_id: str, answer: bytes) -> None:
        result = "used"
        try:
            await self._act(target, self._context.registry.call(call_id), answer)
        except CcTtsError as error:  # its detail may repeat what is to be said
            result = "unusable" if error.http_status in OF_THE_ANSWER else "refused"
            log.warning("webhook_answer_not_used", webhook=target.name, call_id=call_id, code=error.code)
        self._context.metrics.webhook_answers.labels(result=result).inc()

    async def _act(self, target: Target, call: Call, answer: bytes) -> None:
        """Speak, gather and answer as asked.

        Raises:
            CcTtsError: it cannot be read, or the call does not take it.
        """
        body = bodies.decode(answer, IncomingAnswer)
        prompt = None if body.speak is UNSET else body.speak.prompt(pointer="/speak")
        gather = None if body.gather is UNSET else self._gather(target, call, body.gather.request())
        prompts = (prompt, *((gather.prompt, gather.invalid_prompt) if gather else ()))
        for each in prompts:
            if each is not None:
                await self._context.speech_source.match_lexicons(call.defaults.applied_to(each).content)
        if call in self._answered:
            raise WrongState("another webhook has answered already")
        self._answered.add(call)
        if prompt is not None:
            call.speak(prompt)
        if gather is not None:
            call.gather(gather)
        if body.answer:
            call.accept()

    def _gather(self, target: Target, call: Call, gather: GatherRequest) -> GatherRequest:
        if gather.digits_to.connection:
            raise Unprocessable.about(FieldError("/gather/digits_to/connection", "a webhook has no connection"))
        holder = Holder("", frozenset(), target.tenant)
        return replace(gather, digits_to=readable_by(self._context.webhooks, call, gather.digits_to, holder))
