"""Connects `tec --on` to a worker of Dask.

    tec tune f.te --on 'python dask_connection.py tcp://scheduler:8786'

The command that `tec` adds, `tec serve --stdio`, is started by a worker as a child of its process.
The bytes travel through the scheduler, so only its address has to be reachable. The worker needs
`tec` in its `PATH` and the versions of Python and `distributed` that run this program.
"""

import argparse
from collections.abc import Callable
from typing import Any

import cloudpickle
import relay
from distributed import Client


def make(pickled: bytes, words: list[str]) -> Any:
    """Returns a `relay.Process`. The scheduler and the workers have no copy of that module."""
    return cloudpickle.loads(pickled)(words)


def connect() -> Callable[..., Any]:
    """Starts the process, and returns the function that calls its methods."""
    parser = argparse.ArgumentParser(description="Starts a program on a worker of Dask.")
    parser.add_argument("--worker", help="the name or address of the worker: else any")
    parser.add_argument("scheduler", help="the address of the scheduler, such as tcp://head:8786")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="the program: added by tec")
    args = parser.parse_args()

    cloudpickle.register_pickle_by_value(relay)
    pickled = cloudpickle.dumps(relay.Process)
    # `direct_to_workers` would need a way to each worker.
    client = Client(args.scheduler, direct_to_workers=False)
    # An actor stays on its worker. Dask prefers the worker with the fewest actors, and waits for a
    # worker if there is none. If this client goes away, Dask drops the actor.
    workers = [args.worker] if args.worker else None
    future = client.submit(make, pickled, args.words, actor=True, workers=workers, pure=False)
    actor = future.result()

    def call(name: str, *values: Any) -> Any:
        return getattr(actor, name)(*values).result(timeout=relay.CALL_LIMIT)

    call("start")
    return call


if __name__ == "__main__":
    relay.main(connect)
