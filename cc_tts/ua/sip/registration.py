"""The accounts of the user agent, some of which register with a PBX or a carrier. Runs on: the SIP thread.

PJSIP tries again after some responses only, and never after 302, 403 or 404. So its timer is cancelled after every failure,
and ours counts. PJSIP's timer remains for a connection that is lost.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Final

import pjsua2 as pj

from cc_tts import logs
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.processes.channel import Message
from cc_tts.ua.messages import RegistrationChanged, UaSettings
from cc_tts.ua.pjsip.sip_thread import callback, pj_detail
from cc_tts.ua.sip.account import Account, digest_config, local_config, registered_config
from cc_tts.ua.sip.retry_pace import RetryPace

FIRST_RETRY_S: Final = 5.0  # unmeasured
PJSIP_REFRESHES_FROM_S: Final = 6
"""PJSIP refreshes a binding 5 s before its end, at the earliest after 5 s (``DELAY_BEFORE_REFRESH``, sip_reg.c): one that is
granted for 5 s comes late, and a shorter one is never refreshed.
"""

log = logs.get(__name__)


class Registration(Account):
    """An account that registers, and when it registers again."""

    def __init__(
        self,
        settings: UaSettings,
        *,
        on_incoming: Callable[[Account, int, Any], None],
        clock: Clock,
        send: Callable[[Message], None],
        trunk: str = "",
    ) -> None:
        self._config = registered_config(settings, settings.trunks[trunk].proxy if trunk else "")
        retry_s = settings.registration.retry_s
        self._pace = RetryPace(first_s=min(FIRST_RETRY_S, retry_s), base_s=retry_s, clock=clock)
        self._stop_on = frozenset(settings.registration.stop_on)
        self._send = send
        self._clock = clock
        self._refresh_ns = 0
        """When a binding that is shorter than PJSIP can keep is refreshed; 0: PJSIP does it."""
        self._answer: RegistrationChanged | None = None
        self._is_untold = self._is_over = False
        super().__init__(self._config, on_incoming=on_incoming, trunk=trunk)

    def tick(self, *, is_idle: bool) -> None:
        """Register again if it is due. ``is_idle``: no call uses the account."""
        if self._is_untold and self._answer is not None:
            self._is_untold = False
            self._send(self._answer)
        if self._refresh_ns and self._clock.now_ns() >= self._refresh_ns:
            self._refresh_ns = 0
            with contextlib.suppress(pj.Error):  # a REGISTER is under way already
                self.setRegistration(True)
        if not self._pace.is_due():
            return
        try:
            if is_idle:
                # Contact is made with the account: it may name a TCP connection that is closed by now
                self.shutdown()
                self.create(self._config)
            else:
                self.setRegistration(True)
        except pj.Error as error:
            log.warning("registration_failed", trunk=self.trunk, detail=pj_detail(error))
            self._pace.failed()

    def tell_again(self) -> None:
        """Report the registrar's last answer again, for a server that does not know it yet."""
        self._is_untold = True

    def give_up(self) -> None:
        """No further registration, and answers are ignored."""
        self._is_over = True
        self._refresh_ns = 0
        self._pace.stop()

    @callback
    def onRegState(self, prm: Any) -> None:
        """The registrar has answered, or has not."""
        if self._is_over:
            return
        is_registered = bool(self.getInfo().regIsActive and prm.code // 100 == 2)  # noqa: PLR2004 - a 2xx answer
        answer = self._answer = RegistrationChanged(is_registered, int(prm.code), trunk=self.trunk)
        self._send(answer)
        granted_s = int(prm.expiration)
        is_short = is_registered and granted_s < PJSIP_REFRESHES_FROM_S
        self._refresh_ns = self._clock.now_ns() + granted_s * NS_PER_S // 2 if is_short else 0
        if answer.registered:
            self._pace.succeeded()
            return
        with contextlib.suppress(pj.Error):  # without a registration this only stops PJSIP's timer
            self.setRegistration(False)
        if answer.sip_code in self._stop_on:
            self._pace.stop()
            setting = f"trunks.{self.trunk}.stop_on" if self.trunk else "registration.stop_on"
            log.error("registration_stopped", sip_code=answer.sip_code, setting=setting)
        else:
            self._pace.failed()


class Accounts:
    """The accounts of a user agent: for calls by address, for calls that we place, and those that register: that of
    ``[registration]`` and one for each trunk.
    """

    def __init__(
        self,
        settings: UaSettings,
        *,
        on_incoming: Callable[[Account, int, Any], None],
        clock: Clock,
        send: Callable[[Message], None],
    ) -> None:
        self._account = functools.partial(Account, on_incoming=on_incoming)
        self._registration = functools.partial(Registration, on_incoming=on_incoming, clock=clock, send=send)
        self._all = [self._account(local_config(settings))]
        self._registrations: list[Registration] = []
        self._placing: dict[str, Account] = {"": self._all[0]}
        """The accounts of the calls that we place, by trunk."""
        if settings.registration.registrar:
            self._add(settings)
        for name, trunk in settings.trunks.items():
            self._add(settings.of_trunk(name), name, registers=bool(trunk.registrar), proxy=trunk.proxy)

    def _add(self, settings: UaSettings, trunk: str = "", *, registers: bool = True, proxy: str = "") -> None:
        if settings.registers and registers:
            registration = self._registration(settings, trunk=trunk)
            self._registrations.append(registration)
            self._placing[trunk] = registration
        if settings.dispatcher_port or not registers:
            # the binding's Contact is the dispatcher's address, and that of a call is our own
            account = self._placing[trunk] = self._account(digest_config(settings, proxy), trunk=trunk)
            self._all.append(account)

    @property
    def registers(self) -> bool:
        """Whether a registrar has, or may have, a binding of ours."""
        return bool(self._registrations)

    def placing(self, trunk: str) -> Account:
        return self._placing[trunk]

    def tick(self, *, is_idle: bool) -> None:
        """Register the due accounts again. ``is_idle``: there is no call."""
        for registration in self._registrations:
            registration.tick(is_idle=is_idle)

    def tell_again(self) -> None:
        """Report the registrars' last answers again, for a server that does not know them yet."""
        for registration in self._registrations:
            registration.tell_again()

    def shutdown(self, *, used: Account | None) -> None:
        """Remove the accounts and their bindings. Requests of ``used`` are under way: it goes with the library, which tells
        it how they end. PJSIP 2.15 aborts if it has to tell an account that is gone.
        """
        for registration in self._registrations:
            registration.give_up()
        for account in (*self._registrations, *reversed(self._all)):
            if account is not used:
                account.shutdown()
