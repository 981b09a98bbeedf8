"""What nvidia-smi says on a node of a test: the GPUs of a file, whose values can be changed."""

import json
import os
import sys
import time
from pathlib import Path

GPUS = os.environ["FAKE_GPUS"]
FACTS = {
    "name": "NVIDIA H100 80GB HBM3",
    "pci.bus_id": "00000000:1B:00.0",
    "pci.device_id": "0x233010DE",
    "driver_version": "570.86.15",
    "memory.total": "81559",
    "memory.used": "4",
    "memory.free": "81000",
    "clocks.max.sm": "1980",
    "power.limit": "700.00",
    "enforced.power.limit": "700.00",
    "compute_cap": "9.0",
    "temperature.gpu": "58",
    "power.draw": "688.10",
    "clocks.sm": "1740",
    "clocks_event_reasons.active": "0x0000000000000004",
    "temperature.memory": "55",
    "temperature.gpu.tlimit": "26",
}
HEAT = "GPU Slowdown T.Limit Temp : -2 C"


def gpu(name: str) -> dict[str, str]:
    changed = json.loads(Path(GPUS).read_text()).get(name[-1], {})
    return {**FACTS, "index": name[-1], "uuid": f"GPU-0000-{name[-1]}", **changed}


def main() -> None:
    name = sys.argv[sys.argv.index("-i") + 1]
    if "-q" in sys.argv:
        print(gpu(name).get("heat", HEAT))
        return
    (query,) = (word for word in sys.argv if word.startswith("--query"))
    what, _, fields = query.partition("=")
    if what == "--query-compute-apps":
        print(gpu(name).get("apps", ""))
        return
    for unknown in gpu(name).get("unknown", "").split():
        if unknown in fields:
            sys.exit(f'Field "{unknown}" is not a valid field to query.')
    while True:
        print(", ".join(gpu(name)[field] for field in fields.split(",")), flush=True)
        if "-l" not in sys.argv:
            return
        time.sleep(0.2)


main()
