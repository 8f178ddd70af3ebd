"""Fake nodes and stand-in operators beside a real API server, as a process of its own over HTTP.

With the embedded API they live in its process. A real cluster gets them from here, when `koord up` is asked for nodes.
"""

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

import uvloop

from koord.cli.api import connect
from koord.cli.errors import UsageProblem
from koord.localcluster import components
from koord.localcluster.clusterapi import ApiError
from koord.telemetry.logs import get_logger

log = get_logger("koord.outside")

WRITERS = 32
"""Writes under way at a time, of the kubelets and of the operators: each waits for the server."""


async def serve(kubeconfig: str, options: components.Options, ready: Path) -> None:
    """Play the outside until SIGTERM; ``ready`` is written when all nodes are there."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with await connect(kubeconfig) as api:
        await api.wait_ready(60.0)
        running = await components.start(api, options, writers=WRITERS)
        try:
            part = ready.with_name(f".{ready.name}.part")
            part.write_text(json.dumps({"kubeconfig": kubeconfig}))
            part.rename(ready)
            waiting = [asyncio.create_task(ended.wait()), asyncio.create_task(running.failed())]
            done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            for task in done:
                task.result()
        finally:
            await running.stop()


def main() -> int:
    """``python -m koord.cli.outside --kubeconfig K --components JSON --ready-file F``."""
    parser = argparse.ArgumentParser(prog="python -m koord.cli.outside", allow_abbrev=False)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--components", type=components.Options.parse, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    given = parser.parse_args()
    try:
        uvloop.run(serve(given.kubeconfig, given.components, given.ready_file))
    except UsageProblem as error:
        print(f"error: {error}", file=sys.stderr)
        return UsageProblem.code
    except (ApiError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
