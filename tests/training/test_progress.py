import pytest

from gputop.training.progress import Counter, Point, Progress, rates
from gputop.training.steps import OTHER_BAR, StepReading


def counter(*steps: tuple[float, int]) -> Counter:
    made = Counter("bar")
    for time, step in steps:
        made.add(step, 100, time)
    return made


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    slow = [(float(t), t) for t in range(100)]
    fast = [(99 + t / 4, 99 + t) for t in range(1, 201)]
    assert counter(*slow).rate(99) == pytest.approx(1.0)
    assert counter(*slow, *fast).rate(149) == pytest.approx(4.0)


def test_slow_steps_are_counted_over_a_longer_time() -> None:
    assert counter((0, 0), (120, 1), (180, 2), (240, 3)).rate(240) == 3 / 240
    assert counter((0, 0), (100, 1), (110, 2), (120, 3), (130, 4)).rate(130) == 3 / 30
    assert counter((0, 0), (100, 1), (110, 1), (120, 2), (130, 3)).rate(130) == 3 / 130


def test_two_points_make_a_rate() -> None:
    assert counter((0, 7)).rate(0) is None
    assert counter((0, 7), (60, 8)).rate(60) == 1 / 60
    assert counter((0, 7), (0.5, 12)).rate(0.5) == 10
    assert counter((0, 7), (0, 12)).rate(0) is None
    assert counter((0, 7), (10, 90)).rate(10) is None


def test_the_rate_falls_while_no_step_ends() -> None:
    made = counter(*[(float(t), t) for t in range(20)])
    assert made.rate(20.0) == pytest.approx(1.0)
    assert made.rate(21.1) == pytest.approx(19 / 21.1)
    fast = counter(*[(t / 10, t) for t in range(201)])
    assert [fast.rate(22.0), fast.rate(22.1)] == pytest.approx([10, 200 / 22.1])
    assert made.rate(39.0) == pytest.approx(10 / 30)  # ten steps since half a minute ago


@pytest.mark.parametrize(
    ("total", "before", "after", "seconds", "done"),
    [
        (100, 11, 3, 1, None),  # a slower rank
        (100, 12, 3, 1, 3),  # the next epoch
        (100, 50, 25, 1, None),
        (100, 50, 24, 1, 24),
        (100, 50, 45, 29.9, None),
        (100, 50, 45, 30, 45),
        (100, 50, 50, 30, None),
        (100, 10, 60, 1, 50),
        (100, 10, 61, 1, 0),  # a checkpoint
        (5, 5, 0, 1, 0),  # a short bar begins again
        (6, 5, 0, 1, None),
        (3, 0, 2, 1, 0),
        (2, 0, 2, 1, 2),
        (None, 10, 99, 1, 89),
    ],
)
def test_a_step_counts_if_it_is_of_this_rank(
    total: int | None, before: int, after: int, seconds: float, done: int | None
) -> None:
    made = Counter("bar")
    made.add(before, total, 0.0)
    made.add(after, total, seconds)
    assert [*made.points][1:] == ([] if done is None else [Point(seconds, done)])


def test_a_counter_is_open_for_some_time() -> None:
    for step, total, seconds in ((99, 100, 600), (100, 100, 60), (5, None, 60)):
        made = Counter("bar")
        made.add(step, total, 0.0)
        assert [made.is_open(seconds), made.is_open(seconds + 0.1)] == [True, False]


def test_the_main_counter_has_most_steps() -> None:
    progress = Progress()
    for t in range(100):
        progress.add(StepReading("bar", t), float(t))
        progress.add(StepReading("bar epochs", t // 10), float(t))
    assert progress.main(100.0) is progress.counters["bar"]


def test_the_bar_of_an_evaluation_is_movement_but_no_step() -> None:
    progress = Progress()
    for reading, time, moved_at in (
        (StepReading("bar 100", 7, 100), 5.0, 5.0),
        (StepReading("log", None, None, {"loss": 1.0}), 8.0, 5.0),
        (OTHER_BAR, 90.0, 90.0),
    ):
        progress.add(reading, time)
        assert progress.moved_at == moved_at
    main = progress.counters["bar 100"]
    assert progress.main(90.0) is main
    assert (main.step, main.last_time) == (7, 5.0)


def test_a_counter_at_its_end_gives_way_to_one_that_goes_on() -> None:
    progress = Progress()
    for t in range(101):  # the files are prepared
        progress.add(StepReading("bar 100", t, 100), float(t))
    for t in range(200):
        progress.add(StepReading("bar 1000", t // 10, 1000), 101.0 + t / 10)
    files, steps = progress.counters.values()
    assert [progress.main(now) for now in (110.0, 121.0, 165.0)] == [files, files, steps]


def test_values_are_kept_with_their_times() -> None:
    progress = Progress()
    progress.add(StepReading("log", 1, None, {"train_loss": 2.0}), 5.0)
    assert progress.latest("loss") == 2.0
    for time, loss in ((6.0, 2.0), (6.1, 2.0), (6.2, 1.5)):
        progress.add(StepReading("log", None, None, {"train_loss": loss}), time)
    kept = [Point(5.0, 2.0), Point(6.1, 2.0), Point(6.2, 1.5)]
    assert list(progress.values["train_loss"]) == kept
    assert progress.latest("accuracy") is None


def test_steps_are_spread_over_the_columns_of_a_chart() -> None:
    points = [Point(0, 0), Point(10, 10), Point(20, 30)]
    assert rates(points, [-5, 0, 5, 10, 15, 20, 25]) == [None, 1, 1, 2, 2, None]
    assert rates([], [0, 1]) == [None]
