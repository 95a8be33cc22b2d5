"""Enumerations, texts with commas, and places behind names."""

from __future__ import annotations

from scanopt_cli.text import at_place, comma_separated, enumerated, few


def test_the_last_of_several_follows_an_and() -> None:
    texts = ["a", "b", "c"]
    assert [enumerated(texts[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_more_than_a_few_are_counted() -> None:
    texts = ["a", "b", "c"]
    told = ["a and 2 more", "a, b and 1 more", "a, b, c", "a, b, c"]
    assert [few(texts, most) for most in range(1, 5)] == told


def test_more_than_a_few_are_counted_after_the_and() -> None:
    texts = ["a", "b", "c"]
    told = ["a and 2 more", "a, b and 1 more", "a, b and c", "a, b and c"]
    assert [enumerated(texts, most) for most in range(1, 5)] == told


def test_texts_between_commas_have_no_blanks_and_are_not_empty() -> None:
    assert comma_separated(" a, b,,") == comma_separated(["a,", " b "]) == ("a", "b")
    assert comma_separated(None) == comma_separated("") == comma_separated([" , "]) == ()


def test_a_place_that_is_not_known_is_left_out() -> None:
    assert (at_place("model.py:4"), at_place(None), at_place("")) == (" (model.py:4)", "", "")
