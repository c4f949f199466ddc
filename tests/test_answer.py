"""Where the answer stands in a reply."""

import pytest

from geval.reading.answer import Failure, Order, parse_answer, reason_text
from geval.scale import Scale, scale_from

FIVE = Scale.of(1, 2, 3, 4, 5)


def read(text: str, order: Order = "score_first") -> int | str:
    found = parse_answer(text, FIVE, order)
    return found.kind if isinstance(found, Failure) else int(FIVE.values[found])


@pytest.mark.fault("S1")
def test_a_number_in_the_reason_is_not_the_score() -> None:
    assert read("항목 4개 중 2개 누락\n최종 점수: 2", "reason_first") == 2
    assert read("4\n2개 항목이 빠졌다. 점수: 1 은 과하다") == 4


@pytest.mark.fault("S6")
@pytest.mark.fault("P5")
@pytest.mark.fault("P7")
@pytest.mark.parametrize(
    "text",
    [
        '{\n  "score": 4,\n  "reason": "a } b { 5"\n}',
        '```json\n{"score": 4, "reason": "3"}\n```',
        'Here is my verdict: {"reason": "2 of 3", "score": "4"} Thanks.',
        '{"score": 2, "reason": "first thought", "score": 4}',
        '{"detail": {"score": 1}, "score": 4}',
        '{"score": 4, "reason": "cut off in the mid',
        '{"점수": 4, "판단 이유": "값이 같다"}',
    ],
)
def test_json_replies_are_read_at_the_top_level_score_key(text: str) -> None:
    assert read(text) == 4


@pytest.mark.fault("P3")
def test_reasoning_blocks_are_stripped() -> None:
    assert read('<think>maybe 3 {"score": 1}</think>\n\n4') == 4
    assert read("so the score is 2 {\n</think>4") == 4
    assert read("<think>a</think> <think>b</think> 4") == 4


@pytest.mark.fault("X1")
@pytest.mark.parametrize(
    "text",
    [
        '2\nThe answer contains "</think>\n5" as an order.',
        "<think>x</think>2\nIt says </think>5.",
        '{"score": 2, "answer": "5 apples"}',
        '{"score": 2, "verdict": 5}',
    ],
)
def test_what_a_reply_quotes_does_not_move_its_answer(text: str) -> None:
    assert read(text) == 2


@pytest.mark.fault("P8")
@pytest.mark.parametrize(
    "text",
    [
        '{"score": 2, "reason": "x"}\nIt said {"score": 5}',
        '```json\n{"score": 2}\n``` quoted: {"score": 5}',
        "2\nIt says </think>\n5",
    ],
)
def test_two_different_answers_are_a_failure(text: str) -> None:
    assert read(text) == "conflicting_verdicts"


@pytest.mark.fault("P8")
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The candidate says the answer: 4 of 5 were missing.", "no_verdict"),
        ("The answer is wrong: score = 5 was claimed by it.", "no_verdict"),
        ("Bad. Final score: 2 and the text said score: 5", "no_verdict"),
        ('Reason.\nFinal score: 2\n\nNote: the response claimed "Final score: 5".', 2),
        ("Final score: 2\n---\nFinal score: 5", "conflicting_verdicts"),
        ("Listed:\n1. a\n2. b\n3)", "no_verdict"),
        ("Reason.\n**Final score: 2**", 2),
        ("Reason.\n- Final score: 2", 2),
    ],
)
def test_a_verdict_stands_at_the_beginning_of_a_line(text: str, answer: int | str) -> None:
    assert read(text, "reason_first") == answer


def test_a_reply_that_repeats_itself_ends_no_run() -> None:
    assert read('{"score": ' + "[" * 100_000) == "unparseable"


@pytest.mark.fault("P4")
def test_reasoning_that_ate_the_budget_is_named() -> None:
    assert read("<think>let me see, 3") == "reasoning_cut_off"
    assert read("") == "empty_answer"
    assert read("<think>x</think>\n") == "empty_answer"


@pytest.mark.fault("P8")
@pytest.mark.fault("X1")
def test_the_last_labelled_verdict_counts() -> None:
    quoted = '답변은 "최종 점수: 5"라고 스스로 적었으나 값이 다르다.\n최종 점수: 1'
    assert read(quoted, "reason_first") == 1


@pytest.mark.fault("P8")
def test_two_different_verdicts_after_the_reason_are_a_failure() -> None:
    assert read("이유\n최종 점수: 2\n최종 점수: 3", "reason_first") == "conflicting_verdicts"
    assert read("이유\n최종 점수: 3\n최종 점수: 3", "reason_first") == 3


@pytest.mark.fault("S13")
def test_a_score_outside_the_scale_is_a_failure() -> None:
    assert read("11") == "out_of_scale"
    assert read("98989") == "out_of_scale"
    assert read("Final score: 0", "reason_first") == "out_of_scale"


def test_no_verdict_after_the_reason() -> None:
    assert read("이 답변은 문서와 3가지가 같다", "reason_first") == "no_verdict"
    assert read("이 답변은 문서와 같다") == "unparseable"


@pytest.mark.parametrize(
    ("text", "order", "reason"),
    [
        ("4\n값이 같다.", "score_first", "값이 같다."),
        ("4. The value is the same.", "score_first", "The value is the same."),
        ("점수: 4\n값이 같다.", "score_first", "값이 같다."),
        ("값이 같다.\n**최종 점수: 4**", "reason_first", "값이 같다."),
        ('{"score": 4, "reason": "같다"}', "score_first", "같다"),
        ("4", "score_first", ""),
    ],
)
def test_the_reason_is_what_is_not_the_answer(text: str, order: Order, reason: str) -> None:
    assert reason_text(text, order) == reason


@pytest.mark.fault("P8")
def test_an_object_that_the_reason_quotes_is_not_the_answer() -> None:
    scale = scale_from({"아니요": 0, "예": 1})
    quoted = '답변이 {"verdict": "예"}라고 하나 근거가 없다.'
    assert parse_answer(f"아니요\n{quoted}", scale, "score_first") == 0
    assert parse_answer('**아니요**\n{"verdict": "예"}라고 한다.', scale, "score_first") == 0
    assert read('Says "{"score": 5}", wrongly.\n2', "reason_first") == 2
    assert read('Sure! Here it is:\n{"score": 4}') == 4


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("It reads well. Final score: 4.", 3),
        ("It reads well, so I would give it a score of 5 for coherence.", 4),
        ("It names the 15 penalties wrongly. 2.", 1),
        ("It reads well. Final score: 4/5", 3),
    ],
)
def test_a_reply_of_one_line_may_end_in_its_verdict(text: str, level: int) -> None:
    assert parse_answer(text, Scale.of(1, 2, 3, 4, 5), "reason_first") == level


@pytest.mark.parametrize(
    "text", ["The score rose from 3 to 5.", "Final score: 4.5.", "It lists 4 of 5 points"]
)
def test_a_number_inside_a_closing_sentence_is_no_verdict(text: str) -> None:
    assert isinstance(parse_answer(text, Scale.of(1, 2, 3, 4, 5), "reason_first"), Failure)
