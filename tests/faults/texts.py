"""Text of others that would act on a terminal or on markup."""

from tests.driver import FakeProcess
from tests.e2e.shipped import ESCAPE, GIB
from tests.faults.scenario import KEYS, Key, Scenario, Stage, hides, shows

TEXTS = {
    "csi": "a\x1b[31;7mb\x1b[2J\x1b[977;977Hc",
    "osc8": "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "osc52": "\x1b]52;c;RVZJTA==\x07",
    "dcs": "\x1bP1$rEVIL\x1b\\\x9b31m\x9d52;c;x\x9c",
    "markup": "[red]r[/red] [@click=app.quit]q[/] \\[x]",
    "bidi": "\u202eabc\u202c \u2066x\u2069 \u200f",
    "zero": "z\u200bw\u200dj\ufeff e" + "\u0301" * 40,
    "wide": "宽字符 👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 ｆｕｌｌ 🇩🇪",
    "short": "宽",
    "ctrl": "t\tn\nr\rb\x07n\x01x\x7f",
    "bytes": b"\xff\xfe\xc3(".decode("utf-8", "surrogateescape"),
    "long": "L" * 60_000,
}
SHOWN = (
    "csia␛[31;7mb␛[2J␛[977;977Hc arg",
    "evil␛\\link",
    "osc52␛]52;c;RVZJTA==␇ arg",
    "dcs␛P1$rEVIL␛\\⟨009b⟩31m⟨009d⟩52;c",
    "red] [@click=app.quit]q[",
    "bidi⟨202e⟩abc⟨202c⟩ ⟨2066⟩x⟨2069⟩",
    "zeroz⟨200b⟩w⟨200d⟩j⟨feff⟩ e⟨0301⟩⟨0301⟩",
    "⟨200d⟩👩⟨200d⟩👧",
    "short宽 arg",
    "ctrlt␉n␊r␍b␇n␁x␡ arg",
    "bytes⟨ff⟩⟨fe⟩⟨c3⟩( arg",
    "longLLLLLLLL",
)
"""As commands, with an argument, in what 120 columns leave for them."""
FORBIDDEN = (
    b"\x1b]52",
    b"\x1b]8;",
    b"\x1bP1$r",
    b"\x1b[31;7m",
    b"\x1b[977;977H",
    b"\t",
    *(code.encode() for code in "\x9b\x9d\u202e\u202c\u2066\u200f\u200b\u200d\ufeff\u0301\ufe0f"),
)
"""What none of it may become on the way to the terminal."""
FIRST_PID, FIRST_UID = 4_190_010, 7_000


def raw(text: str) -> bytes:
    """As the kernel or the driver has it."""
    return text.encode("utf-8", "surrogateescape")


def people_the_machine(stage: Stage) -> None:
    for n, (kind, text) in enumerate(TEXTS.items()):
        container = raw(f"c{text}").replace(b"/", b"_").replace(b"\n", b"")
        stage.pretended.write(f"user.{FIRST_UID + n}", raw(f"u{text}")[:200].replace(b"\n", b""))
        stage.pretended.add(
            FIRST_PID + n,
            command=raw(kind + text) + b"\0arg",
            uid=FIRST_UID + n,
            cgroup=b"0::/lxc.payload." + container + b"\n",
            environ=raw(f"A={text}") + b"\0" + raw(f"B{text}=x") + b"\0",
        )
    stage.pretended.write("hostname", raw("h" + TEXTS["csi"] + TEXTS["wide"])[:60])


def holders(stage: Stage) -> None:
    pids = range(FIRST_PID, FIRST_PID + len(TEXTS))
    processes = (FakeProcess(pid, memory_bytes=n * GIB) for n, pid in enumerate(pids, 1))
    stage.driver.change(1, processes=tuple(processes))


SCENARIOS = (
    Scenario(
        name="commands, users and containers of every kind",
        prepare=people_the_machine,
        fault=holders,
        says=SHOWN,
        rows=64,
        unwritten=FORBIDDEN,
        keys=(
            *KEYS,
            Key("3", shows("t Tree", "COMMAND"), "the list"),
            Key("e", shows("Environment "), "its environment"),
            Key(ESCAPE, hides("Environment "), "the list again"),
            Key("1", shows("Tab Processes"), "the monitor"),
        ),
        mend=lambda stage: stage.driver.change(1, processes=()),
        then=("2 Test 2",),
        then_silent=("RVZJTA",),
    ),
)
