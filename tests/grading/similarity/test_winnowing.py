from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlhood.grading.similarity.syntax_tokens import Token
from mlhood.grading.similarity.winnowing import WINDOW, K, fingerprints, winnowed

KINDS = st.lists(st.sampled_from("abcd"), max_size=60)


def tokens(kinds: list[str]) -> list[Token]:
    return [Token(kind, at + 1) for at, kind in enumerate(kinds)]


@given(KINDS, KINDS, KINDS, KINDS, st.lists(st.sampled_from("abcd"), min_size=K + WINDOW - 1, max_size=40))
def test_every_passage_of_the_guaranteed_length_is_found(before, after, above, below, passage):
    one, other = winnowed(tokens(before + passage + after)), winnowed(tokens(above + passage + below))
    assert one.keys() & other.keys()


@given(KINDS)
def test_a_fingerprint_is_a_hash_of_k_tokens_that_are_there(kinds):
    found = winnowed(tokens(kinds))
    assert bool(found) == (len(kinds) >= K)
    every = {mark for at in range(len(kinds) - K + 1) for mark in winnowed(tokens(kinds[at : at + K]))}
    assert found.keys() <= every


@given(st.permutations("abcdefghijklmnopqrstuvwx"))
def test_nothing_shorter_than_k_is_found(letters):
    one, other = list(letters), [letter.upper() for letter in letters]
    other[5 : 5 + K - 1] = one[3 : 3 + K - 1]
    assert not winnowed(tokens(one)).keys() & winnowed(tokens(other)).keys()


def test_few_hashes_are_kept():
    kinds = [str(number * number % 1009) for number in range(1000)]
    found = winnowed(tokens(kinds))
    # the paper's density: 2 of WINDOW + 1 hashes
    assert 0.5 * 2 / (WINDOW + 1) < len(found) / 1000 < 1.5 * 2 / (WINDOW + 1)


def test_fingerprints_know_their_lines():
    source = "x = f(a)\n" * 3 + "\n\n" + "y = [np.pad(one, 2) for one in z if one > 3 and one < 9]\n"
    assert 6 in set().union(*fingerprints(source).values())
    assert not {4, 5} & set().union(*fingerprints(source).values())
