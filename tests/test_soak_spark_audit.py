"""The audit of the soak with Spark finds what it is there to find."""

from soak_spark_audit import Reading, Reset, Story, Trouble, audit, spans

PLACE = ("t", 0, 0)


def read(who: str, at: float, first: int, last: int, life: int = 1, batch: int = 0) -> Reading:
    return Reading(who, life, at, batch, ((PLACE, first, last),))


def test_every_record_once() -> None:
    verdict = audit(Story([read("a", 1, 0, 9), read("b", 2, 10, 19)], ends={PLACE: 20}))
    assert (verdict.broken, verdict.records, verdict.again) == ([], 20, {})


def test_a_record_that_nobody_read() -> None:
    verdict = audit(Story([read("a", 1, 0, 9), read("b", 2, 12, 19)], ends={PLACE: 21, ("t", 0, 1): 3}))
    assert verdict.broken == [
        "t-0: 3 of 21 records were never read: 10-11, 20",
        "t-1: 3 of 3 records were never read: 0-2",
    ]


def test_of_a_topic_that_is_gone_the_beginning_must_have_been_read() -> None:
    assert audit(Story([read("a", 1, 0, 9)])).broken == []
    assert audit(Story([read("a", 1, 5, 9)])).broken == ["t-0: 5 of 10 records were never read: 0-4"]


def test_a_record_read_twice_for_no_reason() -> None:
    later = [Trouble("a kill", 9, "a", 1), Trouble("a kill", 1, "b", 1), Trouble("a broker's kill", 9)]
    verdict = audit(Story([read("a", 1, 0, 9), read("b", 2, 9, 19, batch=1)], later, ends={PLACE: 20}))
    assert verdict.broken == ["t-0: 1 records were read by a.1 and then b.1, for no reason that the docs allow"]


def test_reasons_to_read_again() -> None:
    twice = [read("a", 1, 0, 9), read("b", 4, 5, 19, batch=1)]
    for story, why in (
        (Story(twice, [Trouble("a kill", 2, "a", 1)]), "a kill of the member that read it first"),
        (Story(twice, [Trouble("a broker's kill", 2)]), "a broker's kill"),
        (Story(twice, resets=[Reset(PLACE, 2, 5)]), "an operator's reset"),
        (
            Story([read("a", 1, 0, 9, batch=3), read("a", 2, 5, 19, life=2, batch=3)]),
            "a batch that its checkpoint repeats",
        ),
    ):
        verdict = audit(story)
        assert verdict.again == {why: 5} and not verdict.broken
    assert audit(Story(twice, resets=[Reset(PLACE, 2, 6)])).again == {"an operator's reset": 4, "no reason": 1}


def test_spans() -> None:
    assert spans([3, 1, 2, 7]) == "1-3, 7" and spans([1, 3, 5, 7, 9, 11]) == "1, 3, 5, 7, 9, …"
