"""A discrete-event model of guards: processes that take what waits, on cores that they share.

A call's way is one of the request path: worker, Redis, worker, tool server, worker, Redis, worker.
Each process takes everything that has arrived since it last looked as one batch: a fixed cost for
the look and one for each message.  That is how an event loop and a Redis server behave, and why a
call costs less under load.  Waits of processes for each other, for cores and for messages emerge.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import simpy

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    Step = Generator[simpy.Event, object, None]

WORKER, REDIS, UPSTREAM, AGENT = "worker", "redis", "upstream", "agent"
PATH: Final = (WORKER, REDIS, WORKER, UPSTREAM, WORKER, REDIS, WORKER)
"""The processes that a released call meets, in order."""
MESSAGES: Final = {WORKER: 4, REDIS: 2, UPSTREAM: 1, AGENT: 1}
"""How many messages of a call each kind of process handles."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds of one kind of process."""

    look: float
    """Of each batch, whatever is in it."""
    message: float
    """Of each message, in the mean."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Of everything that a call meets."""

    of: dict[str, Cost]
    hop: float
    """Seconds from a message's sending until the receiver may see it."""
    shape: tuple[float, ...] = (1.0,)
    """Service times seen, as multiples of their mean."""

    def per_call(self, kind: str, batch: float = 1.0) -> float:
        """Return the processor seconds of a call where so many messages are taken at once."""
        cost = self.of[kind]
        return MESSAGES[kind] * (cost.message + cost.look / batch)


@dataclass(slots=True)
class Outcome:
    """The figures of one simulation, without its first tenth (warm-up)."""

    per_second: float
    latencies: np.ndarray
    """Seconds from a call's start to its answer, without the tool server's own time."""
    ended: np.ndarray
    """When each of them was answered."""
    busy: dict[str, float]
    """Share of the time that each kind of process was busy, of its busiest process."""
    batch: dict[str, float]
    """Messages in a batch, in the mean."""
    refused: int = 0
    """Calls that were refused because Redis was away."""

    def quantile(self, share: float) -> float:
        """Return a quantile of the latencies, in seconds."""
        return float(np.quantile(self.latencies, share))


@dataclass(slots=True)
class _Call:
    agent: int
    born: float
    at: int = 0
    """Its place on the path."""
    worker: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A deployment and its load.

    Closed load: ``agents`` that call again at once.  Open load: calls arrive at ``rate``.
    """

    workers: int
    cores: int | None = None
    """That all processes share; each has one of its own if None."""
    agents: int = 0
    rate: float = 0.0
    calls: int = 20_000
    stretch: float = 1.0
    """How much longer everything takes because others use the cores."""
    away: tuple[float, float] | None = None
    """From when to when Redis does not answer."""
    timeout: float = 0.25
    """Seconds after which a call that waits for Redis is refused."""
    retry: float = 1.0
    """Seconds after which a refused agent asks again."""
    seed: int = 1


class _Process:
    """One process: an inbox, batches, a core while it computes."""

    def __init__(self, world: _World, kind: str, number: int = 0) -> None:
        self.kind, self.number, self._world = kind, number, world
        self._inbox: deque[_Call] = deque()
        self._wake = world.env.event()
        self.busy = 0.0
        self.batches = 0
        self.messages = 0
        world.env.process(self._run())

    def put(self, call: _Call) -> None:
        """Hand over a message, at once."""
        self._inbox.append(call)
        if not self._wake.triggered:
            self._wake.succeed()

    def _run(self) -> Step:
        world, cost = self._world, self._world.costs.of[self.kind]
        while True:
            if not self._inbox:
                self._wake = world.env.event()
                yield self._wake
            if self.kind == REDIS and world.redis_is_away():
                yield world.env.timeout(world.until_redis())
                continue
            batch, self._inbox = self._inbox, deque()
            if world.cores is None:
                yield from self._handle(batch, cost)
            else:
                with world.cores.request() as core:
                    yield core
                    yield from self._handle(batch, cost)
            self.batches += 1
            self.messages += len(batch)

    def _handle(self, batch: deque[_Call], cost: Cost) -> Step:
        """Spend the time of a batch; each message goes on when it is done."""
        world = self._world
        begun = world.env.now
        yield world.env.timeout(cost.look * world.place.stretch)
        piped: list[_Call] = []
        for call in batch:
            yield world.env.timeout(cost.message * world.drawn() * world.place.stretch)
            # What a worker asks of Redis in one turn of its loop leaves together.
            if self.kind == WORKER and world.next_of(call) == REDIS:
                piped.append(call)
            else:
                world.passed_on(call)
        for call in piped:
            world.passed_on(call)
        self.busy += world.env.now - begun


class _World:
    """A simulation under way."""

    def __init__(self, costs: Costs, place: Scenario) -> None:
        self.env = simpy.Environment()
        self.costs, self.place = costs, place
        self.cores = simpy.Resource(self.env, place.cores) if place.cores else None
        self._random = np.random.default_rng(place.seed)
        self._draws: Iterator[float] = iter(())
        self.workers = [_Process(self, WORKER, n) for n in range(place.workers)]
        self.single = {kind: _Process(self, kind) for kind in (REDIS, UPSTREAM, AGENT)}
        self.latencies: list[float] = []
        self.ended: list[float] = []
        self.refused = 0
        self.done = self.env.event()
        self._turns = itertools.count()

    def drawn(self) -> float:
        """Return a service time as a multiple of the mean."""
        found = next(self._draws, None)
        if found is None:
            drawn = self._random.choice(self.costs.shape, 4096)
            self._draws = iter(drawn.tolist())
            found = float(next(self._draws))
        return found

    def redis_is_away(self) -> bool:
        away = self.place.away
        return away is not None and away[0] <= self.env.now < away[1]

    def until_redis(self) -> float:
        return self.place.away[1] - self.env.now if self.place.away else 0.0

    def begin(self, call: _Call) -> None:
        """Send a call to a worker: an agent's connection stays at one."""
        call.worker = call.agent % len(self.workers)
        self._later(self.workers[call.worker], call)

    def _later(self, process: _Process, call: _Call) -> None:
        arrival = self.env.timeout(self.costs.hop)
        arrival.callbacks.append(lambda _: process.put(call))

    @staticmethod
    def next_of(call: _Call) -> str:
        """Return the kind of process that a call goes to next."""
        return PATH[call.at + 1] if call.at + 1 < len(PATH) else AGENT

    def passed_on(self, call: _Call) -> None:
        """Send a call to the next process on its way, or end it."""
        call.at += 1
        if call.at < len(PATH):
            kind = PATH[call.at]
            if kind == REDIS and self.redis_is_away():
                self.env.process(self._refused(call))
                return
            process = self.workers[call.worker] if kind == WORKER else self.single[kind]
            self._later(process, call)
        elif call.at == len(PATH):
            self._later(self.single[AGENT], call)
        else:
            self._ended(call)

    def _refused(self, call: _Call) -> Step:
        """Redis gives no answer in time: the call is refused, and its agent asks again."""
        yield self.env.timeout(self.place.timeout)
        self.refused += 1
        yield self.env.timeout(self.place.retry * (0.5 + self._random.random()))
        call.at = 0
        self.begin(call)

    def _ended(self, call: _Call) -> None:
        self.latencies.append(self.env.now - call.born)
        self.ended.append(self.env.now)
        if len(self.latencies) >= self.place.calls:
            if not self.done.triggered:
                self.done.succeed()
        elif self.place.agents:
            self.begin(_Call(call.agent, self.env.now))

    def arrivals(self) -> Step:
        """Generate Poisson arrivals at the rate of the open load."""
        for number in itertools.count():
            yield self.env.timeout(self._random.exponential(1 / self.place.rate))
            self.begin(_Call(number, self.env.now))


def simulate(costs: Costs, place: Scenario) -> Outcome:
    """Run one simulation until so many calls have been answered."""
    world = _World(costs, place)
    for agent in range(place.agents):
        world.begin(_Call(agent, 0.0))
    if place.rate:
        world.env.process(world.arrivals())
    world.env.run(world.done)
    skipped = len(world.latencies) // 10
    ended = np.asarray(world.ended)
    span = ended[-1] - ended[skipped]
    processes: Sequence[_Process] = [*world.workers, *world.single.values()]
    busy = {p.kind: 0.0 for p in processes}
    for process in processes:
        busy[process.kind] = max(busy[process.kind], process.busy / world.env.now)
    batch = {
        kind: sum(p.messages for p in processes if p.kind == kind)
        / max(sum(p.batches for p in processes if p.kind == kind), 1)
        for kind in busy
    }
    return Outcome(
        per_second=float((len(ended) - skipped - 1) / span),
        latencies=np.asarray(world.latencies[skipped:]),
        ended=ended[skipped:],
        busy=busy,
        batch=batch,
        refused=world.refused,
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """A measured closed load: how many agents called without a pause, and what was measured."""

    agents: int
    per_second: float
    cpu: dict[str, float] = field(default_factory=dict)
    """Processor seconds of a call, by kind of process."""
    others: float = 0.0
    """Cores that other programs used meanwhile."""

    def stretch(self, cores: int) -> float:
        """Return the factor by which other programs on the cores slowed everything down."""
        return cores / max(cores - self.others, 0.1 * cores)


ROUNDS: Final = 4


def calibrated(alone: Seen, many: Seen, *, cores: int, shape: Sequence[float] = (1.0,)) -> Costs:
    """Return the costs with which the model reproduces two measured loads.

    Args:
        alone: one agent: every batch is one message, and the time that no processor explains is
            the messages' way.
        many: enough agents that batches form.
        cores: that all processes share.
        shape: see :class:`Costs`.
    """
    batch = {kind: float(many.agents) / 2 for kind in MESSAGES}
    hops = len(PATH) + 1
    spent = sum(alone.cpu.values()) * alone.stretch(cores)
    hop = max((1 / alone.per_second - spent) / hops, 0.0)
    costs = Costs({}, hop, tuple(shape))
    for _ in range(ROUNDS):
        costs = replace(
            costs, of={kind: _cost(kind, alone, many, batch[kind]) for kind in MESSAGES}
        )
        place = Scenario(1, cores, many.agents, calls=4_000, stretch=many.stretch(cores))
        batch = simulate(costs, place).batch
    return costs


def _cost(kind: str, alone: Seen, many: Seen, batch: float) -> Cost:
    """Split the cost of a message: what batches save is the cost of a look."""
    single, shared = (seen.cpu[kind] / MESSAGES[kind] for seen in (alone, many))
    saved = max(single - shared, 0.0) / max(1 - 1 / max(batch, 1.01), 0.2)
    look = min(saved, 0.9 * single)
    return Cost(look, single - look)
