from types import SimpleNamespace
from typing import Any, NamedTuple

from gputop.ui.drawing.cells import text_of
from gputop.ui.drawing.list_state import Column, ListState
from gputop.ui.drawing.list_view import ListView
from gputop.ui.hosts.screen import HostsView
from gputop.ui.processes.columns import COLUMNS, GPU, HOST, process_slots
from gputop.ui.processes.ranks import RanksView
from gputop.ui.processes.users import UsersView
from gputop.ui.telemetry import Telemetry


class Pet(NamedTuple):
    name: str
    age: int | None


NAME = Column[Pet]("NAME", 8, lambda pet: pet.name, lambda pet: pet.name, right=False)
AGE = Column[Pet]("AGE", 4, lambda pet: str(pet.age), lambda pet: pet.age, largest_first=True)
REST = Column[Pet]("WORDS", 0, lambda pet: f"{pet.name} is {pet.age}", right=False)


class Pets(ListState[Pet]):
    def identity(self, item: Pet) -> str:
        return item.name

    def search_text(self, item: Pet) -> str:
        return item.name.casefold()


def view_of(*pets: Pet, sorted_by: Column[Pet] | None = AGE) -> ListView[Pet]:
    state = Pets(sorted_by)
    state.fill(pets)
    view = ListView(state, (NAME, AGE, REST))
    view.noun = "pets"
    return view


def texts(view: ListView[Pet], width: int = 40, height: int = 10) -> list[str]:
    return [text_of(row).rstrip() for row in view.draw(width, height)]


def names(view: ListView[Pet]) -> list[str]:
    return [pet.name for pet in view.state.lines]


def crowd(many: int = 9) -> ListView[Pet]:
    return view_of(*(Pet(f"pet{n}", n) for n in range(many)), sorted_by=None)


def test_items_are_sorted_and_unknown_values_come_last_in_both_directions() -> None:
    view = view_of(Pet("ape", 3), Pet("bee", None), Pet("cat", 9))
    assert names(view) == ["cat", "ape", "bee"]
    assert "AGE▼" in texts(view)[0]
    view.state.sort_by(AGE)
    assert names(view) == ["ape", "cat", "bee"]
    assert "AGE▲" in texts(view)[0]


def test_the_selection_follows_its_item_and_stays_in_place_when_that_is_gone() -> None:
    view = view_of(Pet("ape", 3), Pet("bee", 5), Pet("cat", 9))
    view.state.select(1)
    view.state.fill([Pet("bee", 99), Pet("cat", 9), Pet("ape", 3)])
    assert view.selected == Pet("bee", 99)
    view.state.select(1)
    view.state.fill([Pet("dog", 7), Pet("ape", 3)])
    assert view.selected == Pet("ape", 3)


def test_the_list_scrolls_to_the_selection_and_counts() -> None:
    view = crowd()
    view.state.select(8)
    shown = texts(view, height=5)
    assert shown[1].split()[0] == "pet6"
    assert shown[3].startswith("▌ pet8")
    assert shown[4].split(" · ")[0] == "  7 to 9 of 9 pets"


def test_columns_and_their_cells(snapshot: Any) -> None:
    hosts: Any = SimpleNamespace(has_hosts=True)
    ranks = RanksView(hosts)
    found = []
    for width in (60, 100, 160, 240):
        for slots in (
            process_slots(width, GPU, (HOST, *COLUMNS)),
            ranks.slots(width),
            HostsView().slots(width),
            UsersView(Telemetry(), list).slots(width),
        ):
            found.append(", ".join(f"{slot.column.title} {slot.cells}" for slot in slots))
    assert "\n".join(found) == snapshot


def test_no_match_and_no_item_are_said_and_columns_are_dropped_from_the_end() -> None:
    view = crowd(2)
    assert texts(view, 16)[0].split() == ["NAME", "AGE"]
    assert texts(view, 25)[0].split() == ["NAME", "AGE", "WORDS"]
    view.state.set_filter("cow")
    assert texts(view, height=6)[1] == "  No pets with all of these words"
    assert texts(view_of()) == ["  No pets"]
