import pynvml
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputop.agent import words as agent_words
from gputop.agent.words import CLOCK_EVENT_BITS, clock_event_words
from gputop.schema.clock_events import BY_WORD, CLOCK_EVENTS, gravest, mask_of

NAMED = {
    "idle": pynvml.nvmlClocksEventReasonGpuIdle,
    "application_clocks": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
    "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
    "hw_slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
    "sw_thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hw_thermal": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "hw_power_brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    "display_clocks": pynvml.nvmlClocksEventReasonDisplayClockSetting,
}


def test_the_bits_are_those_of_nvml() -> None:
    assert CLOCK_EVENT_BITS == NAMED
    assert mask_of(CLOCK_EVENT_BITS) == 0x1FF
    assert list(CLOCK_EVENT_BITS) == [*clock_event_words(0x1FF)]
    assert len(BY_WORD) == len(CLOCK_EVENTS)


def test_the_words_are_those_of_nvml() -> None:
    assert {*range(2, 11)} < agent_words.ARCHITECTURES.keys()
    for words, start in (
        (agent_words.ARCHITECTURES, "DEVICE_ARCH"),
        (agent_words.COMPUTE_MODES, "COMPUTEMODE"),
        (agent_words.ON_OR_OFF, "FEATURE"),
        (agent_words.RECOVERY_ACTIONS, "GPU_RECOVERY_ACTION"),
        (agent_words.VIRTUALIZATIONS, "GPU_VIRTUALIZATION_MODE"),
    ):
        for number, word in words.items():  # old bindings lack the newest ones
            assert getattr(pynvml, f"NVML_{start}_{word.upper()}", number) == number


@given(st.integers(0, (1 << 64) - 1))
@example(0x600)
@example((1 << 64) - 1)
def test_any_mask_can_be_made_again(mask: int) -> None:
    words = clock_event_words(mask)
    assert len(words) == mask.bit_count()
    assert mask_of(words) == mask
    assert clock_event_words(0x604) == ("sw_power_cap", "bit_0x200", "bit_0x400")


@pytest.mark.parametrize(
    ("words", "mask"),
    [
        ((), 0),
        (("board_limit",), 0x200),
        (("sw_power_cap", "reliability"), 0x404),
        (("bit_0x600",), 0x600),
        (("thermal", "low_utilization", "of another gputop", "bit_", "bit_0xzz", ""), 0),
    ],
)
def test_words_of_other_versions(words: tuple[str, ...], mask: int) -> None:
    """Recordings of gputop 0.1 call two bits by words that nvml.h does not have."""
    assert mask_of(words) == mask


def test_the_gravest_explains_the_others() -> None:
    found = gravest(("hw_slowdown", "idle", "hw_thermal"))
    assert found is not None
    assert found.word == "hw_thermal"
    assert gravest(("idle", "sw_power_cap", "bit_0x200", "board_limit")) is None
