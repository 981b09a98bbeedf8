from tests.e2e.shipped import DOWN, END, ENTER, ESCAPE, F9, HOME, LEFT, PAGE_DOWN, RIGHT, TAB, UP

Step = str | tuple[int, int] | float
"""Keys, a size of the terminal, or seconds to look at what comes of it."""
SIZE = (160, 50)
SIZES = ((80, 24), (1, 1), (250, 80), (40, 10), (120, 30), (200, 8), SIZE)
ERRANDS: dict[str, tuple[Step, ...]] = {
    "page": (DOWN, ENTER, 1.0, "n", LEFT * 5, RIGHT * 5, "zzaZZa", PAGE_DOWN, "0p", ESCAPE),
    "why": ("w", 1.0, "w", 1.0, DOWN, PAGE_DOWN, UP, ESCAPE),
    "processes": ("3", 1.0, "..,", "tI", f"{DOWN}{END}{HOME}{PAGE_DOWN}", "tI", "1"),
    "tabs": tuple("2312131"),
    "filter": ("/", "train-1", 1.0, ENTER, ESCAPE, ESCAPE),
    "palette": ("\x10", "dens", ESCAPE),
    "help": ("?", 1.0, PAGE_DOWN, ESCAPE),
    "looks": ("c", "c", "c", "T", "T"),
    "pause": (" ", 4.0, f"{DOWN}w", ESCAPE, " "),
    "interval": ("+", 2.0, "-"),
    "environment": (f"{TAB}{DOWN}", "e", 0.6, ESCAPE, TAB),
    "signal": (f"{TAB}{DOWN}", F9, 0.6, ESCAPE, TAB),
    "stress test": ("2", 1.0, "b", 1.0, "y", 8.0, "x", 1.5, f"{DOWN}{UP}", ESCAPE, "1"),
    "recording": ("r", 4.0, "r"),
    "sizes": SIZES,
    "a flurry of sizes": (*((60 + 3 * n, 12 + n) for n in range(40)), SIZE),
    "paste": (f"\x1b[200~{'1 2 3 ' * 500}\x1b[201~",),
}
