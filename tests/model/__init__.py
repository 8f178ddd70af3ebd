"""A model-based test of the ledger's contract (spec 20 section 3.12) over the real actors.

A redis-server with the real function library; the scheduler, queue and quota services, the gateway's executor and the
reconciler's term as they are, and a thin preemptor, as tasks whose outside calls stand at gates. A hypothesis state
machine opens the gates one by one, so it may stop, kill or double any actor between any two steps, and lose, delay,
repeat and reorder what is under way.

The API is the embedded server's application, called in process: a request takes effect, and is answered, when the
machine says so, which a server behind a socket cannot do. The bus is memory for the same reason: what JetStream
promises (docs/bus.md) is what these files do, no more. Redis is the real one; only time is not its own: a lease that is
over is made so in its data.
"""
