"""A worker that does no work, begins with the others, and is told by the device what it reaches."""

WORKER = """
import json, os, select, sys, time
asked = json.loads(sys.stdin.readline())
def say(event, **fields): print(json.dumps({"event": event, **fields}), flush=True)
index = int(os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0][-1])
def heard(seconds): return select.select([0], [], [], seconds)[0] and os.read(0, 100)
say("hello", python="3.11.0", torch_version="9.9.9", device_name="a GPU", threads=1,
    pid=os.getpid(), cuda_version="12.8")
if index == BROKEN:
    say("error", kind="memory", what="The products do not fit", why="too little is free",
        remedy="Choose a smaller size", checks=0, wrong_elements=0)
    os._exit(0)
say("plan", m=8192, n=8192, k=8192, dtype=asked["dtype"], accumulate="float32", layout="any",
    data="none", relative_error=1e-6,
    method="by hand", expected_seconds=asked["seconds"])
if asked["waits"] and b"go" not in heard(60): os._exit(1)
alone = 0 if asked["waits"] else 50
began, n, stopped, total = time.monotonic(), 0, "time", 0.0
while time.monotonic() - began < asked["seconds"]:
    word = heard(0.1)
    if word == b"": os._exit(1)
    if word and b"stop" in word:
        stopped = "user"
        break
    n += 1
    rate = 700.0 - (LAG if index == SLOW else 2 * index) + alone
    rate += 60 * 0.9 ** n + 4 * ((7 * n + 3 * index) % 5) / 5
    total += rate
    say("sample", elapsed_seconds=time.monotonic() - began, window_seconds=0.1, iterations=n,
        tflops=rate, tflops_device=rate)
    if n % 10 == 1:
        say("verify", checks=n // 10 + 1, wrong_elements=0)
mean = total / max(1, n)
figures = dict(tflops_mean=mean, tflops_peak=760.0, tflops_device=mean, iterations=n,
    seconds=time.monotonic() - began, checks=n // 10 + 1, verified_products=0, wrong_elements=0)
say("done", stopped=stopped, figures=figures)
"""


def worker(slow: int = -1, broken: int = -1, lag: float = 120.0) -> str:
    """Its body; one device is so many TFLOP/s behind the others, and one has too little memory."""
    return f"SLOW, BROKEN, LAG = {slow}, {broken}, {lag}\n{WORKER}"
