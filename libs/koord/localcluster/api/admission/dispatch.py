"""Asking webhooks about a write: mutating ones one after the other, then validating ones at once.

What cannot be asked is refused or passed over, as its failure policy says; a refusal is final.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from koord.localcluster.api.admission.attributes import Attributes
from koord.localcluster.api.admission.definitions import ClientConfig
from koord.localcluster.api.admission.failures import BadAnswer, CallFailed
from koord.localcluster.api.admission.hooks import Hook, HookSet, Invocation
from koord.localcluster.api.admission.review import (
    Verdict,
    encode_review,
    read_patch,
    read_verdict,
    rejection,
    review_version,
)
from koord.localcluster.api.admission.services import Services
from koord.localcluster.api.errors import bad_request, internal
from koord.localcluster.api.patches import PatchError, json_patch
from koord.localcluster.api.resources import Route
from koord.localcluster.clusterapi import ApiError, Object

if TYPE_CHECKING:
    from koord.localcluster.api.admission.transport import Transport

MAX_OPERATIONS = 10_000
_ASIDE = ("None", "NoneOnDryRun")
_log = logging.getLogger(__name__)

Settle = Callable[[Attributes], Object]
"""Makes an object that a webhook changed whole again: defaults, types. Raises `ApiError`."""


class Asker:
    """What all questions of one request share: until when they may take, and where warnings that come back go."""

    def __init__(self, warnings: list[str], seconds: float) -> None:
        self.warnings = warnings
        self.deadline = time.monotonic() + seconds


class Dispatcher:
    """Asks the webhooks of one cluster."""

    def __init__(self, mutating: HookSet, validating: HookSet, services: Services) -> None:
        self._mutating = mutating
        self._validating = validating
        self._services = services
        self._transport: Transport | None = None

    async def aclose(self) -> None:
        """Close the connections to webhooks."""
        if self._transport is not None:
            await self._transport.aclose()

    async def _post(self, config: ClientConfig, question: bytes, seconds: float) -> bytes:
        if self._transport is None:
            # The HTTP client weighs eight MiB, which a server without webhooks need not carry.
            module = await asyncio.to_thread(import_module, "koord.localcluster.api.admission.transport")
            self._transport = self._transport or module.Transport(self._services)
        return await self._transport.post(config, question, seconds)

    async def mutate(self, write: Attributes, asker: Asker, settle: Settle) -> Object | None:
        """Ask the mutating webhooks; the object as they want it (`write.obj` becomes it).

        After a change those before it that ask for it (IfNeeded) are asked once more, in a second round.
        """
        again: set[Hook] = set()
        told: set[Hook] = set()
        for hook, changed in await self._round(write, asker, settle, None):
            if changed:
                again |= told
                told.clear()
            if hook.webhook.reinvocation_policy == "IfNeeded":
                told.add(hook)
        if again:
            await self._round(write, asker, settle, again)
        return write.obj

    async def _round(
        self, write: Attributes, asker: Asker, settle: Settle, only: set[Hook] | None
    ) -> list[tuple[Hook, bool]]:
        """Ask each (or those in `only`) in turn; who was asked, and whether the object is another one since."""
        asked = []
        for invocation in self._mutating.candidates(write):
            hook = invocation.hook
            # What an earlier webhook changed may be what a selector of a later one is about.
            if (only is not None and hook not in only) or not self._mutating.selects(invocation, write):
                continue
            verdict = await self._ask(invocation, write, asker, mutating=True)
            asked.append((hook, verdict is not None and self._change(invocation, write, verdict, settle)))
        return asked

    def _change(self, invocation: Invocation, write: Attributes, verdict: Verdict, settle: Settle) -> bool:
        """Apply a verdict's patch; whether the object is another one now."""
        hook = invocation.hook
        try:
            operations = read_patch(verdict)
        except BadAnswer as error:
            self._failed(hook, str(error))
            return False
        if not operations:
            return False
        before = write.obj
        if before is None:
            why = "attempted to modify the object, which is not supported for this operation"
            raise internal(f'admission webhook "{hook.name}" {why}')
        write.obj = self._patched(invocation.route, write, before, operations)
        try:
            write.obj = settle(write)
        except ApiError as error:
            # The object was the webhook's; that it cannot be read is not the client's fault.
            raise internal(error.message) from error
        return write.obj != before

    @staticmethod
    def _patched(route: Route, write: Attributes, before: Object, operations: list[Any]) -> Object:
        if len(operations) > MAX_OPERATIONS:
            raise internal(f"the allowed maximum operations of a patch is {MAX_OPERATIONS}")
        shown = write.outward(route, before)
        assert shown is not None
        try:
            patched = json_patch(shown, operations)
        except (PatchError, RecursionError) as error:
            raise internal(str(error)) from error
        kind = write.kind_in(route)
        expected = f"{kind.group}/{kind.version}" if kind.group else kind.version
        given_kind, given_version = patched.get("kind") or kind.kind, patched.get("apiVersion") or expected
        if (given_kind, given_version) != (kind.kind, expected):
            raise internal(
                f'no kind "{given_kind}" is registered for version "{given_version}" in place of {kind.kind}'
            )
        return write.inward(route, {**patched, "apiVersion": expected, "kind": kind.kind})

    async def validate(self, write: Attributes, asker: Asker) -> None:
        """Ask the validating webhooks, all at the same time; raises the first refusal in their order."""
        invocations = self._validating.select(write)
        if not invocations:
            return
        outcomes = await asyncio.gather(
            *(self._ask(invocation, write, asker, mutating=False) for invocation in invocations), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _ask(self, invocation: Invocation, write: Attributes, asker: Asker, *, mutating: bool) -> Verdict | None:
        """One webhook's verdict; None when it could not be asked and is passed over. Raises its refusal."""
        hook, webhook = invocation.hook, invocation.hook.webhook
        if write.dry_run and webhook.side_effects not in _ASIDE:
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        version = review_version(webhook.admission_review_versions)
        if version is None:
            why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            self._failed(hook, f"could not create admission objects: {why}")
            return None
        left = asker.deadline - time.monotonic()
        seconds = min(float(webhook.timeout_seconds or 10), left)
        if seconds <= 0:
            raise request_timed_out()
        uid = str(uuid.uuid4())
        try:
            question = encode_review(version, uid, write, invocation.route)
            answer = await self._post(webhook.client_config, question, seconds)
            verdict = read_verdict(answer, version, uid, mutating=mutating)
        except (CallFailed, BadAnswer) as error:
            self._failed(hook, str(error))
            if asker.deadline <= time.monotonic():
                raise request_timed_out() from None
            return None
        # What a header cannot carry is dropped.
        asker.warnings.extend(text for text in verdict.warnings or () if text.isprintable())
        if not verdict.allowed:
            raise rejection(hook.name, verdict.status)
        return verdict

    @staticmethod
    def _failed(hook: Hook, why: str) -> None:
        """Refuse the write because of a webhook that cannot be asked, unless it is to be passed over."""
        text = f'failed calling webhook "{hook.name}": {why}'
        if not hook.fails_open:
            raise internal(text)
        _log.warning("%s; the write goes on", text)


def request_timed_out() -> ApiError:
    """504: the webhooks of one request took too long together."""
    message = "Timeout: request did not complete within requested timeout - context deadline exceeded"
    return ApiError(504, "Timeout", message, {})
