"""The runner: every case with every variant, a bounded number at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from wick.agent import Agent
from wick.config.builder import load_python_name
from wick.constants import EVAL_JOBS
from wick.decisions import Allow, Block, Question
from wick.errors import ConfigError
from wick.evals.judge import Judge, judge_transcript
from wick.evals.named_models import load_named_model
from wick.evals.recording_file import Recording, Recordings, find_replies
from wick.evals.recordings import EvalSubstitution, RecordedModel, Replay
from wick.evals.report import (
    EvalCaseResult,
    EvalCaseRow,
    EvalCheck,
    EvalReport,
    build_case_result,
    compare_results,
    shorten_text,
    summarize_variant,
)
from wick.evals.scorers import Scorer, advise_recording, apply_scorer, score_recording, score_transcript
from wick.evals.suite import Approvals, EvalCase, EvalSuite, EvalVariant, Expectations, RecordedAnswer
from wick.evals.transcript import EvalTranscript, build_transcript
from wick.evals.variants import VariantAgents
from wick.testing.redaction import RecordingRedactor, find_secret_values
from wick.threads import Thread

OnResult = Callable[[str, str, EvalCaseResult], None]
OFFLINE = "record them with --record, or run without --offline to call the model"
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class EvalOptions:
    """Options of `run_suite`."""

    folder: Path = field(default_factory=Path)  # agents and modules are relative to it
    jobs: int = EVAL_JOBS  # cases that run at the same time
    recordings: Recordings = field(default_factory=dict)  # to replay, by case and variant; `record` changes this dict
    record: bool = False  # call models and tools, and set the entries of `recordings`; `write_recordings` writes a file
    offline: bool = False  # call no model: a case without recorded replies fails
    redactor: RecordingRedactor = field(default_factory=RecordingRedactor)  # of recordings and reports
    baseline: EvalReport | None = None  # an earlier report: cases that fail in it may fail again
    on_result: OnResult | None = None  # called with the case, the variant and the result


async def run_suite(suite: EvalSuite, options: EvalOptions | None = None) -> EvalReport:
    """Run every case of a suite with every variant, and return the report.

    A cancelled task raises CancelledError, as usual. `SuiteRunner` has the results so far.
    """
    runner = SuiteRunner(suite, options or EvalOptions())
    await runner.run()
    return runner.build_report()


class SuiteRunner:
    """One run of a suite. Until `run` returns, its report is partial."""

    def __init__(self, suite: EvalSuite, options: EvalOptions) -> None:
        if not suite.variants:
            raise ConfigError("no agent is named; add `variants:` to the suite, or use --agent FILE[:ID]")
        if options.offline and options.record:
            raise ConfigError("recording calls models, and offline calls none; choose one of --record and --offline")
        self.suite, self.options, self.partial = suite, options, True
        self.agents = VariantAgents(options.folder)
        self.scorers: dict[str, Scorer] = {}
        self.judge = Judge(suite.judge.model, suite.judge.threshold)
        self.results: dict[tuple[str, str], EvalCaseResult] = {}
        self.secrets = defaultdict[str, set[str]](set)  # values of secret arguments, by case
        self.recorded: set[tuple[str, str]] = set()  # cases and variants that this run has recorded

    async def run(self) -> None:
        """Run all cases, and close the agents."""
        try:
            self.prepare()
            await self.run_all()
            self.partial = False
        finally:
            await self.agents.close()

    def prepare(self) -> None:
        """Build all agents, and load the judge and custom scorers, so that a mistake shows before the first case."""
        for name, variant in self.suite.variants.items():
            if variant.deps:
                try:
                    self.agents.load_deps(variant)
                except ConfigError as error:
                    at = ("variants", name, "deps")
                    raise self.suite.error_at(at, f"variant {name!r}: deps: {error}") from error
            try:
                self.agents.build(name, variant)
            except ConfigError as error:
                raise self.suite.error_at(("variants", name), str(error)) from error
        if any(self._expectations(case).judge is not None for case in self.suite.cases):
            try:
                model = load_named_model(self.suite.judge.model, self.agents.folder)
                self.judge = Judge(model, self.suite.judge.threshold)
            except ConfigError as error:
                raise self.suite.error_at(("judge",), f"judge: {error}") from error
        self._check_tool_names()
        for case in self.suite.cases:
            for name in self._expectations(case).scorers:
                if name not in self.scorers:
                    self._load_scorer(name, case)

    def _check_tool_names(self) -> None:
        """Refuse a misspelt tool in `not_called`, which would pass with any agent."""
        agents = [self.agents.build(name, variant) for name, variant in self.suite.variants.items()]
        known = {name for agent in agents for tool in agent.tools for name in tool.names}
        foreign = [name for agent in agents for part in agent.capabilities for name in part.foreign_tools()]
        for case in self.suite.cases:
            for name in self._expectations(case).not_called:
                close = get_close_matches(name, known, n=1)
                if close and name not in known and not any(fnmatchcase(name, pattern) for pattern in foreign):
                    problem = f"not_called: there is no tool {name!r}; did you mean {close[0]!r}?"
                    own = "not_called" in case.expect.model_fields_set
                    raise self.suite.error_at(("expect", "not_called"), problem, case.id if own else "")

    def _load_scorer(self, name: str, case: EvalCase) -> None:
        try:
            self.scorers[name] = load_python_name(name, self.agents.folder)
            if not callable(self.scorers[name]):
                raise ConfigError(f"{name} is not a function, but has the type {type(self.scorers[name]).__name__}")
        except ConfigError as error:
            if "scorers" in case.expect.model_fields_set:
                raise self.suite.error_at(("expect", "scorers"), f"scorers: {error}", case.id) from error
            raise self.suite.error_at(("expect", "scorers"), f"scorers: {error}") from error

    async def run_all(self) -> None:
        """Run the cases with a bounded number of workers."""
        todo = iter([(case, name) for case in self.suite.cases for name in self.suite.variants])

        async def work() -> None:
            for case, name in todo:
                self.results[case.id, name] = result = await self._run_case(case, name, self.suite.variants[name])
                self._report_result(case.id, name, result)

        async with asyncio.TaskGroup() as group:
            for _ in range(max(1, self.options.jobs)):
                group.create_task(work())

    def _report_result(self, case: str, variant: str, result: EvalCaseResult) -> None:
        """Call `on_result`. An error of it is logged: the other cases still run."""
        if self.options.on_result is None:
            return
        try:
            self.options.on_result(case, variant, result)
        except Exception:
            logger.exception("on_result failed for case %s, variant %s", case, variant)

    async def _run_case(self, case: EvalCase, name: str, variant: EvalVariant) -> EvalCaseResult:
        """Return the result of a case. An error of its scorers fails this case only."""
        is_recording, recording = self.options.record, self.options.recordings.get((case.id, name))
        replies = find_replies(case, None if is_recording and not case.replies else recording)
        results = [*case.results, *(recording.results if recording is not None and not is_recording else ())]
        requests, redactor = [] if is_recording else self.suite.requests, self.options.redactor
        replay = Replay(
            replies,
            results,
            len(case.results),
            requests,
            live_model=not replies,
            live_tools=is_recording,
            redactor=redactor,
        )
        if self.options.offline and not replay.replies:
            return self._fail_case(case, "recording", f"the case has no recorded replies; {OFFLINE}", Decimal())
        try:
            async with asyncio.timeout(self.suite.timeout):
                transcript = await self._run_agent(case, name, variant, replay)
                self.secrets[case.id].update(find_secret_values([call.args for call in transcript.calls]))
                expected = self._expectations(case)
                checks = score_transcript(transcript, expected)
                checks += score_recording(replay, transcript.calls) if replay.replies or replay.missing else []
                checks += await self._judge(case, name, transcript, expected)
                checks += [await apply_scorer(scorer, self.scorers[scorer], transcript) for scorer in expected.scorers]
                return build_case_result(transcript, advise_recording(checks), redactor)
        except TimeoutError:
            return self._fail_case(case, "timeout", f"not finished after {self.suite.timeout:g} s")
        except Exception as error:
            logger.exception("case %s failed with variant %s", case.id, name)
            return self._fail_case(case, "scorers", f"the case could not be scored: {type(error).__name__}: {error}")

    def _fail_case(self, case: EvalCase, check: str, problem: str, price: Decimal | None = None) -> EvalCaseResult:
        """Return the result of a case that was not started, not finished or not scored."""
        transcript = EvalTranscript(case.id, case.build_input(), reason=problem, price=price)
        failed = EvalCheck(name=check, passed=False, score=0.0, detail=problem)
        return build_case_result(transcript, [failed], self.options.redactor)

    async def _run_agent(self, case: EvalCase, name: str, variant: EvalVariant, replay: Replay) -> EvalTranscript:
        """Run the agent of a variant, and return what it did. An error of the run is its outcome."""
        agent: Agent = self.agents.build(name, variant)
        changes: dict[str, Any] = {"ask": _Answers(self.suite.approvals_of(case), replay).answer}
        if not replay.live_model:
            recorded = next((reply.model for reply in replay.replies if reply.model and variant.model is None), "")
            # The real model would need its API key. This one also has the recorded name, which decides the price.
            changes["model"] = RecordedModel(replay, recorded or agent.model_name)
        recorded_tools = self.suite.tools_of(case) == "recorded"
        substitution = EvalSubstitution(replay, model=True, tools=recorded_tools)
        agent = agent.with_options(**changes).with_hooks(substitution)
        input = case.build_input()
        try:
            stream = agent.stream(input, thread=Thread())
        except Exception as error:
            return EvalTranscript(case.id, input, reason=f"{type(error).__name__}: {error}", price=Decimal())
        try:
            await stream.finish()
        except Exception as error:
            return replace(build_transcript(case.id, input, stream.result), reason=f"{type(error).__name__}: {error}")
        if self.options.record:
            self._store_recording(case, name, replay)
        return build_transcript(case.id, input, stream.result)

    async def _judge(
        self, case: EvalCase, name: str, transcript: EvalTranscript, expected: Expectations
    ) -> list[EvalCheck]:
        if expected.judge is None:
            return []
        recording = self.options.recordings.get((case.id, name))
        replies = expected.judge.replies or (recording.judge if recording is not None else [])
        if self.options.offline and not replies:
            return [
                EvalCheck(name="judge", passed=False, score=0.0, detail=f"the judge has no recorded replies; {OFFLINE}")
            ]
        redactor = self.options.redactor
        replay = Replay(replies, compared=self.suite.requests, live_model=not replies, redactor=redactor)
        checks = [await judge_transcript(transcript, expected.judge, self.judge, replay)]
        if replies:
            checks += [check.model_copy(update={"name": f"judge {check.name}"}) for check in score_recording(replay)]
        if recording is not None and (case.id, name) in self.recorded:  # a failed run leaves the old recording
            recording.judge = replay.new_replies
        return checks

    def _store_recording(self, case: EvalCase, name: str, replay: Replay) -> None:
        self.recorded.add((case.id, name))
        self.options.recordings[case.id, name] = Recording(
            case=case.id,
            variant=name,
            replies=replay.new_replies,
            results=replay.new_results,
            requests=[*replay.requests] if case.replies else [],
        )

    def _expectations(self, case: EvalCase) -> Expectations:
        """Return the expectations of a case, over those of the suite."""
        common = self.suite.expect
        if common is None:
            return case.expect
        own = {name: getattr(case.expect, name) for name in case.expect.model_fields_set}
        return common.model_copy(update=own)

    def build_report(self) -> EvalReport:
        """Return the report of the results so far, in the order of the suite."""
        rows = list[EvalCaseRow]()
        for case in self.suite.cases:
            results = {
                name: self.results[case.id, name] for name in self.suite.variants if (case.id, name) in self.results
            }
            text = shorten_text(self.options.redactor.redact_json(case.build_input()[-1].text, self.secrets[case.id]))
            rows.append(EvalCaseRow(id=case.id, input=text, thread=case.thread, results=results))
        report = EvalReport(
            suite=self.suite.name,
            partial=self.partial,
            planned=len(self.suite.cases) * len(self.suite.variants),
            variants=[summarize_variant(name, variant.agent, rows) for name, variant in self.suite.variants.items()],
            cases=rows,
        )
        compare_results(report, self.options.baseline)
        return report


class _Answers:
    """The answers of a case to questions about tool uses. Each recorded answer counts once; the last one also later."""

    def __init__(self, answers: Approvals, replay: Replay) -> None:
        self._answers, self._replay = answers, replay
        self._used = set[tuple[str, int]]()

    def answer(self, question: Question) -> Allow | Block:
        answer = self._answers if isinstance(self._answers, str) else self._answers.get(question.tool, "deny")
        recorded = [RecordedAnswer(answer=answer)] if isinstance(answer, str) else answer
        args = self._replay.read_arguments(question.args)
        fitting = [index for index, one in enumerate(recorded) if self._replay.has_arguments(args, one.args)]
        index = next((index for index in fitting if (question.tool, index) not in self._used), (fitting or [-1])[-1])
        self._used.add((question.tool, index))
        if index < 0 or recorded[index].answer == "deny":
            return Block("the user denied it")
        return Allow(recorded[index].run_with)
