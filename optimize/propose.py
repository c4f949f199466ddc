"""DSPy writes texts. The only file that imports it.

Texts of criteria come from DSPy's `GroundedProposer` (it reads some train rows) and from GEPA's
`InstructionProposer` (it reads where the judge and people differ); steps from
`geval.authoring.steps`. Each call goes through the study's ledger and cache.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from geval.authoring import steps as drafting
from geval.errors import ConfigError, FatalError, GevalError
from geval.judges.base import Call, Message, Reply, Request
from geval.stats import numpy
from geval.template import Template

from .guard import Guard, RefusedError
from .ledger import BudgetSpent, Ledger
from .loop import Proposal, Standing
from .objective import affine
from .space import Change, set_anchors, set_steps, set_text

if TYPE_CHECKING:
    from .labelled import Labelled

Ask = Callable[[Request], Reply]

ROOM = 1_200
"""Tokens of a reply."""

SHOWN_ROWS, REFLECTED, FIELD = 8, 10, 1_200
"""Rows that a proposer reads, rows it reflects on, and characters of a field it is shown."""

_TIPS = (
    "Keep it short and concrete.",
    "Name the observable errors that lower the score.",
    "Say what separates neighbouring levels, by what can be seen in the text.",
)
_THINKING = re.compile(r"<think>.*?</think>|^.*?</think>", re.DOTALL)


def dspy() -> Any:
    """The module. Raises ConfigError with the install line where it is missing."""
    try:
        import dspy as module
    except ImportError:
        raise ConfigError(
            "a proposer needs dspy, which is not installed",
            hint='Install it: python -m pip install "geval[optimize]", or say --proposer none.',
        ) from None
    return module


class Engine:
    """geval's client behind `dspy.LM`: one request in, one reply out.

    A prompt that is asked again asks for another sample. What stops a study is kept in `fatal`,
    since DSPy wraps what an engine raises.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._times: Counter[tuple[tuple[str, str], ...]] = Counter()
        self.fatal: GevalError | None = None

    def __deepcopy__(self, memo: object) -> Engine:
        return self

    def complete(self, request: Any) -> Any:
        """A `dspy.lm15.Request` answered."""
        from dspy import lm15

        messages = tuple(_messages(request))
        key = tuple((m["role"], m["content"]) for m in messages)
        index = self._times[key]
        self._times[key] += 1
        asked = Request(
            messages,
            "single",
            ROOM,
            temperature=0.0 if index == 0 else None,
            index=index,
            call=Call(purpose="propose", repeat=index),
        )
        try:
            reply = self._ask(asked)
        except FatalError as error:
            self.fatal = error
            raise
        text = _THINKING.sub("", reply.choices[0].text).strip()
        return lm15.Response(
            id=None,
            model="geval",
            message=lm15.Message.assistant(text or " "),
            finish_reason="stop",
            usage=lm15.Usage(),
        )


def _messages(request: Any) -> Iterator[Message]:
    system = request.system
    if system is not None:
        text = system if isinstance(system, str) else "".join(_text(p) for p in system)
        yield {"role": "system", "content": text}
    for message in request.messages:
        yield {"role": message.role, "content": "".join(_text(p) for p in message.parts)}


def _text(part: Any) -> str:
    return getattr(part, "text", None) or ""


class DspyProposer:
    """Writes texts, steps and anchors for the tuned criteria; every one passes the guard."""

    def __init__(self, rows: Labelled, ask: Ask, ledger: Ledger, seed: int) -> None:
        self.module = dspy()
        self.rows, self.ledger, self.seed = rows, ledger, seed
        self.guard = Guard(rows)
        self.engine = Engine(ask)
        self._ask = ask
        self._made: list[Proposal] = []
        self._known: set[tuple[str, str]] = set()

    def __call__(self, standing: Standing) -> list[Proposal]:
        """What was written in this round, refused or not; what a spent budget left undone is
        missing.
        """
        self._made = []
        try:
            lm = self.module.LM("geval/proposer", engine=self.engine, cache=False, num_retries=0)
            with _silence(), self.module.context(lm=lm):
                for name in self.rows.criteria:
                    self._criterion(standing, name, lm)
        except BudgetSpent:
            pass
        return self._made

    def _criterion(self, standing: Standing, name: str, lm: Any) -> None:
        template = standing.best
        spec = template.front.criteria[name]
        gaps: list[dict[str, Any]] = []
        if not spec.text_from:
            if standing.round == 0:
                self._grounded(standing, name, lm)
                self._try(f"steps:{name}", standing.round, lambda: self._drafted(template, name))
            with self.ledger.work():
                gaps = self._gaps(standing, name)
            self._try(
                f"text:{name}",
                standing.round,
                lambda: self._reflected(spec.text, gaps, self._wish(name), self._cap(name)),
            )
            if standing.round > 0 and spec.steps:
                listed = "\n".join(f"{i}. {s}" for i, s in enumerate(spec.steps, 1))
                self._try(
                    f"steps:{name}",
                    standing.round,
                    lambda: self._reflected(listed, gaps, self._wish(name, "steps"), 1_500),
                )
        levels = template.criterion(name).scale.levels
        if not spec.anchors_from and gaps:
            listed = "\n".join(f"{v.word}: {v.anchor or v.name or v.word}" for v in levels)
            self._try(
                f"anchors:{name}",
                standing.round,
                lambda: self._reflected(listed, gaps, self._wish(name, "anchors"), 1_500),
            )

    def _cap(self, name: str) -> int:
        return self.guard.text_cap(name)

    # One proposal

    def _try(self, dimension: str, round: int, write: Callable[[], str]) -> None:
        """Ask for one text; a failure or a refusal is kept beside those that were taken."""
        text, change, refused = "", None, ""
        try:
            with self.ledger.work():
                text = write()
            change = self._change(dimension, text)
            self.guard.candidate(change)
            if (dimension, _folded(text)) in self._known:
                raise RefusedError("was proposed before")
            self._known.add((dimension, _folded(text)))
        except RefusedError as error:
            change, refused = None, str(error)
        except Exception as error:
            if self.engine.fatal is not None:
                raise self.engine.fatal from None
            if isinstance(error, FatalError):
                raise
            told = str(error).splitlines() or [""]
            change, refused = None, f"the proposer failed: {type(error).__name__}: {told[0][:200]}"
        number = sum(p.dimension == dimension for p in self._made) + 1
        self._made.append(
            Proposal(dimension, f"r{round + 1}.{number}", text, change, refused, round)
        )

    def _change(self, dimension: str, text: str) -> Change:
        slot, _, name = dimension.partition(":")
        if slot == "text":
            return set_text(name, self.guard.text(name, text))
        if slot == "steps":
            return set_steps(name, self.guard.steps(text))
        return set_anchors(name, self.guard.anchors(name, text))

    # Writers

    def _wish(self, name: str, slot: str = "text") -> str:
        """What is asked for beside DSPy's own words."""
        template = self.rows.template
        language = template.locale.name
        words = ", ".join(level.word for level in template.criterion(name).scale.levels)
        said = {
            "text": "The instruction is the question that a grader decides about the "
            f"{template.judged!r}, on the levels {words}. Write that question alone, in one to "
            "four sentences: no input or output format, no examples, no scale, no role.",
            "steps": "The instruction is a numbered list of short evaluation steps. Write 3 to 5 "
            "steps, one a line, each beginning with its number. Name no score.",
            "anchors": "The instruction is a list of levels, worst first, each with a line that "
            "says what can be seen in a text of that level. Write one line for every level of "
            f"{words}, each in the form `level: text`. Keep the levels as they are.",
        }[slot]
        return f"{said} Write it in {language}. Quote nothing from the examples."

    def _grounded(self, standing: Standing, name: str, lm: Any) -> None:
        from dspy.propose import GroundedProposer

        spec = standing.best.front.criteria[name]
        inputs = list(standing.best.front.inputs)
        signature = self.module.Signature(f"{', '.join(inputs)} -> score", spec.text)
        program = self.module.Predict(signature)
        examples = [
            self.module.Example(**_shown(self.rows, i), score=_label(self.rows, name, i))
            .with_inputs(*inputs)
            for i in self._some(standing, SHOWN_ROWS)
        ]  # fmt: skip
        made: list[Any] = []

        def proposer() -> Any:
            if not made:
                made.append(
                    GroundedProposer(
                        prompt_model=lm,
                        program=program,
                        trainset=examples,
                        view_data_batch_size=SHOWN_ROWS,
                        program_aware=False,  # it would send our source
                        use_task_demos=False,
                        use_instruct_history=False,
                        set_tip_randomly=False,
                        set_history_randomly=False,
                        rng=Random(self.seed),
                    )
                )
            return made[0]

        for tip in _TIPS:
            self._try(
                f"text:{name}",
                standing.round,
                lambda tip=tip: str(  # type: ignore[misc]
                    proposer().propose_instruction_for_predictor(
                        program=program,
                        predictor=program,
                        pred_i=0,
                        demo_candidates=None,
                        demo_set_i=0,
                        trial_logs={},
                        tip=f"{self._wish(name)} {tip}",
                    )
                    or ""
                ),
            )

    def _drafted(self, template: Template, name: str) -> str:
        request = Request(
            drafting.question(template, template.criterion(name)), "single", 600,
            call=Call(template.name, name, purpose="steps"),
        )  # fmt: skip
        return _THINKING.sub("", self._ask(request).choices[0].text)

    def _reflected(
        self, current: str, gaps: Sequence[Mapping[str, Any]], wish: str, cap: int
    ) -> str:
        from dspy.teleprompt.gepa import InstructionProposer

        proposer = InstructionProposer(
            additional_instructions=wish,
            max_chars=cap,
            adapter=self.module.ChatAdapter(use_json_adapter_fallback=False),
        )
        return str(proposer({"slot": current}, {"slot": list(gaps)}, ["slot"])["slot"])

    # What it reads

    def _some(self, standing: Standing, count: int) -> list[int]:
        """Train rows over the whole range of labels, another choice each round."""
        np = numpy()
        rng = np.random.default_rng([self.seed, 5, standing.round])
        level = self.rows.level()
        ranked = sorted(rng.permutation(standing.train), key=lambda i: level[i])
        return [int(rng.choice(c)) for c in np.array_split(ranked, count) if len(c)]

    def _gaps(self, standing: Standing, name: str) -> list[dict[str, Any]]:
        """Rows where judge and people differ most, each with a contrasting row of its document."""
        np, rows = numpy(), self.rows
        looked = self._some(standing, 2 * REFLECTED)
        judged = standing.judge(np.array(looked))
        scale = rows.template.criterion(name).scale
        x = judged.mean(name, scale.values)
        y = rows.human[name]
        known = [i for i in looked if np.isfinite(x[i]) and np.isfinite(y[i])]
        a, b = affine(x[known], y[known])
        ranked = sorted(known, key=lambda i: -abs(a + b * x[i] - y[i]))
        found = []
        for i in ranked[:REFLECTED]:
            probs = ", ".join(
                f"{v.word}: {p:.2f}"
                for v, p in zip(scale.levels, judged.probs[name][i], strict=True)
            )
            gap = float(x[i] - y[i])
            side = "too high" if gap > 0 else "too low"
            feedback = f"People gave {y[i]:.3g}; the grader is {abs(gap):.2g} {side}."
            mates = [j for j in known if j != i and rows.group[j] == rows.group[i]]
            if mates:
                j = max(mates, key=lambda j: abs(y[j] - y[i]))
                text = str(rows.samples[j].fields.get(rows.template.judged, ""))[:FIELD]
                feedback += (
                    f" Of the same document, people gave {y[j]:.3g} and the grader {x[j]:.2g} to: "
                    f"{text}"
                )
            found.append(
                {
                    "Inputs": _shown(rows, i),
                    "Generated Outputs": f"expected score {x[i]:.2f} ({probs})",
                    "Feedback": feedback,
                }
            )
        return found


def can_write(rows: Labelled, ask: Ask, ledger: Ledger) -> bool:
    """Whether a judge can write usable text in the template's language: it drafts steps once."""
    for name in rows.criteria:
        if not rows.template.front.criteria[name].text:
            continue
        request = Request(
            drafting.question(rows.template, rows.template.criterion(name)), "single", 600,
            call=Call(rows.template.name, name, purpose="steps"),
        )  # fmt: skip
        try:
            with ledger.work():
                text = _THINKING.sub("", ask(request).choices[0].text)
            drafting.read(text, rows.template.locale)
        except FatalError:
            raise
        except GevalError:
            return False
        return True
    return False


def _shown(rows: Labelled, index: int) -> dict[str, str]:
    """Fields of a row as a proposer reads them."""
    return {
        name: "\n".join(map(str, value))[:FIELD]
        if isinstance(value, tuple)
        else str(value or "")[:FIELD]
        for name, value in rows.samples[index].fields.items()
    }


def _label(rows: Labelled, name: str, index: int) -> str:
    value = rows.human[name][index]
    return f"{value:.3g}" if numpy().isfinite(value) else ""


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """DSPy prints what it does; a study's own notes say what matters."""
    logger = logging.getLogger("dspy")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
