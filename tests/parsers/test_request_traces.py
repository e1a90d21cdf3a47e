"""Request traces in every published form."""

import json

import pytest
from reading import SHARED, read_any

COLUMNS = "line arrival_s start_at session input_tokens output_tokens block_size block_hashes"


@pytest.mark.parametrize(
    ("content", "row"),
    [
        (
            (
                "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8"
            ),
            ["3", "0.052", "-", "-", "3180", "8", "-", "-"],
        ),
        (
            (
                "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01.009930+00:00,2,5\n"
            ),
            ["3", "1", "2024-05-10T00:00:01.00993", "-", "2", "5", "-", "-"],
        ),
        (
            (
                "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
                "45,ChatGPT,1087,0,1317,Conversation log\n"
            ),
            ["3", "40", "-", "-", "1087", "0", "-", "-"],
        ),
        (
            "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,374,44\n1.25,396,109\n",
            ["3", "0.75", "-", "-", "396", "109", "-", "-"],
        ),
        (
            (
                '{"timestamp": 0, "input_length": 1000, "output_length": 6, "hash_ids": [0, 1]}\n'
                '{"timestamp": 40, "input_length": 1500, "output_length": 4, "hash_ids": [0, 1, 2]}\n'
            ),
            ["2", "0.04", "-", "-", "1500", "4", "512", "[0, 1, 2]"],
        ),
        (
            (
                '{"chat_id": 1, "timestamp": 61.1, "input_length": 20, "output_length": 6, "type": "text", "hash_ids": [-1, 2]}\n'
                '{"chat_id": 2, "timestamp": 61.6, "input_length": 20, "output_length": 6, "type": "text", "hash_ids": [-1, 3]}\n'
            ),
            ["2", "0.5", "-", "2", "20", "6", "16", "[18446744073709551615, 3]"],
        ),
        (
            (
                '{"timestamp": "1753694362340138614", "input_length": 2288, "output_length": 114, "hash_ids": [1]}\n'
                '{"timestamp": "1753694363340138614", "input_length": 2288, "output_length": 114, "hash_ids": [1]}\n'
            ),
            ["2", "1", "2025-07-28T09:19:23.340138", "-", "2288", "114", "-", "[1]"],
        ),
    ],
    ids=["Azure 2023", "Azure 2024", "BurstGPT", "vidur", "Mooncake", "Bailian", "LMBench"],
)
def test_a_request_of_each_trace(content, row):
    form, result = read_any(content)
    assert form.name == "request_trace"
    assert result.table("workload_requests", COLUMNS)[1] == row


def test_a_line_that_is_no_request_is_counted_and_passed_over():
    _, result = read_any("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808,10\nversion https://git-lfs\n")
    assert (result.account.used, result.account.ignored, result.account.first_not_understood) == (1, 1, 3)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("path", sorted(SHARED.glob("traces/*")), ids=lambda path: path.name)
def test_each_line_of_a_trace_is_a_request(path):
    lines = path.read_text().splitlines()
    rows = read_any(path)[1].rows["workload_requests"]
    if path.suffix == ".csv":
        assert [(row["input_tokens"], row["output_tokens"]) for row in rows] == [
            tuple(map(int, line.split(",")[1:])) for line in lines[1:]
        ]
    else:
        assert [row["block_hashes"] for row in rows] == [json.loads(line)["hash_ids"] for line in lines]
        assert {row["block_size"] for row in rows} == {512}
