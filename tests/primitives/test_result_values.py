"""What a completed run gives back, and what it refuses to make up."""

from typing import Any

import attrs
import pytest

from furcate.primitives._errors import FurcateError, NotCaptured, NotValid
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._json import freeze
from furcate.primitives._message import Message
from furcate.primitives._result import Fault, Result, Validation
from furcate.primitives._usage import UNKNOWN


def _result(validation: Validation | None = None, exchange: Exchange | None = None) -> Result:
    return Result(
        run_id="run-1",
        message=Message.assistant("the answer"),
        stop_reason="end_turn",
        validation=validation or Validation(),
        usage=UNKNOWN,
        attempts=(),
        exchange=exchange,
    )


def test_a_captured_result_gives_its_exchange() -> None:
    """The exchange is the very object that was captured."""
    exchange = Exchange(History([Message.assistant("the answer")]), "run-1")
    result = _result(exchange=exchange)
    assert result.captured
    assert result.exchange is exchange
    assert result.text == "the answer"


def test_a_result_that_was_not_captured_says_so() -> None:
    """Reading its exchange is an error that tells how to ask for one."""
    result = _result()
    assert not result.captured
    with pytest.raises(NotCaptured, match=r"ask for it with Request\(\.\.\., capture=True\)") as caught:
        _ = result.exchange
    assert isinstance(caught.value, FurcateError)


def test_a_value_is_fresh_plain_data() -> None:
    """Each read gives a copy that may be changed."""
    result = _result(Validation(status="passed", value=freeze({"items": [{"a": 1}]})))
    first: Any = result.value
    first["items"][0]["a"] = 2
    first["items"].append(3)
    assert result.value == {"items": [{"a": 1}]}
    assert _result(Validation(status="passed", value=freeze([1, 2]))).value == [1, 2]


@pytest.mark.parametrize("value", [None, False, 0, "", 1.5])
def test_a_scalar_is_a_value_too(value: object) -> None:
    """A checked answer may be any JSON value, null included."""
    assert _result(Validation(status="passed", value=value)).value == value


def test_an_instance_is_given_as_it_is() -> None:
    """Under a contract of a class the value is the instance."""
    instance = Fault("$", "stands for any class")
    assert _result(Validation(status="passed", value=instance)).value is instance


@pytest.mark.parametrize("status", ["not_requested", "failed", "skipped"])
def test_what_did_not_pass_has_no_value(status: Any) -> None:
    """Reading the value is an error that names status, stop reason and the first faults, and holds all of them."""
    faults = tuple(Fault(f"$.items[{number}]", "is too long") for number in range(4)) if status == "failed" else ()
    result = _result(Validation(status=status, faults=faults))
    with pytest.raises(NotValid) as caught:
        _ = result.value
    sentence = f"there is no checked value: validation is {status}, stop reason end_turn"
    listed = "; ".join(f"$.items[{number}]: is too long" for number in range(3))
    assert str(caught.value) == (f"{sentence}; {listed}" if faults else sentence)
    assert caught.value.faults == faults


def test_a_result_shows_no_content_and_cannot_change() -> None:
    """Its text form has neither message nor value, and its attributes are read only."""
    result = _result(Validation(status="passed", value="the value"))
    assert "the answer" not in repr(result)
    assert "the value" not in repr(result)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        result.run_id = "other"  # type: ignore[misc]
