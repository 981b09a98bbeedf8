"""Stress tests on a Ray cluster: the same worker, placed by Ray, one on each GPU.

`relay.py` runs in a process of its own and is the only one that knows Ray: `link.py` starts it, and
has its places and workers as a `Session` wants them. `post.py` is what Ray runs beside each worker.
Nodes need Ray and torch, and no gputop: what runs there is sent there.
"""
