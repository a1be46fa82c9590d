"""Service in virtual time: weights, idle flows, debts, and how many accounts are kept."""

from hypothesis import given, strategies as st

from policies.queueing.accounts import IDLE_KEPT, IDLE_MAX, Account, Accounts


def waits(accounts: Accounts, name: str, weight: float = 1.0) -> Account:
    account = accounts.of(name, weight)
    accounts.begins(account)
    return account


def test_a_charge_counts_by_weight() -> None:
    accounts = Accounts()
    account = accounts.of("a", 4.0)
    account.add(100.0)
    assert account.counter == 25.0
    account.add(-20.0)
    assert account.counter == 20.0
    assert accounts.peak == 25.0  # the highest counter of any account


def test_when_no_account_waits_all_differences_are_forgotten() -> None:
    accounts = Accounts()
    debtor, other = waits(accounts, "debtor"), waits(accounts, "other")
    debtor.add(70.0)
    accounts.ends(debtor)
    accounts.ends(other)
    other = waits(accounts, "other")
    assert other.counter == 70.0
    assert accounts.of("new", 1.0).counter == 70.0


def test_an_account_that_was_charged_while_it_was_idle_is_kept_by_its_new_counter() -> None:
    accounts = Accounts()
    busy = waits(accounts, "busy")
    late = accounts.correct("late", 1.0, 1.0)
    for number in range(IDLE_KEPT - 1):
        accounts.correct(f"u{number}", 1.0, 5.0)
    accounts.correct("late", 1.0, 500.0)  # its position in the heap is that of its first charge
    busy.add(2.0)
    accounts.reaches(2.0)
    accounts.correct("more", 1.0, 5.0)
    assert accounts.by_name["late"] is late
    assert late.counter == 501.0


def test_idle_accounts_are_bounded_even_if_all_have_an_excess() -> None:
    accounts = Accounts()
    waits(accounts, "busy")
    for number in range(IDLE_MAX + 500):
        accounts.correct(f"u{number}", 1.0, 1.0 + number)
    assert len(accounts) <= IDLE_MAX + 1
    assert f"u{IDLE_MAX + 499}" in accounts.by_name  # the largest debts are kept


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "end", "correct", "serve"]),
        st.integers(0, 99),
        st.floats(-50.0, 50.0),
    ),
    max_size=200,
)


@given(STEPS)
def test_what_holds_whatever_happens(steps: list[tuple[str, int, float]]) -> None:
    accounts, waiting, time = Accounts(), dict[str, int](), 0.0
    for act, number, amount in steps:
        name = f"u{number}"
        if act == "begin":
            account = waits(accounts, name)
            assert account.counter >= accounts.time or waiting.get(name)
            waiting[name] = waiting.get(name, 0) + 1
        elif act == "end" and waiting.get(name):
            accounts.ends(accounts.by_name[name])
            waiting[name] -= 1
        elif act == "correct":
            accounts.correct(name, 1.0, amount)
        elif act == "serve" and waiting.get(name):
            accounts.reaches(min(accounts.by_name[n].counter for n, c in waiting.items() if c))
            accounts.by_name[name].add(abs(amount))
        assert accounts.time >= time
        time = accounts.time
        for other, count in waiting.items():
            if count:
                assert accounts.by_name[other].waiting == count
        alive = sum(1 for count in waiting.values() if count)
        assert accounts._backlogged == alive
        assert len(accounts) <= alive + IDLE_MAX
