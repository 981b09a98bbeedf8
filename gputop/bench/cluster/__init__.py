"""Stress tests on a Ray cluster: Ray places a worker on each GPU.

`relay.py` runs in a process of its own. No other module imports Ray. `run.py` starts the relay, and
implements the launcher and the worker for `DeviceRunner`. `node_actor.py` is the Ray actor beside
each worker. Nodes need Ray and torch, but not gputop: the relay sends them the code.
"""
