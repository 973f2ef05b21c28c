"""Child runs: the records of a job, and its thread."""

from __future__ import annotations

from wick import Run, Thread, user
from wick.capabilities._child_agents.runs import SNAPSHOT, BackgroundTask, ChildJob, can_resume, find_paused_thread
from wick.events import ChatModelStart, ToolEnd, ToolStart


def job() -> ChildJob:
    return ChildJob("helper", "help", "c1", "th_1.abc")


def test_a_job_records_the_progress_of_its_agent() -> None:
    one = job()
    one.track_event(ChatModelStart("run_1", "model", 2), "run_1")
    assert (one.step, one.activity) == (2, "thinking")
    one.track_event(ToolStart("run_1", "grep"), "run_1")
    one.track_event(ToolEnd("run_1", "grep"), "run_1")
    one.track_event(ToolStart("run_2", "execute"), "run_1")
    assert (one.step, one.activity) == (2, "using grep"), "and not what those below it do"


def test_a_message_to_a_job_waits_until_it_starts() -> None:
    one = job()
    one.send("first")
    one.run = Run()
    one.send("second")
    assert one.pending_messages == ["first"]
    assert [message.text for message in one.run.progress.inbox.queue] == ["second"]


def test_a_task_is_restored_from_its_record() -> None:
    task, run = BackgroundTask("task_1", job(), "done", "completed", "42"), Run()
    again = BackgroundTask.from_record("task_1", task.to_record(run))
    assert again.to_record(run) == task.to_record(run) and not again.is_open
    assert again.format_line() == "- task_1 (helper): done; check_task gives its answer"


def test_the_thread_above_holds_that_of_a_child_that_paused() -> None:
    above, below = Thread("th_1"), Thread("th_1.abc")
    below.add(user("one"))
    above.append("event", {"run": "run_1", "name": SNAPSHOT, "data": below.to_json()})
    place = len(above.entries)
    below.add(user("two"))
    above.append("event", {"run": "run_1", "name": SNAPSHOT, "data": below.to_json()})
    found = find_paused_thread(above, "th_1.abc")
    assert found is not None and found.to_json() == below.to_json(), "the latest counts"
    assert find_paused_thread(above, "th_1.xyz") is None
    above.rewind(place)
    found = find_paused_thread(above, "th_1.abc")
    assert found is not None and len(found.messages) == 1, "messages before a rewind do not"
    assert can_resume(Run(thread=above), job()) and not can_resume(Run(), job())
