from router.app.restart.handover import refusal
from router.app.restart.predecessor import awaited, may_take_over, unanswered


def why(pid: int = 7, successor: int = 0, starting: bool = False, draining: bool = False) -> str:
    return refusal(pid, successor, is_starting=starting, is_draining=draining)


def test_a_process_that_serves_may_be_replaced() -> None:
    assert why() == ""


def test_a_process_is_replaced_once_and_one_at_a_time() -> None:
    assert "8" in why(successor=8)
    assert "8" in why(successor=8, draining=True)  # the most useful reason
    assert "in progress" in why(starting=True)
    assert "drains" in why(draining=True)


def test_the_first_process_of_a_container_is_not_replaced() -> None:
    assert "container" in why(pid=1)


def test_a_new_process_waits_for_the_replicas_that_the_old_one_uses() -> None:
    assert awaited("ab", "abc", "a") == {"b"}
    assert awaited("ab", "abc", "abc") == set()
    assert awaited("ab", "ac", "a") == set()  # b is not in the new configuration
    assert awaited("", "abc", "") == set()


def test_a_new_process_waits_for_the_sources_that_have_answered_the_old_one() -> None:
    assert unanswered(["a", "b"], ["a", "b", "c"], ["a"]) == ["b"]
    assert unanswered(["a", "b"], ["a"], ["a"]) == []  # b is not in the new configuration
    assert unanswered([], ["a"], []) == []


def test_a_process_without_replicas_does_not_replace_one_that_serves() -> None:
    assert may_take_over("ab", "a")
    assert not may_take_over("ab", "")
    assert may_take_over("", "")
