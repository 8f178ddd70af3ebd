"""``python -m koord.localcluster.traces --port P``: the trace store as a process; prints its URL when it is ready."""

import argparse
import asyncio
import signal

from aiohttp import web

from koord.localcluster.traces.server import application
from koord.localcluster.traces.store import MAX_BYTES, TraceStore


async def _serve(port: int, max_bytes: int) -> None:
    runner = web.AppRunner(application(TraceStore(max_bytes)), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    host, bound = runner.addresses[0][:2]
    print(f"http://{host}:{bound}", flush=True)
    await stop.wait()
    await runner.cleanup()


def main() -> None:
    """Parse the flags and serve until a signal."""
    parser = argparse.ArgumentParser(description="koord's local trace store")
    parser.add_argument("--port", type=int, default=0, help="loopback port (0: a free one)")
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES, help="how much to keep")
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.max_bytes))


if __name__ == "__main__":
    main()
