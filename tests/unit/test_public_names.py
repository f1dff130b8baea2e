"""What `from changeover import ...` offers."""

from types import ModuleType

import changeover
from changeover_shared._events import _KNOWN


def test_all_is_sorted_and_is_exactly_what_is_public() -> None:
    public = {
        name
        for name, value in vars(changeover).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(changeover.__all__) == public
    assert list(changeover.__all__) == sorted(changeover.__all__)


def test_every_event_can_be_matched_by_its_name() -> None:
    for kind in _KNOWN.values():
        names = (kind.__name__, f"{kind.__name__}Event")
        assert any(getattr(changeover, name, None) is kind for name in names), kind


def test_the_synchronous_twins_have_the_methods_of_the_asynchronous_ones() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert methods(changeover.SyncClient) == methods(changeover.Client) - {"aclose"} | {"close"}
    assert methods(changeover.SyncOperator) - methods(changeover.SyncClient) == {
        "doctor",
        "drain",
        "evict",
        "explain",
        "pause",
        "payload_keys",
        "purge",
        "quarantine",
        "quarantined",
        "queues",
        "redrive",
        "reroute",
        "resume",
        "watch",
        "workers",
    }
