r"""What users wrote, taken out of a log line: prompts, answers, token ids. What they asked for (lengths, parameters) stays.

    Received request cmpl-1: prompt: 'Dear …', params: SamplingParams(…), prompt_token_ids: [1, 2], …       vLLM up to 0.11
    Generated response cmpl-1: output: 'Dear …', output_token_ids: [3, 4], finish_reason: stop               vLLM
    Finish: obj=GenerateReqInput(rid='a', text='Dear …', input_ids=[1, 2], …), out={'text': 'Dear …', …}     SGLang

A text that is not ended on its line is taken out to the line's end: of two faults, losing a line's rest is the lesser one.
"""

from __future__ import annotations

import re

LONGEST_LINE = 16 * 1024  # settings of an engine are shorter; what is longer carries somebody's text
CUT = b" <cut>"
_KEYS = (
    rb"(?:(?:origin_)?(?:prompt|input|output|generated|completion|response|lookahead)_)?(?:text|token_ids|ids|str)"
    rb"|prompts?|outputs?|messages?|content|completion|reasoning(?:_content)?|inputs?|arguments"
)
_QUOTED = rb"(?:b|r)?(?:\\*'(?:[^'\\]|\\.)*(?:'|$)|\\*\"(?:[^\"\\]|\\.)*(?:\"|$))"
_TEXT = re.compile(
    rb"(?<![A-Za-z0-9_])(\\*[\"']?(?:" + _KEYS + rb")\\*[\"']?\s*[:=]\s*)(?:" + _QUOTED + rb"|(?P<list>\[)|(?P<object>\{))"
)
_BRACKETS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def scrubbed(line: bytes) -> bytes:
    """The line without what users wrote."""
    kept, position = bytearray(), 0
    while found := _TEXT.search(line, position):
        kept += line[position : found.end(1)] + b"<dropped>"
        position = found.end() if not (found["list"] or found["object"]) else _end_of_nested(line, found.end() - 1)
    kept += line[position:]
    return bytes(kept) if len(kept) <= LONGEST_LINE else bytes(kept[:LONGEST_LINE]) + CUT


def _end_of_nested(line: bytes, start: int) -> int:
    """Behind the bracket that closes the one at `start`; the end of the line where none does."""
    depth, quote, position = 0, 0, start
    while position < len(line):
        byte = line[position]
        if quote:
            if byte == ord("\\"):
                position += 1
            elif byte == quote:
                quote = 0
        elif byte in b"\"'":
            quote = byte
        else:
            depth += _BRACKETS.get(byte, 0)
            if depth == 0:
                return position + 1
        position += 1
    return len(line)
