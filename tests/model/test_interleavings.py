"""Interleavings that the contract names, one by one: each is a way in which an actor that forgets a step would fail.

They show what the machine of ``test_model`` can do and judge; it finds others by chance.
"""

from collections.abc import Callable

from koord.gateway.settling import SETTLED
from koord.kube.resources import PODS
from koord.ledger.model import LedgerUnavailable
from tests.model import checks
from tests.model.apiserver import REQUEST_TIMEOUT_S, Sent
from tests.model.objects import NAMESPACE, PRIORITY
from tests.model.play import Play
from tests.model.stepping import Gate
from tests.model.test_model import Machine


async def to_the_binding(play: Play, *, among: int = 1) -> list[Sent]:
    """Everybody goes on until so many Bindings are under way, sent and not carried out."""
    for _ in range(400):
        found = [sent for sent in play.api.under_way if sent.binds and sent.response is None]
        if len(found) == among:
            return found
        moves = [move for move in play.moves.all() if "/binding" not in move.label]
        for move in moves:
            await play.make(move)
        await play.time_passes(0.1)
    raise AssertionError("no Binding came")


async def until_released(play: Play) -> None:
    """Everybody but the late request goes on until no record is BINDING."""
    for _ in range(400):
        for move in play.moves.all():
            if "late" not in move.label:
                await play.make(move)
        await play.time_passes(0.1)
        with play.loop.real():
            if not (await play.spectator.status()).binding:
                return
    raise AssertionError("the record stays BINDING")


def test_a_refusal_after_a_request_that_may_still_be_under_way(machine: Machine) -> None:
    """The first Binding is lost on the way, the second refused, and then the first comes after all (step (d))."""
    play = machine.play
    machine.do(machine.cluster.pod(1, {}, {}))
    [first] = machine.do(to_the_binding(play))
    play.api.lose(first)
    [second] = [sent for sent in machine.do(to_the_binding(play, among=2)) if sent is not first]
    play.api.refuse(second, 422)
    machine.do(until_released(play))
    machine.do(play.api.execute(first))
    machine.do(play.judge.judge())
    assert first.response is not None and first.response.status == 409


def test_a_late_request_after_the_ledger_was_lost(machine: Machine) -> None:
    """A gateway dies with a Binding on the way, Redis is emptied; the Binding comes when the ledger is open again."""
    play = machine.play
    machine.do(machine.cluster.pod(1, {}, {}))
    [late] = machine.do(to_the_binding(play))
    machine.do(play.gateways[-1].actor.die())
    play.raw.flushall()
    machine.do(play.start_anew("gateway", 0))
    machine.do(reopened(play))
    machine.do(play.api.execute(late))
    machine.do(play.judge.judge())
    assert late.response is not None and late.response.status == 409


def test_a_late_request_after_ledger_and_decisions_were_lost(machine: Machine) -> None:
    """The same, and the stream is lost too: nobody knows of the request any more."""
    _lost_with_the_decisions(machine, lease=False)


def test_a_late_request_after_ledger_decisions_and_lease_were_lost(machine: Machine) -> None:
    """The same, and somebody deleted the Lease: nobody knows that there was a gateway."""
    _lost_with_the_decisions(machine, lease=True)


def _lost_with_the_decisions(machine: Machine, *, lease: bool) -> None:
    play = machine.play
    machine.do(machine.cluster.pod(1, {}, {}))
    [late] = machine.do(to_the_binding(play))
    machine.do(play.gateways[-1].actor.die())
    play.raw.flushall()
    play.around.network.decisions.lose_all()
    if lease:
        machine.do(machine.cluster.lease_deleted())
    began = play.loop.now
    machine.do(play.start_anew("gateway", 0))
    machine.do(reopened(play))
    assert play.loop.now - began < REQUEST_TIMEOUT_S / 2, "the request was waited for, and could be made to fail"
    machine.do(play.api.execute(late))
    machine.do(play.judge.judge())
    assert late.response is not None and late.response.status == 409


def test_a_late_request_after_its_decision_was_lost(machine: Machine) -> None:
    """The stream is lost under a BINDING record: the room comes back only when the late Binding cannot succeed."""
    play = machine.play
    machine.do(machine.cluster.pod(1, {}, {}))
    [late] = machine.do(to_the_binding(play))
    machine.do(play.gateways[-1].actor.die())
    machine.do(play.start_anew("gateway", 0))
    play.around.network.decisions.lose_all()
    machine.do(until_released(play))
    machine.do(play.api.execute(late))
    machine.do(play.judge.judge())
    assert late.response is not None and late.response.status == 409


def test_what_was_bound_just_before_the_ledger_was_lost_is_charged(machine: Machine) -> None:
    """Nobody has seen the pod bound when Redis is emptied: the rebuild must not open without it."""
    play = machine.play
    for _ in range(3):
        machine.do(machine.cluster.pod(2, {}, {}))
    for sent in machine.do(to_the_binding(play, among=3)):
        machine.do(play.api.execute(sent))
    play.raw.flushall()
    machine.do(reopened(play, unseen=True))
    bound = {pod["metadata"]["uid"] for pod in machine._pods(bound=True)}
    assert len(bound) == 3

    async def recorded() -> set[str]:
        with play.loop.real():
            _, records = await checks.everything(play.spectator)
        return {record.uid for record in records.values() if record.state == "OBSERVED"}

    assert machine.do(recorded()) == bound, "what is charged is not what is bound"


def test_a_claim_whose_answer_was_lost_does_not_keep_its_pod(machine: Machine) -> None:
    """A scheduler that is busy renews all its leases; that must not keep what it does not know it holds."""
    play = machine.play
    scheduler = play.schedulers[-1]
    machine.do(machine.cluster.pod(1, {}, {}))
    [gate] = machine.do(until_claimed(play))
    machine.do(play.gates.open(gate))  # its decision never leaves: the scheduler goes on renewing
    machine.do(machine.cluster.pod(1, {}, {}))
    [gate] = machine.do(until_claimed(play))
    machine.do(play.gates.open(gate, LedgerUnavailable("the answer was lost")))

    async def claimed() -> int:
        for _ in range(120):
            for move in play.moves.all():
                if not move.label.startswith("publish"):
                    await play.make(move)
            scheduler.look()
            scheduler.plan(20.0)
            scheduler.upkeep(0.0)
            await play.time_passes(1.0)
        return len({flight.claim for flight in scheduler.service._binds.flights})

    assert machine.do(claimed()) == 2, "not both are claimed"


def test_a_settle_answer_does_not_end_a_record_that_was_advanced_again(machine: Machine) -> None:
    """The decision is lost and its record settled; before that is told it comes again, and its Binding is under way."""
    play = machine.play
    machine.do(machine.cluster.pod(1, {}, {}))
    [late] = machine.do(to_the_binding(play))
    machine.do(play.gateways[-1].actor.die())
    play.around.network.decisions.lose_all()
    machine.do(play.start_anew("gateway", 0))

    def settled() -> bool:
        return any(SETTLED in pod["metadata"].get("annotations", {}) for pod in machine._pods())

    def told() -> list[Gate]:
        fold = f"{play.reconcilers[-1].actor.name}: observe_v1 is sent"
        return [gate for gate in play.gates.shut if repr(gate) == fold and settled()]

    def kept_back(label: str) -> bool:
        if "/binding" in label:
            return True
        return (
            settled()
            and label.startswith("reconciler")
            and label.endswith(("observe_v1 is sent", "binding_v1 is asked"))
        )

    def under_way() -> list[Sent]:
        return [sent for sent in play.api.under_way if sent.binds and sent is not late]

    async def again() -> None:
        play.schedulers[-1].upkeep(31.0)

    machine.do(just_until(play, lambda: bool(told()), without=kept_back))
    machine.do(again())
    machine.do(just_until(play, lambda: bool(under_way()), without=kept_back))
    [gate], [sent] = told(), under_way()
    machine.do(play.gates.open(gate))
    machine.do(play.api.execute(sent))
    machine.do(play.judge.judge())
    assert sent.response is not None and sent.response.status == 201


def test_a_strict_gang_that_loses_a_member_holds_nothing_for_the_others(machine: Machine) -> None:
    """It is claimed, and one of its pods deleted: the whole claim ends, though its scheduler sees nothing of it."""
    play = machine.play
    machine.a_gang_comes(2, "Strict", 0, 0)
    machine.do(until_claimed(play))
    pod = machine._pods()[0]
    machine.do(machine.cluster.deleted(pod, PODS.path(NAMESPACE, pod["metadata"]["name"])))

    async def ended() -> None:
        for _ in range(100):
            for move in play.own_moves("reconciler"):
                await play.make(move)
                await play.judge.judge()
            await play.time_passes(0.1)
            with play.loop.real():
                if not (await play.spectator.status()).held:
                    return
        raise AssertionError("it holds room")

    machine.do(ended())


def test_a_claim_leaves_room_that_only_the_ledger_knows_to_be_nominated(machine: Machine) -> None:
    """A pod may get a part of its room by a victim; before it shows where, another one comes whom the rest would do."""
    play = machine.play
    for _ in range(5):
        machine.do(machine.cluster.pod(2, {}, {}, priority=PRIORITY))
    machine.do(machine.cluster.pod(1, {}, {}))
    machine.do(until_all(play, lambda: len(machine._pods(bound=True)) == 6))
    machine.do(machine.cluster.pod(2, {}, {}, priority=PRIORITY))

    def shows(label: str) -> bool:
        return label.startswith("publish patch preemptor")

    machine.do(just_until(play, lambda: any(shows(move.label) for move in play.moves.all()), without=shows))
    machine.do(machine.cluster.pod(1, {}, {}))
    before = play.happened["claim conflict"]
    machine.do(just_until(play, lambda: play.happened["claim conflict"] > before, without=shows))
    machine.do(until_all(play, lambda: len(machine._pods(bound=True)) == 6 and play.happened["eviction done"] == 1))


async def until_all(play: Play, what: Callable[[], bool]) -> None:
    """Everybody goes on until ``what`` is so."""
    for _ in range(200):
        for move in play.moves.all():
            await play.make(move)
        await play.time_passes(0.1)
        if what():
            return
    raise AssertionError("it does not come to that")


async def just_until(play: Play, what: Callable[[], bool], *, without: Callable[[str], bool]) -> None:
    """Everybody goes on, but for the moves of such labels, and no step further than that ``what`` is so."""
    for _ in range(200):
        for move in play.moves.all():
            if not without(move.label):
                await play.make(move)
                if what():
                    return
        await play.time_passes(0.1)
    raise AssertionError("it does not come to that")


async def until_claimed(play: Play) -> list[Gate]:
    """Everybody goes on, but no decision reaches the queue, until a claim has been made and its answer is not heard."""
    for _ in range(100):
        for move in play.moves.all():
            if not move.label.startswith("publish") and not move.label.endswith("claim_v1 is answered"):
                await play.make(move)
        found = [gate for gate in play.gates.shut if gate.label == "claim_v1 is answered"]
        if found:
            return found
        await play.time_passes(0.1)
    raise AssertionError("nothing was claimed")


async def reopened(play: Play, *, unseen: bool = False) -> None:
    """Gateway and reconciler go on until the ledger is open. ``unseen``: pods come late to the reconciler's cache."""
    with play.loop.real():
        before = await play.spectator.status()
    for round_ in range(800):
        for role in ("reconciler", "gateway"):
            for move in play.own_moves(role):
                if not (unseen and "sees" in move.label and "pods" in move.label and round_ < 30):
                    await play.make(move)
        await play.time_passes(0.5)
        with play.loop.real():
            status = await play.spectator.status()
        if status.open and status.epoch > before.epoch:
            return
    raise AssertionError("the ledger stays closed")
