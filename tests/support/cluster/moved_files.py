"""G8: the files of a run whose server was killed, on the server that resumes it, beside those of its recorded effects.

The model of such a run requests one generated command after the other. A folder of its own repeats the commands whose
end is in the thread. After a kill the model holds its replies while both are compared.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.file_commands import FINISHED, NOBODY, generate_command, repeat_command
from cluster.load import ClientRun, Load
from cluster.machines import Cluster, Machine
from shell_changes import read_state

WORKSPACES = 6
END_SECONDS = 60.0  # for the runs to end


def file_agents(count: int = WORKSPACES) -> dict[str, Mapping[str, Any]]:
    """Return agents with a workspace each, on the disk of the server."""
    backend = {"type": "local", "sandbox": "bubblewrap"}
    return {f"files{number}": {"backend": backend, "limits": {"steps": 10_000}} for number in range(count)}


@dataclass(eq=False)
class RepeatedFiles:
    """The run of a workspace, and a folder in which its recorded commands are repeated."""

    agent: str
    run: ClientRun
    folder: Path
    steps: int = 0  # that were repeated or have no recorded end

    def repeat(self, results: list[str]) -> int:
        """Repeat the commands with a new result, and return their number. One without its last line was interrupted."""
        finished = [step for step in range(self.steps, len(results)) if FINISHED in results[step]]
        for step in finished:
            self.repeat_step(step)
        self.steps = len(results)
        return len(finished)

    def repeat_step(self, step: int) -> None:
        repeat_command(self.folder, generate_command(self.run.name, step))

    def replace(self, workspace: Path) -> None:
        """Continue with the files of a workspace, so that a difference counts once."""
        subprocess.run(["sh", "-c", 'rm -rf "$2" && cp -a "$1" "$2"', "sh", workspace, self.folder], check=True)
        subprocess.run(["chown", "-Rh", str(NOBODY), self.folder], check=True)


class MovedFiles:
    """Runs that change files on a cluster, and the comparison of those files after kills."""

    def __init__(self, cluster: Cluster, load: Load) -> None:
        self.cluster, self.load = cluster, load
        self.outcomes: Counter[str] = Counter()  # of comparisons: equal, ahead, different
        self.effects = self.finished = 0
        self.repeated: dict[str, RepeatedFiles] = {}  # by the name of the run
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def runs(self) -> list[ClientRun]:
        return [one.run for one in self.repeated.values()]

    def start(self) -> None:
        """Start a run for each agent that has a workspace."""
        for agent in self.cluster.agents:
            run, folder = self.load.create_run(), self.cluster.folder / f"repeated-{agent}"
            folder.mkdir()
            self.repeated[run.name] = RepeatedFiles(agent, run, folder)
            self._tasks.append(asyncio.create_task(self.load.perform(run, agent, files=True)))

    def hold_model(self) -> None:
        """Let the model hold its replies in these runs."""
        (self.cluster.folder / "hold").touch()

    def release_model(self) -> None:
        (self.cluster.folder / "hold").unlink()

    async def compare(self, names: Iterable[str]) -> None:
        """Compare the files of runs, on the servers that called the model last, with those of the recorded commands."""
        last = {row["run"]: row for row in self.cluster.read_lines("requests")}
        machines = {machine.address: machine for machine in self.cluster.machines}
        for name in names:
            one, row = self.repeated[name], last[name]
            machine = machines[row["server"]]
            for _ in range(100):  # the last result may not be in the log yet
                results = await self.load.read_tool_results(machine.url, one.run)
                if len(results) >= row["step"]:
                    break
                await asyncio.sleep(0.1)
            outcome = await asyncio.to_thread(self.compare_folders, one, find_workspace(machine, one.agent), results)
            self.outcomes[outcome] += 1

    def compare_folders(self, one: RepeatedFiles, workspace: Path, results: list[str]) -> str:
        """Return `equal`, or `ahead` if the files have a whole command whose end is not recorded."""
        self.effects += one.repeat(results)
        found, expected = read_state(workspace), read_state(one.folder)
        if found != expected and results and FINISHED not in results[-1]:
            one.repeat_step(len(results) - 1)
            if found == read_state(one.folder):
                return "ahead"
        if found == expected:
            return "equal"
        different = sorted((path for path in {*found, *expected} if found.get(path) != expected.get(path)), key=str)
        print(f"  {one.run.name}, {one.agent}, after step {one.steps}: {len(different)} paths differ", flush=True)
        for path in different[:5]:
            print(f"    {path!r}: {str(found.get(path))[:60]}, but not {str(expected.get(path))[:60]}", flush=True)
        one.replace(workspace)
        return "different"

    async def finish(self) -> None:
        """Let the runs end, and compare all files once more."""
        (self.cluster.folder / "stop").touch()
        await asyncio.wait(self._tasks, timeout=END_SECONDS)
        self.finished = sum(run.outcome == "completed" for run in self.runs)
        await self.compare([run.name for run in self.runs if run.ended])
        for task in self._tasks:
            task.cancel()


def find_workspace(machine: Machine, agent: str) -> Path:
    """Return the workspace of the only user of an agent."""
    (found,) = (machine.folder / machine.name / "workspaces").glob(f"*/{agent}")
    return found
