import subprocess
import sys


def test_no_thread_starts_while_the_program_ends() -> None:
    """Until Python 3.12 one that does may crash it: `Segmentation fault` after the last output."""
    program = """if True:
        import atexit, threading

        started = 0
        def after_it() -> None:  # what is registered first is called last
            before, _ = started, threading.Event().wait(0.2)
            print("went on" if started > before else "stopped", before > 0)
        atexit.register(after_it)

        from gputop.agent.threads import start_daemon

        some = threading.Event()
        def start_more() -> None:
            global started
            while True:
                start_daemon(some.set)
                started += 1
        threading.Thread(target=start_more, daemon=True).start()
        some.wait()
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"stopped True\n"
    assert not done.stderr
