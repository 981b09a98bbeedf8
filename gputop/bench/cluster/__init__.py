"""Stress tests on a Ray cluster: the same worker, placed by Ray, one on each GPU.

`relay.py` is a process of its own and the only one that knows Ray. `run.py` starts it, and has
its launchers and workers as a `DeviceRunner` wants them. `node_actor.py` is what Ray runs beside
each worker. Nodes need Ray and torch, and no gputop: the code that runs there is sent there.
"""
