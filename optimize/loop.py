"""The study itself: split, propose, search, promote, calibrate, test once.

Everything here is computed from the rows, the seed and the replies, so a study that was killed
is run again over its kept replies and comes to the same end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from geval.calibration import CalibrationSpec
from geval.errors import TemplateError, UsageError
from geval.stats import numpy
from geval.template import Template

from .calibrate import calibrations, mapped
from .labelled import Labelled
from .ledger import BudgetSpent, Ledger
from .objective import Evaluator, Judged, row_losses
from .promote import Candidate, promote
from .race import give_up
from .search import Report, Trial, importance, run_round
from .space import OWN, Change, Space, demo_sets, structural
from .split import Split, blocks, split
from .verdict import Result, Side, verdict

if TYPE_CHECKING:
    from pathlib import Path

MOST_TRIALS = 300
Note = Callable[[str], None]


@dataclass(frozen=True)
class Proposal:
    """A text that somebody wrote for one slot; `refused` says why it was not taken."""

    dimension: str
    choice: str
    text: str
    change: Change | None = None
    refused: str = ""
    round: int = 0


@dataclass(frozen=True)
class Standing:
    """What a proposer sees: train rows and how the present best does on them, never more."""

    best: Template
    rows: Labelled
    train: Any
    round: int
    judge: Callable[[Any], Judged]
    """Judges some train rows under the present best; costs budget."""


class Proposer(Protocol):
    """Writes texts for slots of the template."""

    def __call__(self, standing: Standing) -> list[Proposal]:
        """Proposals, the refused ones too. May raise BudgetSpent."""
        ...


@dataclass(frozen=True)
class Options:
    """How a study is run. `orders` are those of score and reason that may be tried."""

    metric: str = "spearman"
    rounds: int = 2
    seed: int = 0
    orders: tuple[str, ...] = ("score_only", "score_first", "reason_first")


@dataclass
class Tried:
    """One candidate of the study; `number` 0 is the template as it was."""

    number: int
    round: int
    params: dict[str, str]
    loss: float
    complete: bool
    tokens: float
    rows: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, numbers to six digits."""
        return {
            "number": self.number, "round": self.round, "params": self.params,
            "loss": float(f"{self.loss:.6g}"), "complete": self.complete,
            "tokens": float(f"{self.tokens:.6g}"), "rows": self.rows,
        }  # fmt: skip


@dataclass
class Outcome:
    """How a study ended. `tuned` and `plain` are the candidate and the seed, both calibrated."""

    tuned: Template
    plain: Template
    params: dict[str, str]
    result: Result
    split: Split
    tried: list[Tried]
    promoted: int
    proposals: list[Proposal]
    demo_rows: tuple[int, ...]
    importance: dict[str, float]
    requests: dict[str, int]
    notes: list[str]
    sides: dict[str, Side] = field(default_factory=dict)


@dataclass
class _State:
    """What is carried from one candidate to the next."""

    pieces: list[Any]
    places: dict[int, int]
    tried: list[Tried] = field(default_factory=list)
    complete: list[Candidate] = field(default_factory=list)
    templates: dict[int, Template] = field(default_factory=dict)
    best: int = 0
    told: dict[int, dict[int, float]] = field(default_factory=dict)
    rate: float = 1.0
    by_params: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)


class Study:
    """One study; `run` takes its steps in order."""

    def __init__(
        self,
        rows: Labelled,
        evaluate: Evaluator,
        ledger: Ledger,
        options: Options,
        *,
        proposer: Proposer | None = None,
        journal: Path | None = None,
        note: Note = lambda text: None,
        progress: Callable[[str, Sequence[Tried]], None] = lambda phase, tried: None,
    ) -> None:
        self.rows, self.evaluate, self.ledger, self.options = rows, evaluate, ledger, options
        self.proposer, self.journal, self.progress = proposer, journal, progress
        self.notes: list[str] = []
        self._note = note
        self._templates: dict[tuple[tuple[str, str], ...], Template | str] = {}
        self.levels: dict[str, Sequence[float]] = {
            c: rows.template.criterion(c).scale.values for c in rows.criteria
        }

    def note(self, text: str) -> None:
        """Tell, and keep for the report."""
        self.notes.append(text)
        self._note(text)

    def run(self) -> Outcome:
        """The whole study. Raises UsageError where the budget cannot hold it."""
        options, rows = self.options, self.rows
        parts = split(rows.group, rows.level(), options.seed)
        if parts.explore:
            self.note(
                f"explore mode: {rows.n} rows in {len(rows.groups)} documents are too few to call "
                "anything better; about 200 rows in 40 documents are needed"
            )
        demos, demo_rows = demo_sets(rows, parts.train, options.seed)
        space = structural(rows.template, rows.criteria, options.orders, demos)
        self.state = _State(
            blocks(parts.order, rows.group, parts.dev),
            {group: place for place, group in enumerate(parts.order)},
        )
        self.parts = parts
        self._seed(space)
        proposals: list[Proposal] = []
        rounds = max(1, options.rounds) if self.proposer else 1
        begun = self.ledger.settled
        for number in range(rounds):
            share = (number + 1) / rounds
            space = self._round(space, number, share, begun, proposals)
        chosen = self._promoted()
        return self._tested(space, chosen, proposals, demo_rows)

    # Search

    def _seed(self, space: Space) -> None:
        """The template as it is, on all dev rows: what every candidate is held against."""
        self.progress("seed", [])
        try:
            self._candidate(space.own, self.rows.template, 0, None)
        except BudgetSpent:
            raise UsageError(
                f"the budget of {self.ledger.budget} requests ends before the template itself is "
                f"judged on the {len(self.parts.dev)} rows that candidates are compared on",
                hint=f"Give at least {self._least()}.",
            ) from None
        if self._free() < len(self.state.pieces[0]):
            raise UsageError(
                f"the budget of {self.ledger.budget} requests leaves nothing to try a change with: "
                f"{self.ledger.settled} were for the template on the dev rows and "
                f"{self._reserve()} are kept for the test",
                hint=f"Give at least {self._least()}, better {3 * self._least()}.",
            )

    def _least(self) -> int:
        rate = max(self.state.rate, len(self.levels))
        return math.ceil(rate * (2 * len(self.parts.dev) + 2 * len(self.parts.test)) + 20)

    def _reserve(self) -> int:
        """Requests kept for the test of two templates."""
        return math.ceil(2 * self.state.rate * len(self.parts.test))

    def _free(self) -> int:
        return self.ledger.budget - self._reserve() - self.ledger.settled

    def _round(
        self,
        space: Space,
        number: int,
        share: float,
        begun: int,
        proposals: list[Proposal],
    ) -> Space:
        """Propose and search within this round's share of the budget; the grown space."""
        free = self.ledger.budget - self._reserve() - begun
        self.limit_of_round = begun + int(free * share)
        self.ledger.limit = max(self.limit_of_round, 0)
        try:
            if self.proposer is not None:
                self.progress(f"propose {number + 1}", self.state.tried)
                space = self._proposed(space, number, proposals)
            before = [
                Trial(t.number, {**space.own, **t.params}, t.loss, t.complete)
                for t in self.state.tried
            ]
            best = self.state.tried[self.state.best].params
            first = [{**space.own, **best}]
            choices = {key: list(options) for key, options in space.choices.items()}
            if not choices:
                self.note("nothing can be varied in this template without a proposer")
                return space
            run_round(
                choices,
                lambda params, report: self._try(space, params, number, report),
                first,
                seed=self.options.seed * 101 + number,
                trials=min(space.size, MOST_TRIALS),
                journal=self.journal,
                name=f"round-{number + 1}",
                before=before,
            )
        except BudgetSpent:
            pass
        return space

    def _proposed(self, space: Space, number: int, proposals: list[Proposal]) -> Space:
        assert self.proposer is not None
        best = self.state.templates[self.state.best]

        def judge(indices: Any) -> Judged:
            return self.evaluate(best, indices)

        made = self.proposer(Standing(best, self.rows, self.parts.train, number, judge))
        for proposal in made:
            change = proposal.change
            if change is not None:
                grown = space.grown(proposal.dimension, {proposal.choice: change})
                candidate = self._made(grown, {proposal.dimension: proposal.choice})
                if isinstance(candidate, str):
                    proposal = replace(proposal, change=None, refused=candidate)
                else:
                    space = grown
            proposals.append(proposal)
        taken = sum(p.change is not None for p in proposals if p.round == number)
        self.note(f"round {number + 1}: {len(made)} proposals, {taken} taken")
        return space

    def _made(self, space: Space, params: Mapping[str, str]) -> Template | str:
        """The candidate, or why it cannot be shown to a judge."""
        key = _key(params)
        if key not in self._templates:
            try:
                candidate = space.apply(params)
                for name in self.rows.criteria:
                    candidate.renderer.render(self.rows.samples[0], candidate.criterion(name))
                self._templates[key] = candidate
            except (TemplateError, ValueError) as error:
                self._templates[key] = str(error).splitlines()[0]
        return self._templates[key]

    def _try(
        self, space: Space, params: dict[str, str], number: int, report: Report
    ) -> tuple[float, bool]:
        known = self.state.by_params.get(_key(params))
        if known is not None:
            report(self.state.told[known])
            return self.state.tried[known].loss, True
        made = self._made(space, params)
        if isinstance(made, str):
            return 2 * self.state.tried[0].loss, False
        return self._candidate(params, made, number, report)

    def _candidate(
        self, params: Mapping[str, str], template: Template, number: int, report: Report | None
    ) -> tuple[float, bool]:
        """Judge a candidate piece by piece; give it up where it is clearly worse than the best."""
        np, state, group = numpy(), self.state, self.rows.group
        told: dict[int, float] = {}
        for count in range(1, len(state.pieces) + 1):
            piece = state.pieces[count - 1]
            with self.ledger.work() as keys:
                judged = self.evaluate(template, piece)
            state.rate = max(state.rate, self.ledger.cost_of(keys) / len(piece))
            if report is not None:
                self.ledger.limit = min(self.limit_of_round, self.ledger.budget - self._reserve())
            seen = np.concatenate(state.pieces[:count])
            losses = row_losses(judged, self.levels, self.rows.human, group, seen)
            new = {
                state.places[int(g)]: float(losses[group[seen] == g].mean())
                for g in np.unique(group[piece])
            }
            told |= new
            if report is None:
                continue
            report(new)
            best = state.told[state.best]
            if count < len(state.pieces) and give_up(told, best):
                # The rows so far may be easy ones: the gap to the best on the same groups counts.
                gap = np.mean([value - best[place] for place, value in told.items()])
                value = state.tried[state.best].loss + max(0.0, float(gap))
                self._add(params, number, value, False, judged, seen)
                return value, False
        value = float(losses.mean())
        index = self._add(params, number, value, True, judged, seen)
        means = np.array([losses[group[seen] == g].mean() for g in self.parts.order])
        state.complete.append(Candidate(index, means, float(judged.tokens[seen].mean())))
        state.templates[index], state.told[index] = template, told
        state.by_params[_key(params)] = index
        if value < state.tried[state.best].loss:
            state.best = index
        self.progress("search", state.tried)
        return value, True

    def _add(
        self,
        params: Mapping[str, str],
        number: int,
        value: float,
        complete: bool,
        judged: Judged,
        seen: Any,
    ) -> int:
        tried = self.state.tried
        tokens = float(judged.tokens[seen].mean())
        tried.append(
            Tried(len(tried), number + 1, dict(params), value, complete, tokens, len(seen))
        )
        return len(tried) - 1

    # The end

    def _promoted(self) -> int:
        np, group = numpy(), self.rows.group
        weights = np.array([(group[self.parts.dev] == g).sum() for g in self.parts.order])
        chosen, _ = promote(self.state.complete, weights)
        return chosen

    def _tested(
        self,
        space: Space,
        chosen: int,
        proposals: list[Proposal],
        demo_rows: Mapping[str, tuple[int, ...]],
    ) -> Outcome:
        """Calibrate on dev, open the test rows once, and put everything together."""
        rows, parts, state = self.rows, self.parts, self.state
        self.progress("test", state.tried)
        searched = self.ledger.settled
        self.ledger.limit = self.ledger.budget
        seed, tuned = rows.template, state.templates[chosen]
        # The seed gets the same treatment, so that what calibration gains is not the prompt's.
        maps = {"seed": self._maps(seed), "tuned": self._maps(tuned)}
        sides: dict[str, Side] = {}
        notes: list[str] = []
        for name, template in (("seed", seed), ("tuned", tuned)):
            try:
                judged = self.evaluate(template, parts.test)
            except BudgetSpent:
                judged = Judged.empty(self.levels, rows.n)
                notes.append("the budget ended inside the test: there is no verdict")
            raw = {c: judged.mean(c, v)[parts.test] for c, v in self.levels.items()}
            spec = maps[name]
            sides[name] = Side(raw, {c: mapped(raw[c], spec[c], v) for c, v in self.levels.items()})
        result = verdict(
            sides["seed"],
            sides["tuned"],
            {c: rows.human[c][parts.test] for c in self.levels},
            {c: rows.ratings[c][parts.test] for c in self.levels},
            rows.group[parts.test],
            self.levels,
            metric=self.options.metric,
            seed=self.options.seed,
            explore=parts.explore,
            same=chosen == 0,
        )
        result.notes += notes
        params = state.tried[chosen].params
        last = max(t.round for t in state.tried)
        trials = [
            Trial(t.number, {**space.own, **t.params}, t.loss, t.complete, {})
            for t in state.tried
            if t.round == last or t.number == 0
        ]
        choices = {key: list(options) for key, options in space.choices.items()}
        return Outcome(
            _calibrated(tuned, maps["tuned"]),
            _calibrated(seed, maps["seed"]),
            {k: v for k, v in params.items() if v != OWN},
            result,
            parts,
            state.tried,
            chosen,
            proposals,
            demo_rows.get(params.get("demos", OWN), ()),
            importance(choices, trials, self.options.seed) if choices else {},
            {"search": searched, "total": self.ledger.settled},
            self.notes,
            sides,
        )

    def _maps(self, template: Template) -> dict[str, CalibrationSpec]:
        judged = self.evaluate(template, numpy().array([], int))
        return calibrations(
            judged, self.levels, self.rows.human, self.rows.group, self.parts.dev,
            self.options.seed,
        )  # fmt: skip


def _key(params: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, v) for k, v in params.items() if v != OWN))


def _calibrated(template: Template, maps: Mapping[str, CalibrationSpec]) -> Template:
    """The template with its maps; a criterion that was not tuned keeps what it had."""
    kept = {k: v for k, v in (template.front.calibration or {}).items() if k not in maps}
    kept |= {k: v for k, v in maps.items() if v.map.kind != "identity"}
    front = template.front.model_copy(update={"calibration": kept or None})
    return replace(template, front=front)
