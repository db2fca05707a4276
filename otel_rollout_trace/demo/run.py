"""A run: one process that trains, from its log's opening to its closing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_rollout_trace import RolloutTrace, configure

from . import checkpoint
from .checkpoint import Checkpoint
from .display import Display, shown
from .engine import Engine
from .links import Link, poll
from .pace import PacedLoop
from .rollouts import Rollouts
from .training import ReplayBuffer, StepReport, Trainer

__all__ = ["DEFAULT_STEPS", "Settings", "train"]

DEFAULT_STEPS: Final = 30

# A run without end starts over with fresh weights once its mean reward over so many
# steps is that good: near the top there is little left to learn from, or to look at.
_SOLVED_STEPS: Final = 5
_SOLVED_REWARD: Final = 0.9


@dataclass(frozen=True)
class Settings:
    """What a demo run is to do.

    Attributes:
        log: the log.
        steps: how many steps to train; None for no end.
        seed: runs of the same seed go the same way, times and ids aside.
        speed: how many times as fast as usual.
        checkpoint_every: steps between checkpoints.
        kill_at_step: the step during which the training is killed; None for none.
        resume: whether to go on from the last checkpoint there is.
        links: addresses to print once they answer.

    Raises:
        ValueError: for values that make no sense.
    """

    log: Path
    steps: int | None = DEFAULT_STEPS
    seed: int = 0
    speed: float = 1.0
    checkpoint_every: int = 5
    kill_at_step: int | None = None
    resume: bool = False
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError("--steps must be at least 1")
        if self.seed < 0:
            raise ValueError("--seed must not be negative")
        if not 0 < self.speed < float("inf"):
            raise ValueError("--speed must be a number above 0")
        if self.checkpoint_every < 1:
            raise ValueError("--checkpoint-every must be at least 1")
        if self.kill_at_step is not None and not 1 <= self.kill_at_step <= (
            self.steps or self.kill_at_step
        ):
            raise ValueError("--kill-at-step must be one of the steps")


def train(settings: Settings) -> int:
    """Train in this process.

    Returns:
        The exit status: 0, or 128 and a signal's number where one ended it.
    """
    ended_by: list[int] = []
    with _opened(settings.log) as trace, shown(settings.steps) as display:
        loop = PacedLoop(settings.speed)
        if settings.links:
            poll(settings.links, display.note)
        training = loop.create_task(_train(settings, trace, display))

        def end(signum: int) -> None:
            if not ended_by:
                ended_by.append(signum)
                training.cancel()

        for signum in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(signum, end, signum)
        try:
            loop.run_until_complete(training)
        except asyncio.CancelledError:
            pass  # by a signal: what is open ends as interrupted, when the trace closes
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.close()
    return 128 + ended_by[0] if ended_by else 0


async def _train(settings: Settings, trace: RolloutTrace, display: Display) -> None:
    directory = checkpoint.directory_of(settings.log)
    path = checkpoint.latest(directory) if settings.resume else None
    if path is None:
        checkpoint.delete_all(directory)
    state = checkpoint.load(path) if path else Checkpoint.fresh(settings.seed)
    engine = Engine(state.policy, state.weight_version, state.rng)
    buffer = ReplayBuffer()
    rollouts = Rollouts(
        trace,
        engine,
        buffer.add,
        seed=settings.seed,
        rng=state.rng,
        next_prompt=state.next_prompt,
    )
    trainer = Trainer(
        trace,
        state.policy,
        engine,
        rollouts,
        buffer,
        step=state.step,
        kill_at=settings.kill_at_step,
    )
    if path:
        trace.emit(
            "checkpoint_restored",
            step=state.step,
            path=str(path),
            weight_version=state.weight_version,
            groups=len(state.buffered),
        )
    for group in state.buffered:
        await rollouts.slots.acquire()
        buffer.add(group)
    rewards: deque[float] = deque(maxlen=_SOLVED_STEPS)

    def after_step(report: StepReport) -> None:
        display.stepped(report)
        rewards.append(report.reward)
        solved = len(rewards) == _SOLVED_STEPS and sum(rewards) > _SOLVED_REWARD * _SOLVED_STEPS
        if settings.steps is None and solved:
            state.policy.weights[:] = 0
            rewards.clear()
        if report.step % settings.checkpoint_every == 0:
            publish_checkpoint(report.step)

    def publish_checkpoint(step: int) -> None:
        # Groups that a restored run trains are counted in this run's lines: whatever
        # happens next, those must be in the file before the checkpoint is.
        trace.flush(timeout=1.0)
        waiting = [rollouts.reserved] if rollouts.reserved else []
        saved = checkpoint.save(
            directory,
            Checkpoint(
                step=step,
                weight_version=engine.version,
                policy=state.policy,
                rng=state.rng,
                next_prompt=rollouts.next_prompt,
                buffered=buffer.groups,
                unfinished=[*rollouts.open.values(), *waiting],
            ),
        )
        trace.emit(
            "checkpoint_published",
            step=step,
            path=str(saved),
            weight_version=engine.version,
        )

    display.watch(engine, rollouts, buffer)
    training = asyncio.ensure_future(trainer.train(settings.steps, after_step))
    pumping = asyncio.ensure_future(rollouts.pump(lambda: trainer.step + 1, state.unfinished))
    both: Iterable[asyncio.Future[None]] = (training, pumping, rollouts.failed)
    done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    pumping.cancel()
    for each in done:
        each.result()  # raises what went wrong
    trainer.wind_down()


def _opened(log: Path) -> RolloutTrace:
    """The trace, sent to a backend where the environment names one."""
    for signal_, other in (("TRACES", "METRICS"), ("METRICS", "TRACES")):
        told = any(
            value and name.startswith("OTEL_EXPORTER_OTLP_") and f"_{other}_" not in name
            for name, value in os.environ.items()
        )
        if not told:  # by default there would be one at this machine's port 4317
            os.environ.setdefault(f"OTEL_{signal_}_EXPORTER", "none")
    # A dashboard is to show what happens now.
    os.environ.setdefault("OTEL_METRIC_EXPORT_INTERVAL", "5000")
    return configure(log)
