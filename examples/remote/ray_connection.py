"""Connects `tec --on` to a node of Ray.

    tec tune f.te --on 'python ray_connection.py --cpus 4 head:6379'

The command that `tec` adds, `tec serve --stdio`, is started by an actor, which reserves CPUs. This
program runs on a node of the cluster. The nodes need `tec` in their `PATH` and the versions of
Python and `ray` that run this program.
"""

import argparse
import socket
from collections.abc import Callable
from typing import Any

import ray
import relay


def connect() -> Callable[..., Any]:
    """Starts the process, and returns the function that calls its methods."""
    parser = argparse.ArgumentParser(description="Starts a program on a node of Ray.")
    parser.add_argument("--cpus", type=float, default=1, help="the CPUs to reserve: 1 by default")
    parser.add_argument("--gpus", type=float, default=0, help="the GPUs to reserve: 0 by default")
    parser.add_argument("--resource", help="a custom resource that the node must have")
    parser.add_argument("address", help="the address of the cluster, such as head:6379, or auto")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="the program: added by tec")
    args = parser.parse_args()

    # The nodes have no copy of this module.
    ray.cloudpickle.register_pickle_by_value(relay)
    # Where nothing listens, `ray.init` tries for minutes.
    host, _, port = args.address.rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise ConnectionError(f"no cluster answers at {args.address}: {error}") from None
    ray.init(args.address, log_to_driver=False, logging_level="ERROR")
    # Ray queues the actor until the resources are free, and ends it with this program.
    resources = {args.resource: 1} if args.resource else {}
    actor_class = ray.remote(relay.Process).options(
        num_cpus=args.cpus, num_gpus=args.gpus, resources=resources, max_restarts=0
    )
    actor = actor_class.remote(args.words)

    def call(name: str, *values: Any, limit: float | None = relay.CALL_LIMIT) -> Any:
        try:
            return ray.get(getattr(actor, name).remote(*values), timeout=limit)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None

    call("start", limit=None)
    return call


if __name__ == "__main__":
    relay.main(connect)
