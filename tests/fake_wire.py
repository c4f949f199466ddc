"""How the fake judge writes: JSON of replies, probabilities and errors, with its defects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web
from fake_model import END, Step, Story, joined

if TYPE_CHECKING:
    from fake_switches import Switches

END_MARK = "<|im_end|>"
_PUNCTUATION = {b"\n": 0.5, b":": 0.3, b",": 0.2}


class Wire:
    """Writes what the switches of a fake judge say."""

    def __init__(self, switches: Switches) -> None:
        self.s = switches
        self._ids: dict[bytes, int] = {bytes([i]): i for i in range(256)}

    # Errors

    def error(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> web.Response:
        body = {
            "error": {
                "message": message,
                "type": code if status == 429 else "invalid_request_error",
                "param": param,
                "code": code or None,
            }
        }
        return web.json_response(body, status=status, headers=headers)

    def refused(self, name: str) -> web.Response:
        """A 400 (or 422) that names the parameter, in the shape of some server."""
        shape = self.s.refusal_shape
        if shape == "fastapi":
            item = {
                "type": "extra_forbidden",
                "loc": ["body", name],
                "msg": "Extra inputs are not permitted",
            }
            return web.json_response({"detail": [item]}, status=422)
        if shape == "google":
            text = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
            error = {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}
            return web.json_response([{"error": error}], status=400)
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        instead = f" Use '{other[name]}' instead." if name in other else ""
        text = f"Unsupported parameter: '{name}' is not supported with this model.{instead}"
        if shape == "plain":
            return web.json_response({"object": "error", "message": text, "code": 400}, status=400)
        return self.error(400, text, code="unsupported_parameter", param=name)

    def over_cap(self, route: str, body: Mapping[str, Any]) -> web.Response | None:
        cap, how = self.s.top_cap, self.s.top_cap_how
        wanted = body.get("top_logprobs", body.get("logprobs"))
        if cap is None or how == "clamp" or isinstance(wanted, bool) or not wanted or wanted <= cap:
            return None
        if how == "refuse_like_vllm":
            text = (
                f"Requested sample logprobs of {wanted}, which is greater than max allowed: {cap}"
            )
            return web.json_response({"object": "error", "message": text, "code": 400}, status=400)
        text = f"Invalid value for 'top_logprobs': must be less than or equal to {cap}."
        return self.error(400, text, code="integer_above_max_value", param="top_logprobs")

    # Replies

    def reply(self, kind: str, choices: list[dict[str, Any]], prompt: str) -> dict[str, Any]:
        made = sum(choice.pop("made", 0) for choice in choices)
        asked = len(prompt) // 4 + 1
        if self.s.context is not None:
            asked = min(asked, self.s.context)
        return {
            "id": "fake-reply",
            "object": kind,
            "created": 1,
            "model": self.s.model,
            "choices": choices,
            "usage": {
                "prompt_tokens": asked,
                "completion_tokens": made,
                "total_tokens": asked + made,
                "prompt_tokens_details": {"cached_tokens": asked // 2},
            },
        }

    def chat_choice(
        self,
        number: int,
        steps: Sequence[Step],
        finish: str,
        body: Mapping[str, Any],
        thinking: str | None,
    ) -> dict[str, Any]:
        text = joined(steps).decode("utf-8", "replace")
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        listed = list(steps)
        if thinking == "field":
            message["reasoning_content"] = self.s.thought
            if self.s.think_in_logprobs:
                said = self.s.split(f"{self.s.thought}</think>\n\n")
                listed = [Step(token, {token: 1.0}) for token in said] + listed
        return {
            "index": number,
            "message": message,
            "finish_reason": finish,
            "logprobs": self._logprobs(listed, body),
            "made": len(steps),
        }

    def completion_choice(
        self, number: int, steps: Sequence[Step], finish: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        wanted = body.get("logprobs")
        listed = None
        if wanted is not None and "logprobs" not in self.s.ignore:
            listed = self._legacy(steps, self._kept(wanted), body.get("logprob_token_ids"))
        return {
            "index": number,
            "text": joined(steps).decode("utf-8", "replace"),
            "finish_reason": finish,
            "logprobs": listed,
            "made": len(steps),
        }

    def refusal_reply(self) -> dict[str, Any]:
        filtered = self.s.refusal == "content_filter"
        message = {
            "role": "assistant",
            "content": "" if filtered else None,
            "refusal": None if filtered else "I'm sorry, I can't help with that.",
        }
        finish = "content_filter" if filtered else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return self.reply("chat.completion", [choice], "")

    def cut_off_reply(self, limit: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": "", "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "length",
            "logprobs": {"content": [], "refusal": None},
            "made": limit,
        }
        reply = self.reply("chat.completion", [choice], "")
        reply["usage"]["completion_tokens_details"] = {"reasoning_tokens": limit}
        return reply

    def anthropic_reply(self, text: str, reason: str, prompt: str) -> dict[str, Any]:
        return {
            "id": "msg_fake",
            "type": "message",
            "role": "assistant",
            "model": self.s.model,
            "content": [{"type": "text", "text": text}] if text else [],
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": len(prompt) // 4 + 1,
                "output_tokens": len(text),
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        }

    # Probabilities

    def _kept(self, wanted: int) -> int:
        return min(wanted, self.s.top_cap) if self.s.top_cap is not None else wanted

    def _logprobs(self, steps: Sequence[Step], body: Mapping[str, Any]) -> dict[str, Any] | None:
        asked = body.get("logprobs")
        if not asked or "logprobs" in self.s.ignore:
            return None
        if self.s.shape == "together":
            if isinstance(asked, bool):
                return None
            return self._legacy(steps, self._kept(asked), None)
        wanted = 0 if "top_logprobs" in self.s.ignore else body.get("top_logprobs", 0)
        if self.s.shape == "legacy":
            return self._legacy(steps, self._kept(wanted), None)
        ids = body.get("logprob_token_ids")
        return {"content": [self._item(s, self._kept(wanted), ids) for s in steps], "refusal": None}

    def _item(self, step: Step, wanted: int, ids: Sequence[int] | None) -> dict[str, Any]:
        if self.s.empty_alternatives:
            return {**self._token(step.token, 0.0), "top_logprobs": []}
        candidates, own = self._candidates(step)
        top = [self._token(t, lp) for t, lp in self._top(candidates, step, wanted, ids)]
        return {**self._token(step.token, own), "top_logprobs": top}

    def _legacy(
        self, steps: Sequence[Step], wanted: int, ids: Sequence[int] | None
    ) -> dict[str, Any]:
        texts, owns, tops, offsets, at = [], [], [], [], 0
        for step in steps:
            candidates, own = self._candidates(step)
            texts.append(self._shown(step.token))
            owns.append(0.0 if self.s.empty_alternatives else own)
            listed = self._top(candidates, step, wanted, ids)
            tops.append(
                {} if self.s.empty_alternatives else {self._shown(t): lp for t, lp in listed}
            )
            offsets.append(at)
            at += len(texts[-1])
        return {
            "tokens": texts,
            "token_logprobs": owns,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _candidates(self, step: Step) -> tuple[dict[bytes, float | None], float | None]:
        """Logprob of each candidate and of the sampled token, with the placeholder defects."""
        raw = {t: _log(p) for t, p in step.candidates.items()}
        own: float | None = raw[step.token]
        listed: dict[bytes, float | None] = dict(raw)
        if self.s.placeholder == "-9999" and step.answer:
            return {t: math.log(p) for t, p in _PUNCTUATION.items()}, -9999.0
        if self.s.placeholder == "null":
            return dict.fromkeys(listed), None
        if self.s.placeholder == "-inf":
            return {t: lp if t == step.token else -math.inf for t, lp in listed.items()}, own
        return listed, own

    def _top(
        self,
        candidates: Mapping[bytes, float | None],
        step: Step,
        wanted: int,
        ids: Sequence[int] | None,
    ) -> list[tuple[bytes, float | None]]:
        if ids:  # vLLM: the sampled token and exactly the tokens asked for
            names = {i: t for t, i in self._ids.items()}
            named = dict.fromkeys([step.token, *(names[i] for i in ids if i in names)])
            return [(t, candidates.get(t, -40.0)) for t in named]
        # Tokens of probability 0 are listed by no server, unless it reports them masked.
        listed = [(t, lp) for t, lp in candidates.items() if lp != _log(0.0)]
        listed.sort(key=lambda pair: -math.inf if pair[1] is None else pair[1], reverse=True)
        if self.s.pad:
            room = wanted - len(listed)
            listed += [(b"~%d" % i, -30.0 - i) for i in range(max(0, room))]
        return listed[:wanted]

    def _token(self, token: bytes, logprob: float | None) -> dict[str, Any]:
        shown = self._shown(token)
        data: list[int] | None = list(token)
        if token == END or self.s.halves == "no_bytes":
            data = None
        elif self.s.halves == "replaced":
            data = list(shown.encode())
        elif self.s.halves == "wrong_bytes":
            data = [0x3F] * len(token)
        return {"token": shown, "logprob": logprob, "bytes": data}

    def _shown(self, token: bytes) -> str:
        """The text of a token; half a character as OpenAI writes it, or as U+FFFD."""
        if token == END:
            return END_MARK
        try:
            return token.decode()
        except UnicodeDecodeError:
            if self.s.halves == "bytes":
                return "bytes:" + "".join(f"\\x{b:02x}" for b in token)
            return token.decode("utf-8", "replace")

    def token_id(self, token: bytes) -> int:
        """A number for a token, the same for the life of the server."""
        return self._ids.setdefault(token, len(self._ids))

    def prompt_logprobs(
        self, story: Story, head: str, said: str, wanted: int
    ) -> list[dict[str, Any] | None]:
        """vLLM: per prompt token a mapping of token id to its logprob; null for the first.

        What stands before the reply has no true probability here: it is listed with -1.
        """
        listed: list[dict[str, Any] | None] = []
        for token in self.s.split(head):
            item = {"logprob": -1.0, "rank": 1, "decoded_token": self._shown(token)}
            listed.append({str(self.token_id(token)): item} if listed else None)
        for position, token in enumerate(self.s.split(said)):
            candidates = story.candidates(position)
            best = sorted(candidates, key=lambda t: -candidates[t])
            listed.append(
                {
                    str(self.token_id(t)): {
                        "logprob": _log(candidates[t]),
                        "rank": best.index(t) + 1,
                        "decoded_token": self._shown(t),
                    }
                    for t in dict.fromkeys([token, *best[:wanted]])
                    if t in candidates
                }
            )
            story = story.follow(position, token)
        return listed


def _log(p: float) -> float:
    return math.log(p) if p > 0 else -10000.0
