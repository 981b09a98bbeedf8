import pytest

from gputop.training.lines import LINE_CHARACTERS, PlainLines
from gputop.training.steps import OTHER_BAR, StepReading, parse_line, pattern_parser

LINES = [
    # tqdm, as it is and in Lightning
    (
        "Epoch 1:  45%|████▌     | 450/1000 [00:12<00:15, 36.2it/s, loss=2.31, v_num=0]",
        StepReading("bar Epoch 1000", 450, 1000, {"loss": 2.31}),
    ),
    (" 10%|█         | 50/500 [00:05<00:45,  9.9it/s]", StepReading("bar 500", 50, 500)),
    (" 10%|#         | 50/500 [00:05<00:45,  1.9s/it]", StepReading("bar 500", 50, 500)),
    ("450it [00:12, 36.2it/s, loss=1.5]", StepReading("bar", 450, None, {"loss": 1.5})),
    ("  1%| | 1.20k/100k [00:01<00:15, 1.2kit/s]", StepReading("bar 100000", 1200, 100_000)),
    (
        "  0%| | 1.2M/3G [00:01<00:15, 1.2Mit/s]",
        StepReading("bar 3000000000", 1_200_000, 3 * 10**9),
    ),
    # Trainer of transformers: the bar and the log on one line, and the log alone
    (
        " 31%|███ | 155/500 [00:10<00:22, 15.2it/s]{'loss': 0.69, 'epoch': 0.3}",
        StepReading("bar 500", 155, 500, {"loss": 0.69, "epoch": 0.3}),
    ),
    (
        "{'loss': 2.31, 'learning_rate': 5e-05, 'epoch': 0.5}",
        StepReading("log", None, None, {"loss": 2.31, "learning_rate": 5e-05, "epoch": 0.5}),
    ),
    (
        "{'loss': '2.31', 'learning_rate': '5e-05'}",
        StepReading("log", None, None, {"loss": 2.31, "learning_rate": 5e-05}),
    ),
    # bars of rich in Lightning, and of Keras
    (
        "Epoch 0/9 ━━━━━━━━━━ 12/100 0:00:01 • 0:00:07 12.50it/s v_num: 0.000 loss: 2.300",
        StepReading("bar Epoch / 100", 12, 100, {"loss": 2.3}),
    ),
    (
        "120/1000 ━━━━━━━━━━ 12s 34ms/step - accuracy: 0.5 - loss: 2.3000",
        StepReading("bar 1000", 120, 1000, {"accuracy": 0.5, "loss": 2.3}),
    ),
    # torchtune, with the step and the loss in the description of its bar
    (
        "1|120|Loss: 2.3145:  12%|█▏        | 120/1000 [00:12<01:28,  9.9it/s]",
        StepReading("bar Loss: . 1000", 120, 1000, {"loss": 2.3145}),
    ),
    # logged lines
    (
        "INFO | train_inner | epoch 001:     20 / 1200 loss=9.8, num_updates=20, lr=1e-5",
        StepReading("log", 20, None, {"loss": 9.8}),
    ),
    ("step 120 loss 2.31", StepReading("log", 120, None, {"loss": 2.31})),
    ("step: 120/1000, loss: 2.3", StepReading("log", 120, 1000, {"loss": 2.3})),
    ("iter 120: loss 2.3045, time 35.20ms", StepReading("log", 120, None, {"loss": 2.3045})),
    ("Epoch [1/10], Step [100/600], Loss: 0.2", StepReading("log", 100, 600, {"loss": 0.2})),
    ("Epoch: [0] [ 120/1000] lr: 0.1 loss: 2.3 (2.4)", StepReading("log", 120, 1000)),
    ("INFO:root:step=100, train_loss=0.5", StepReading("log", 100, None, {"train_loss": 0.5})),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.31", StepReading("log", None, None, {"loss": 2.31})),
    # JSON lines
    (
        '{"step": 120, "loss": 2.31, "lr": 0.0001}',
        StepReading("json", 120, None, {"loss": 2.31, "lr": 0.0001}),
    ),
    ('{"global_step": 7, "train/loss": 1}', StepReading("json", 7, None, {"train/loss": 1.0})),
    # no steps of a training
    ("Evaluating:  10%|█| 1/10 [00:00<00:01, 3it/s]", OTHER_BAR),
    ("Validation DataLoader 0: 50%|█| 5/10 [00:00<00:01, 3it/s]", OTHER_BAR),
    ("Sanity Checking: |          | 0/? [00:00<?, ?it/s]", None),
    ("val step 3 loss 2", None),
    ("took 120 steps", None),
    ("2026-11-28 loading checkpoint 3 of 7", None),
    ('{"level": "info", "message": "started"}', None),
    ("{broken", None),
    ("", None),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line[:40] for line, _ in LINES])
def test_a_line_tells_its_step_and_values(line: str, expected: StepReading | None) -> None:
    found = parse_line(line)
    if found is None or expected is None:
        assert found == expected
        return
    assert (found.counter, found.step, found.total) == (
        expected.counter,
        expected.step,
        expected.total,
    )
    assert dict(expected.values).items() <= dict(found.values).items()


@pytest.mark.parametrize(
    ("values", "loss"),
    [
        ({"loss": 2.0, "val_loss": 3.0}, 2.0),
        ({"lr": 0.1, "train_loss": 1.5}, 1.5),
        ({"train/loss": 1.25}, 1.25),
        ({"lossless": 1.0}, None),
    ],
)
def test_the_loss_is_found_by_its_name(values: dict[str, float], loss: float | None) -> None:
    assert StepReading("log", 1, None, values).loss == loss


def test_a_pattern_names_step_and_values_by_its_groups() -> None:
    parse = pattern_parser(r"at (?P<step>\d+) of (?P<total>\d+): L=(?P<loss>[\d.]+)(?P<note> \w+)?")
    assert parse("at 12 of 90: L=0.5 fine") == StepReading("pattern", 12, 90, {"loss": 0.5})
    assert parse("something else") is None


@pytest.mark.parametrize(("pattern", "why"), [("(", "not a regular"), (r"\d+", "no group")])
def test_a_wrong_pattern_is_refused_with_its_reason(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        pattern_parser(pattern)


@pytest.mark.parametrize(
    "text",
    [
        "{a" + "1" * 4000 + "x",
        "loss: " + "1" * 580 + "x",
        "{a" + " " * 4000 + "x",
        '{"a":' + "[" * 4000,
        "━" * 590 + "1",
        "1" * 590 + "%|",
        "\x1b]" * 8000,
        "\x1bP" * 8000 + "a" * 8000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_a_megabyte_of_hostile_output_is_read(text: str) -> None:
    """With backtracking some of these take from a minute to hours."""
    output = PlainLines()
    data = f"{text}\n".encode()
    for _ in range(2**20 // len(data)):
        for line in output.feed(data):
            assert len(line) <= LINE_CHARACTERS
            assert parse_line(line) is None
