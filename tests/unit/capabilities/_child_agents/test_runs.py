"""One agent works for another: what a job notes, and where its thread is."""

from __future__ import annotations

from wick import Run, Thread, user
from wick.capabilities._child_agents.runs import SNAPSHOT, Job, Task, lasts, paused
from wick.events import ChatModelStart, ToolEnd, ToolStart


def job() -> Job:
    return Job("helper", "help", "c1", "th_1.abc")


def test_a_job_notes_what_its_own_agent_does() -> None:
    one = job()
    one.follow(ChatModelStart("run_1", "model", 2), "run_1")
    assert (one.step, one.doing) == (2, "thinking")
    one.follow(ToolStart("run_1", "grep"), "run_1")
    one.follow(ToolEnd("run_1", "grep"), "run_1")
    one.follow(ToolStart("run_2", "execute"), "run_1")
    assert (one.step, one.doing) == (2, "using grep"), "and not what those below it do"


def test_what_is_said_to_a_job_waits_until_it_begins() -> None:
    one = job()
    one.tell("first")
    one.run = Run()
    one.tell("second")
    assert one.unheard == ["first"] and [message.text for message in one.run.progress.inbox] == ["second"]


def test_a_task_is_what_its_record_says() -> None:
    task, run = Task("task_1", job(), "done", "completed", "42"), Run()
    again = Task.of("task_1", task.record(run))
    assert again.record(run) == task.record(run) and not again.open
    assert again.line() == "- task_1 (helper): done; check_task gives its answer"


def test_the_thread_above_holds_that_of_a_child_that_paused() -> None:
    above, below = Thread("th_1"), Thread("th_1.abc")
    below.add(user("one"))
    above.append("event", {"run": "run_1", "name": SNAPSHOT, "data": below.to_json()})
    place = len(above.entries)
    below.add(user("two"))
    above.append("event", {"run": "run_1", "name": SNAPSHOT, "data": below.to_json()})
    found = paused(above, "th_1.abc")
    assert found is not None and found.to_json() == below.to_json(), "the latest counts"
    assert paused(above, "th_1.xyz") is None
    above.rewind(place)
    found = paused(above, "th_1.abc")
    assert found is not None and len(found.messages) == 1, "what somebody went back behind does not"
    assert lasts(Run(thread=above), job()) and not lasts(Run(), job())
