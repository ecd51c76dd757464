"""What is held of unfinished messages, over all connections."""

from guard.pep.message_budget import MessageBudget


def test_many_large_messages_do_not_keep_short_ones_out():
    """Whoever holds more than an equal share goes; whoever holds less stays."""
    budget = MessageBudget(limit=1000)
    held = [number for number in range(20) if budget.hold(number, 240)]
    assert budget.total <= 1000
    assert len(held) == 4
    assert all(budget.hold(100 + number, 20) for number in range(10))
    assert not budget.hold(held[0], 900)


def test_there_is_an_end_to_small_messages_too():
    """Neither their number nor their sum grows for ever."""
    budget = MessageBudget(limit=1000, count=50)
    assert sum(budget.hold(number, 0) for number in range(100)) == 50
    budget = MessageBudget(limit=1000, count=10**6)
    for number in range(100_000):
        budget.hold(number, 5)
    assert budget.total <= 2000
