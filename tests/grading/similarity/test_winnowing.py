from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlhood.grading.similarity.syntax_tokens import SyntaxToken
from mlhood.grading.similarity.winnowing import WINDOW, K, fingerprints, winnow

KINDS = st.lists(st.sampled_from("abcd"), max_size=60)


def tokens(kinds: list[str]) -> list[SyntaxToken]:
    return [SyntaxToken(kind, line) for line, kind in enumerate(kinds, start=1)]


@given(KINDS, KINDS, KINDS, KINDS, st.lists(st.sampled_from("abcd"), min_size=K + WINDOW - 1, max_size=40))
def test_every_passage_of_the_guaranteed_length_is_found(before, after, above, below, passage):
    first, second = winnow(tokens(before + passage + after)), winnow(tokens(above + passage + below))
    assert first.keys() & second.keys()


@given(KINDS)
def test_a_fingerprint_is_the_hash_of_a_k_gram(kinds):
    selected = winnow(tokens(kinds))
    assert bool(selected) == (len(kinds) >= K)
    hashes = {print_ for i in range(len(kinds) - K + 1) for print_ in winnow(tokens(kinds[i : i + K]))}
    assert selected.keys() <= hashes


@given(st.permutations("abcdefghijklmnopqrstuvwx"))
def test_nothing_shorter_than_k_is_found(letters):
    first, second = list(letters), [letter.upper() for letter in letters]
    second[5 : 5 + K - 1] = first[3 : 3 + K - 1]
    assert not winnow(tokens(first)).keys() & winnow(tokens(second)).keys()


def test_few_hashes_are_selected():
    kinds = [str(i * i % 1009) for i in range(1000)]
    selected = winnow(tokens(kinds))
    # the paper's density: 2 of WINDOW + 1 hashes
    assert 0.5 * 2 / (WINDOW + 1) < len(selected) / 1000 < 1.5 * 2 / (WINDOW + 1)


def test_fingerprints_have_their_lines():
    source = "x = f(a)\n" * 3 + "\n\n" + "y = [np.pad(row, 2) for row in z if row > 3 and row < 9]\n"
    assert 6 in set().union(*fingerprints(source).values())
    assert not {4, 5} & set().union(*fingerprints(source).values())
