"""Process that uses Ray: starts actors and relays their messages as JSON lines.

It ends when its standard input ends, and so does everything that Ray started for it. Ray prints,
waits for minutes, and ends the process when the head node has ended. The process of its own keeps
all that away from the parent.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
import zipfile
from pathlib import Path
from typing import Any, NoReturn

from gputop.bench.cluster import node_actor
from gputop.bench.cluster.messages import (
    Ended,
    Joined,
    Lent,
    Lost,
    Output,
    Place,
    Refused,
    Release,
    Report,
    Signal,
    Start,
    Write,
    from_line,
    to_line,
)
from gputop.bench.worker import host_memory
from gputop.stream.agent_archive import agent_archive
from gputop.stream.launch import end_with_parent

PLACE_SECONDS = 60.0
"""Timeout for Ray to start an actor. Ray assigns a free GPU at once."""
POLL_SECONDS = 10.0
GATHER_SECONDS, READS_PER_SECOND = 0.2, 500
"""Least seconds for which an actor gathers messages, and most reads per second of all actors."""
WORKER = Path(__file__).parents[1] / "worker"
MAIN = b"""import sys
if sys.argv[1:]:
    from gputop.agent.__main__ import main
else:
    from gputop_worker.main import main
main()
"""
"""Main module of the archive: the agent if there are arguments, else the worker."""


def worker_archive() -> bytes:
    """Return the worker, with the agent for its guard, as a zip file that Python runs."""
    made = io.BytesIO(agent_archive(main=None))
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as file:
        for source in sorted(WORKER.glob("*.py")):
            if source.name != "__main__.py":
                file.writestr(
                    f"gputop_worker/{source.name}", source.read_bytes()
                )
        file.writestr("__main__.py", MAIN)
    return made.getvalue()


def ray_placement() -> tuple[str, str, list[Any]]:
    """Return the node of the current Ray task, its address, and the GPUs assigned to it."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    return node, ray.util.get_node_ip_address(), list(ray.get_gpu_ids())


class Relay:
    """All actors of one run."""

    def __init__(self, fd: int) -> None:
        import ray  # slow, and may print

        self._fd, self._ray = fd, ray
        self._actors: dict[int, Any] = {}
        self._following: list[asyncio.Task[None]] = []

    def send(self, report: Report) -> None:
        """Write a report to the parent."""
        line = to_line(report)
        while line:
            line = line[os.write(self._fd, line) :]

    def connect(self, address: str) -> None:
        """Join the cluster and report its size; end the process if that fails."""
        try:
            self._ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (Exception, SystemExit) as error:  # noqa: BLE001 - Ray raises all kinds
            why = " ".join(str(error).split()) or type(error).__name__
            self.send(Refused(why))
            os._exit(3)
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        gpus = int(self._ray.cluster_resources().get("GPU", 0))
        free = int(self._ray.available_resources().get("GPU", 0))
        self.send(Joined(len(nodes), gpus, free))

    async def serve(self) -> None:
        """Execute orders until standard input ends."""
        loop, lines = (
            asyncio.get_running_loop(),
            asyncio.StreamReader(limit=1 << 20),
        )
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        while line := await lines.readline():
            order = from_line(line)
            if isinstance(order, Place):
                self._place(order)
            elif isinstance(order, Start | Write | Signal | Release):
                actor = self._actors.get(order.post)
                if actor is not None:
                    self._execute(order, actor)

    def _execute(
        self, order: Start | Write | Signal | Release, actor: Any
    ) -> None:
        match order:
            case Start(post, request, uuid):
                actor.start.remote(request.encode(), uuid)
                following = self._follow(post, actor)
                self._following.append(asyncio.create_task(following))
            case Write(_, text):
                actor.write.remote(text.encode())
            case Signal(_, number):
                actor.signal.remote(number)
            case Release(post):
                self._kill(post)

    def _place(self, order: Place) -> None:
        # Pickle the modules by value, since nodes have no gputop.
        for module in (node_actor, host_memory):
            self._ray.cloudpickle.register_pickle_by_value(module)
        place = self._ray.remote(
            num_cpus=0,
            num_gpus=1,
            max_concurrency=4,
        )(node_actor.NodeActor)
        code = self._ray.put(worker_archive())
        for number in range(order.count):
            actor = place.remote(code, order.python, order.cpu)
            self._actors[number] = actor
            self._following.append(asyncio.create_task(self._look(number)))

    async def _look(self, number: int) -> None:
        look = self._actors[number].look
        looking = look.remote(ray_placement, host_memory.available_bytes)
        try:
            found = await asyncio.wait_for(
                asyncio.wrap_future(looking.future()), PLACE_SECONDS
            )
        except TimeoutError:
            self._kill(number)
            why = f"Ray assigned no GPU within {PLACE_SECONDS:.0f} s"
            self.send(Lost(number, why))
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
            self._say_lost(number, error)
        else:
            answer = node_actor.NodeAnswer(**found)
            self.send(Lent(number, answer))

    async def _follow(self, number: int, actor: Any) -> None:
        gather = max(GATHER_SECONDS, len(self._actors) / READS_PER_SECOND)
        try:
            while True:
                for said in await actor.read.remote(POLL_SECONDS, gather):
                    if isinstance(said, bytes):
                        line = said.decode(errors="replace")
                        self.send(Output(number, line))
                        continue
                    status, errors = said
                    text = errors.decode(errors="replace")
                    self.send(Ended(number, status, text))
                    return
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
            self._say_lost(number, error)

    def _say_lost(self, number: int, error: Exception) -> None:
        if isinstance(error, self._ray.exceptions.OutOfMemoryError):
            why = "its node ran out of memory, and Ray ended it"
        elif isinstance(error, self._ray.exceptions.RayActorError):
            why = "its node was lost, or Ray's process beside the worker died"
        else:
            lines = [
                line.strip()
                for line in str(error).splitlines()
                if line.strip()
            ]
            why = (
                f"{type(error).__name__}: {lines[-1][:200]}"
                if lines
                else type(error).__name__
            )
        self.send(Lost(number, why))

    def _kill(self, number: int) -> None:
        self._ray.kill(self._actors.pop(number))


def main() -> NoReturn:
    """Run until standard input ends."""
    end_with_parent()
    fd = os.dup(1)
    os.dup2(2, 1)  # Ray's prints go to standard error
    relay = Relay(fd)
    relay.connect(sys.argv[1])
    asyncio.run(relay.serve())
    # os._exit skips Ray's slow shutdown.
    os._exit(0)


if __name__ == "__main__":
    main()
