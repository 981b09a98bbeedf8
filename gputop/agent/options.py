"""Options of the agent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AgentOptions:
    """Options of the agent, and of `gputop stream`, which runs it."""

    interval: float
    """Seconds between samples."""
    count: int | None = None
    """Samples of a settled driver after which it ends."""
    demo: bool = False
    gpm: bool = True
    control: bool = False
    """True if the reader sends requests on standard input: it then asks for GPM, too."""
    secrets: bool = False
    """True if command lines are sent unmasked, too."""
    ids: tuple[str, ...] = ()
    """Indices, PCI addresses or starts of UUIDs of the GPUs that are wanted; all if empty."""
    only_visible: bool = False
    """True if only GPUs are wanted that CUDA_VISIBLE_DEVICES leaves visible."""
