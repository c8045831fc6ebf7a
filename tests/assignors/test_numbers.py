"""Partition numbers in order: a set like any other, whatever it is made of."""

from random import Random

from kohort.assignors.numbers import Numbers, numbers_in


def test_it_is_the_set_of_its_numbers():
    random = Random(1)
    for _ in range(300):
        plain = frozenset(random.sample(range(40), random.randint(0, 12)))
        numbers = Numbers.of(plain)
        assert numbers == plain and plain == numbers and hash(numbers) == hash(plain)
        assert list(numbers) == sorted(plain) and len(numbers) == len(plain)
        assert all((number in numbers) == (number in plain) for number in range(-1, 41)) and "x" not in numbers
        assert numbers_in(numbers.mask) == tuple(sorted(plain)) == numbers_in(numbers.mask)
        other = frozenset(random.sample(range(40), 5))
        assert numbers.with_these(other) == plain | other and numbers & other == plain & other
        assert numbers - other == plain - other and numbers | other == plain | other


def test_what_has_no_gaps_is_a_range_however_it_came():
    assert type(Numbers.of([3, 1, 2]).ordered) is range and type(Numbers.of([1, 3]).ordered) is tuple
    assert Numbers.of([3, 1, 2]) == Numbers(range(1, 4)) != Numbers(range(1, 5))


def test_large_numbers_keep_no_mask():
    numbers = Numbers.of([1, 1 << 20])
    assert numbers_in(numbers.mask) == (1, 1 << 20) and numbers._mask == -1
