"""The recorder keeps what it hears."""

from furcate.observers import Recorder
from furcate.primitives._observations import (
    AttemptsPaused,
    NurseryFinished,
    Observation,
    Observer,
    RunFinished,
    RunStarted,
    TurnDelivered,
)
from furcate.primitives._usage import UNKNOWN


def _started(run_id: str) -> RunStarted:
    return RunStarted(
        run_id=run_id, parent_run_id=None, prompt=None, profile="p", backend="b", model="m", dialect="openai-chat"
    )


def _finished(run_id: str) -> RunFinished:
    return RunFinished(
        run_id=run_id,
        status="succeeded",
        duration_s=1.0,
        usage=UNKNOWN,
        attempts=1,
        repairs=0,
        validation="not_requested",
    )


_EVENTS: tuple[Observation, ...] = (
    TurnDelivered(scope_id="s", remaining=2),
    _started("a"),
    _started("b"),
    AttemptsPaused(run_id="a", wait_s=1.0, failure_kind="rate_limited"),
    _finished("b"),
    _finished("a"),
    NurseryFinished(scope_id="n", status="succeeded", branches=1),
)


def _recorded() -> Recorder:
    recorder = Recorder()
    for event in _EVENTS:
        recorder.on_event(event)
    return recorder


def test_a_recorder_keeps_the_order() -> None:
    """Everything that was told is there, in order, and it is an observer."""
    recorder = _recorded()
    assert isinstance(recorder, Observer)
    assert recorder.events == _EVENTS
    assert repr(recorder) == "<Recorder of 7 observations>"


def test_what_a_recorder_gave_does_not_grow() -> None:
    """A tuple taken earlier stays as it was."""
    recorder = Recorder()
    before = recorder.events
    recorder.on_event(_started("a"))
    assert before == ()
    assert len(recorder.events) == 1


def test_observations_of_one_class_are_picked_out() -> None:
    """Only events of the class that is asked for are given, in order."""
    recorder = _recorded()
    assert [event.run_id for event in recorder.of(RunFinished)] == ["b", "a"]
    assert [event.remaining for event in recorder.of(TurnDelivered)] == [2]


def test_observations_are_sorted_by_run() -> None:
    """Each run has its own events in order; what belongs to no run is left out."""
    assert _recorded().runs() == {"a": (_EVENTS[1], _EVENTS[3], _EVENTS[5]), "b": (_EVENTS[2], _EVENTS[4])}
