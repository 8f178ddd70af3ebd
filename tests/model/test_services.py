"""Interleavings of the queue, the quota service, nominations and live copies, one by one, as ``test_interleavings``."""

from koord.contracts.decisions import Bind
from koord.kube.resources import JOBS, PODS
from tests.model import checks
from tests.model.judging import claim_of
from tests.model.objects import NAMESPACE, PRIORITY, QUOTA, QUOTA_NAME, admits
from tests.model.play import Play
from tests.model.streams import Message, Stored
from tests.model.test_interleavings import just_until, reopened, to_the_binding, until_all
from tests.model.test_model import Machine


def full_of_others(machine: Machine, count: int = 6) -> None:
    """So many pods of low priority, of two cpu each, are bound; six fill the nodes."""
    for _ in range(count):
        machine.do(machine.cluster.pod(2, {}, {}))
    machine.do(until_all(machine.play, lambda: len(machine._pods(bound=True)) == count))


def bound_high(machine: Machine) -> int:
    return len([pod for pod in machine._pods(bound=True) if pod["spec"].get("priority")])


def test_a_pod_of_high_priority_gets_the_room_of_its_victim(machine: Machine) -> None:
    """Nominated, shown, evicted, bound: and nobody of low priority takes the room in between."""
    full_of_others(machine)
    machine.do(machine.cluster.pod(2, {}, {}, priority=PRIORITY))
    machine.pods_come(2, 1, 0, quota=False)
    machine.do(until_all(machine.play, lambda: bound_high(machine) == 1))
    assert machine.play.happened["eviction done"] == 1
    assert machine.play.happened["offered"]


def test_a_preemptor_that_dies_leaves_nothing_behind(machine: Machine) -> None:
    """It has nominated and shown it, and evicts nobody: the room is free for others once the field is cleared."""
    full_of_others(machine)
    machine.do(machine.cluster.pod(2, {}, {}, priority=PRIORITY))
    play = machine.play

    def shown() -> bool:
        for message in play.around.network.decisions.unconfirmed:
            if ".patch" in message.subject and message.actor is play.preemptors[-1].actor:
                return True
        return False

    async def until_shown() -> None:
        for _ in range(100):
            for move in play.moves.all():
                await play.make(move)
                if shown():
                    return
        raise AssertionError("nothing was nominated")

    machine.do(until_shown())
    machine.do(play.preemptors[-1].actor.die())


def test_a_gang_takes_the_room_that_others_only_hold(machine: Machine) -> None:
    """One scheduler holds room for a gang that lacks members; the other's gang is worth more and was refused thrice."""
    full_of_others(machine, 5)
    machine.a_gang_comes(3, "NonStrict", 0, 0)
    play = machine.play

    async def held() -> None:
        for _ in range(100):
            for move in play.moves.all():
                await play.make(move)
            with play.loop.real():
                if (await play.spectator.status()).held == 2:
                    return
        raise AssertionError("nothing is held")

    machine.do(held())
    machine.do(play.start_anew("scheduler", 0))
    machine.a_gang_comes(2, "Strict", 0, PRIORITY)

    async def wounded() -> None:
        for _ in range(100):
            for move in play.own_moves("scheduler"):
                await play.make(move)
            if play.happened["wounded"]:
                return
        raise AssertionError("nobody made room")

    machine.do(wounded())
    machine.do(until_all(play, lambda: bound_high(machine) == 2))


def let_go(machine: Machine) -> bool:
    return any(not job["spec"].get("suspend") for job in machine.api.objects(JOBS).values())


def test_a_queue_that_dies_between_its_two_decisions_lets_the_job_go(machine: Machine) -> None:
    """The unit is admitted, the Job still suspended: the next queue sees that and goes on, with one charge."""
    play = machine.play
    machine.do(machine.cluster.job(3, suspended=True))

    async def admitted() -> None:
        for _ in range(200):
            for move in play.moves.all():
                await play.make(move)
                if play.happened["a unit is admitted"]:
                    return
            await play.time_passes(0.1)
        raise AssertionError("the unit is not admitted")

    machine.do(admitted())
    assert not let_go(machine)
    machine.do(play.queues[-1].actor.die())
    machine.do(play.start_anew("queue", 2))
    machine.do(until_all(play, lambda: len(machine._pods(bound=True)) == 3))
    assert play.happened["a Job is let go"] == 1


def test_a_decision_of_the_queue_that_is_lost_is_published_again(machine: Machine) -> None:
    """The stream is lost under the decision that admits the unit; who leads hears nothing, and repeats it."""
    play = machine.play
    decisions = play.around.network.decisions
    machine.do(machine.cluster.job(3, suspended=True))

    def admissions() -> list[Stored]:
        return [stored for stored in decisions.held if claim_of(stored.message.decision) is not None]

    def is_admission(label: str) -> bool:
        return label in [f"hand out {stored}" for stored in admissions()]

    machine.do(just_until(play, lambda: bool(admissions()) and not decisions.unconfirmed, without=is_admission))
    decisions.lose_all()
    machine.do(until_all(play, lambda: len(machine._pods(bound=True)) == 3))
    assert len(play.queues) == 1


def test_a_unit_that_is_switched_off_suspends_its_job_and_gives_its_room_back(machine: Machine) -> None:
    play = machine.play
    machine.do(machine.cluster.job(3, suspended=True))
    machine.do(until_all(play, lambda: len(machine._pods(bound=True)) == 3))
    [unit] = machine.play.units()
    machine.do(machine.cluster.unit_switched(unit["metadata"]["name"], active=False))
    machine.do(until_all(play, lambda: not machine._pods() and not any(map(admits, play.units()))))
    assert play.happened["a Job is suspended"] == 1


def test_a_quota_that_shrinks_lets_nobody_more_in(machine: Machine) -> None:
    """What runs stays; who comes waits until there is room again."""
    play = machine.play
    for _ in range(2):
        machine.do(machine.cluster.pod(2, {QUOTA_NAME: QUOTA}, {}))
    machine.do(until_all(play, lambda: len(machine._pods(bound=True)) == 2))
    machine.do(machine.cluster.quota_changes(4))
    machine.do(machine.cluster.job(1, suspended=True))
    machine.do(machine.cluster.pod(1, {QUOTA_NAME: QUOTA}, {}))
    machine.do(onwards(play, 60))
    assert len(machine._pods(bound=True)) == 2
    assert not any(map(admits, play.units()))
    machine.do(machine.cluster.quota_changes(6))
    machine.do(until_all(play, lambda: len(machine._pods(bound=True)) == 4))


async def onwards(play: Play, rounds: int) -> None:
    for _ in range(rounds):
        for move in play.moves.all():
            await play.make(move)
        await play.time_passes(0.5)


async def until_decided(play: Play) -> Message:
    """Everybody goes on, and the bind that comes does not reach the queue."""
    for _ in range(100):
        for move in play.moves.all():
            if not (move.label.startswith("publish bind")):
                await play.make(move)
        for message in play.around.network.decisions.on_the_way:
            if isinstance(message.decision, Bind):
                return message
    raise AssertionError("nothing was decided")


async def copied(play: Play, message: Message, *, again: bool = False) -> None:
    play.moves.hand_out_copy(message, again=again)


def test_a_live_copy_and_the_decision_itself_bind_once(machine: Machine) -> None:
    """The copy is executed while the queue has nothing; then the queue hands the decision out, twice."""
    play = machine.play
    decisions = play.around.network.decisions
    machine.do(machine.cluster.pod(1, {}, {}))
    message = machine.do(until_decided(play))
    decisions.copy(message)
    machine.do(copied(play, message, again=True))
    machine.do(copied(play, message))
    [sent] = machine.do(to_the_binding(play))
    decisions.store(message)
    machine.do(play.api.execute(sent))
    machine.do(until_all(play, lambda: not decisions.held))
    assert play.happened["Binding done"] == 1


def test_a_live_copy_that_comes_after_a_rebuild_is_refused(machine: Machine) -> None:
    """It is of an epoch that is over: nothing is written on its word, and its pod is planned anew."""
    play = machine.play
    machine.do(machine.cluster.pod(1, {}, {}))
    message = machine.do(until_decided(play))
    play.around.network.decisions.copy(message)
    play.raw.flushall()
    machine.do(reopened(play))
    machine.do(copied(play, message))
    machine.do(until_all(play, lambda: len(machine._pods(bound=True)) == 1))
    assert play.happened["Binding done"] == 1
    assert isinstance(message.decision, Bind)

    async def claim() -> str:
        with play.loop.real():
            _, records = await checks.everything(play.spectator)
        [record] = records.values()
        return record.claim

    assert machine.do(claim()) != message.decision.id


def test_what_went_while_the_state_stream_was_lost_is_swept(machine: Machine) -> None:
    """The new stream never shows the pod; whoever had it must forget it, and its room is free."""
    play = machine.play
    full_of_others(machine)
    gone = machine._pods()[0]
    machine.do(machine.cluster.deleted(gone, PODS.path(NAMESPACE, gone["metadata"]["name"])))
    machine.api.lose_state()
    machine.do(play.reconcilers[-1].actor.die())
    machine.do(play.start_anew("reconciler", 0, strict_audit=True))  # what has no tombstone is for the audit to find
    machine.do(machine.cluster.pod(2, {}, {}))
    machine.do(until_all(play, lambda: len(machine._pods(bound=True)) == 6))
