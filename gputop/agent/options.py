"""Options of the agent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AgentOptions:
    """Options of the agent, and of `gputop stream`, which runs it."""

    interval: float
    """Seconds between samples."""
    count: int | None = None
    """Number of samples, counted after the driver's first answer, after which the agent ends."""
    demo: bool = False
    gpm: bool = True
    control: bool = False
    """True if the reader sends requests on standard input. GPM is off until it is requested."""
    secrets: bool = False
    """True if command lines are also sent unmasked."""
    ids: tuple[str, ...] = ()
    """Indices, PCI addresses or starts of UUIDs of the chosen GPUs; empty for all."""
    only_visible: bool = False
    """True if only GPUs in CUDA_VISIBLE_DEVICES are chosen."""
