"""The parts of the demo: reward, policy, checkpoints, its clock, its links."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from support.otlp_receiver import nobody

from otel_rollout_trace import RefitCuts, RolloutTrace
from otel_rollout_trace.demo import checkpoint, policy
from otel_rollout_trace.demo.checkpoint import Checkpoint
from otel_rollout_trace.demo.engine import Attempt, Engine, Group
from otel_rollout_trace.demo.links import Link, poll
from otel_rollout_trace.demo.pace import PacedLoop
from otel_rollout_trace.demo.policy import Policy, advantages_of, features_of, grpo_update
from otel_rollout_trace.demo.rollouts import Rollouts
from otel_rollout_trace.demo.task import END, TOKENS, Prompt, draw_prompt, reward_of

PROMPT = Prompt(0, (3, 1, 2), 5)


class TestTask:
    @pytest.mark.parametrize(
        ("answer", "reward"),
        [
            ([3, 1, 2, 3, 1, END], 1.0),
            ([3, 1, 2, END], 3 / 5),
            ([3, 1, 2, 3, 1, 2, 3, END], 5 / 7),
            ([3, 1, 7, 3, 1, END], 4 / 5),
            ([3, 1, 7, 3, 1, 7, END], 4 / 6),
            ([END], 0.0),
            ([], 0.0),
        ],
    )
    def test_an_answer_is_worth_its_share_of_right_letters(
        self, answer: list[int], reward: float
    ) -> None:
        assert reward_of(PROMPT, answer) == pytest.approx(reward)

    def test_a_prompt_is_the_same_each_time(self) -> None:
        assert draw_prompt(7, seed=1) == draw_prompt(7, seed=1)
        assert len({draw_prompt(number, seed=1) for number in range(50)}) == 50


class TestPolicy:
    def test_tokens_are_sampled_as_likely_as_it_says(self) -> None:
        rng = np.random.default_rng(0)
        tested = Policy(rng.normal(size=(18, TOKENS)))
        drawn = [tested.sample(PROMPT, [3, 1], rng) for _ in range(4000)]
        chances = {token: math.exp(log_chance) for token, log_chance in drawn}
        assert sum(chances.values()) == pytest.approx(1.0, abs=0.01)
        for token, chance in chances.items():
            share = sum(each == token for each, _ in drawn) / len(drawn)
            assert share == pytest.approx(chance, abs=0.03)

    def test_the_step_follows_the_gradient_of_the_clipped_objective(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Against differences of the objective, some of whose tokens are clipped."""
        monkeypatch.setattr(policy, "_PASSES", 1)
        monkeypatch.setattr(policy, "_LEARNING_RATE", 1.0)
        rng = np.random.default_rng(1)
        then, now = Policy(rng.normal(size=(18, TOKENS))), Policy(rng.normal(size=(18, TOKENS)))
        answers = []
        for advantage in (1.5, -0.5, -1.0):
            tokens: list[int] = []
            log_chances: list[float] = []
            for _ in range(6):
                token, log_chance = then.sample(PROMPT, tokens, rng)
                tokens.append(token)
                log_chances.append(log_chance)
            answers.append((PROMPT, tokens, log_chances, advantage))

        def objective(weights: policy.Floats) -> float:
            gained = []
            for prompt, tokens, log_chances, advantage in answers:
                for place, token in enumerate(tokens):
                    logits = weights[features_of(prompt, tokens[:place])].sum(axis=0)
                    softmax = float(np.exp(logits[token]) / np.exp(logits).sum())
                    chance = 0.98 * softmax + 0.02 / TOKENS
                    ratio = chance / math.exp(log_chances[place])
                    clipped = min(max(ratio, 0.8), 1.2)
                    gained.append(min(ratio * advantage, clipped * advantage))
            return sum(gained) / len(gained)

        expected = np.zeros_like(now.weights)
        for index in np.ndindex(*now.weights.shape):
            step = np.zeros_like(now.weights)
            step[index] = 1e-6
            ahead, behind = objective(now.weights + step), objective(now.weights - step)
            expected[index] = (ahead - behind) / 2e-6
        before, loss = now.weights.copy(), -objective(now.weights)
        assert grpo_update(now, answers) == pytest.approx(loss)
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(now.weights - before, expected, atol=1e-7)

    def test_it_is_never_certain(self) -> None:
        """So a group's answers stay different, and it goes on learning."""
        sure = Policy()
        sure.weights[:, 0] = 1000
        rng = np.random.default_rng(0)
        drawn = [sure.sample(PROMPT, [], rng)[0] for _ in range(1000)]
        assert 5 < sum(token != 0 for token in drawn) < 50

    def test_advantages_are_relative_to_the_group(self) -> None:
        assert advantages_of([0.5, 0.5, 0.5]) == [0, 0, 0]
        assert advantages_of([1.0, 0.0]) == pytest.approx([1, -1], abs=1e-4)


class TestEngine:
    def test_a_refit_cuts_calls_where_they_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first version always goes on, the second always ends."""
        monkeypatch.setattr(policy, "_EXPLORED", 0.0)
        on, end = Policy(), Policy()
        on.weights[16:, 0] = 100
        end.weights[16:, END] = 100
        attempt = Attempt("a1", 0, 0, token_seconds=0.25)
        cuts = RefitCuts()

        async def both() -> None:
            engine = Engine(on, 0, np.random.default_rng(0))
            calling = asyncio.ensure_future(engine.generate(PROMPT, attempt))
            await asyncio.sleep(0.9)
            calls = await engine.refit(end, 0.5)
            cuts.record(0, engine.version, calls)
            await calling

        loop = PacedLoop(1e6)
        loop.run_until_complete(both())
        loop.close()
        assert attempt.tokens == [0, 0, 0, END]
        assert attempt.cuts == [(0, 1, 3)]
        assert cuts.tokens_by_version([("a1", 0, 4)]) == {0: 3, 1: 1}


class TestCheckpoint:
    def state(self, step: int) -> Checkpoint:
        attempt = Attempt("a1", 2, 3, 0.5, [1, END], [-0.25, -1 / 3], [(3, 4, 1)], 0.1)
        group = Group("g1", PROMPT, 3, {2: attempt}, {3: 1, 4: 1})
        rng = np.random.default_rng(step)
        weights = rng.normal(size=(18, TOKENS))
        return Checkpoint(step, step, Policy(weights), rng, 17, [group], [group, group])

    def test_it_comes_back_as_it_was(self, tmp_path: Path) -> None:
        saved = self.state(4)
        path = checkpoint.save(tmp_path / "deep" / "directory", saved)
        assert checkpoint.latest(path.parent) == path
        loaded = checkpoint.load(path)
        assert (loaded.step, loaded.weight_version, loaded.next_prompt) == (4, 4, 17)
        assert loaded.buffered == saved.buffered
        assert loaded.unfinished == saved.unfinished
        np.testing.assert_array_equal(loaded.policy.weights, saved.policy.weights)
        assert loaded.rng.random(5).tolist() == saved.rng.random(5).tolist()

    def test_the_newest_two_are_kept(self, tmp_path: Path) -> None:
        for step in (8, 9, 10, 11):
            checkpoint.save(tmp_path, self.state(step))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["step_10.npz", "step_11.npz"]

    def test_one_that_was_not_finished_is_none(self, tmp_path: Path) -> None:
        checkpoint.save(tmp_path, self.state(1))
        (tmp_path / "step_2.tmp").write_bytes(b"half of")
        latest = checkpoint.latest(tmp_path)
        assert latest is not None
        assert latest.name == "step_1.npz"


class TestResumed:
    def test_tokens_of_the_earlier_run_keep_their_versions(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An attempt that two refits had cut before it was saved."""
        monkeypatch.setattr(policy, "_EXPLORED", 0.0)
        saved = Attempt("a1", 0, 3, 0.01, [3, 1, 2, 3], [-1.0] * 4, [(3, 4, 1), (4, 5, 3)])
        sealed = [
            Attempt(f"s{n}", n, 5, 0.01, [3, END] if n else [END], [-1.0, -1.0], [], 0.2)
            for n in range(1, 6)
        ]
        earlier = Group("g1", PROMPT, 3, {each.generation_index: each for each in [saved, *sealed]})
        published: list[Group] = []

        async def go_on() -> None:
            end = Policy()
            end.weights[16:, END] = 100
            engine = Engine(end, 5, np.random.default_rng(0))
            rollouts = Rollouts(
                RolloutTrace(None),
                engine,
                published.append,
                seed=0,
                rng=np.random.default_rng(0),
            )
            pumping = asyncio.ensure_future(rollouts.pump(lambda: 6, [earlier]))
            while not published:
                await asyncio.sleep(0.1)
            pumping.cancel()
            rollouts.discard_open("run_ended")
            await asyncio.sleep(1)  # until what was cancelled has ended

        loop = PacedLoop(1e6)
        loop.run_until_complete(go_on())
        loop.close()
        group = published[0]
        assert group.begun_on == 3
        assert group.attempts[0].tokens == [3, 1, 2, 3, END]
        assert group.tokens_by_version == {3: 1, 4: 2, 5: 2 + 2 * 5}


class TestPace:
    def test_its_time_goes_from_timer_to_timer(self) -> None:
        loop = PacedLoop(1e6)
        seen: list[tuple[str, float]] = []

        async def sleeps(name: str, *seconds: float) -> None:
            for each in seconds:
                await asyncio.sleep(each)
                seen.append((name, loop.time()))

        async def both() -> None:
            await asyncio.gather(sleeps("a", 3600, 3600), sleeps("b", 5000))

        loop.run_until_complete(both())
        loop.close()
        assert seen == [("a", 3600), ("b", 5000), ("a", 7200)]

    def test_a_call_from_outside_does_not_wait_for_a_timer(self) -> None:
        loop = PacedLoop(1.0)

        async def wait() -> float:
            called = asyncio.Event()
            thread = threading.Thread(target=loop.call_soon_threadsafe, args=(called.set,))
            thread.start()
            sleeping = asyncio.ensure_future(asyncio.sleep(3600))
            await called.wait()
            sleeping.cancel()
            thread.join()
            return loop.time()

        assert loop.run_until_complete(wait()) < 3600
        loop.close()


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server that answers everything with a status; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class TestLinks:
    def test_a_link_may_be_asked_elsewhere(self) -> None:
        text = "Jaeger=http://127.0.0.1:16686@http://jaeger:16686/"
        assert Link.parse(text) == ("Jaeger", "http://127.0.0.1:16686", "http://jaeger:16686/")
        text = "Grafana=http://127.0.0.1:3000/d/rollouts?a=b"
        url = "http://127.0.0.1:3000/d/rollouts?a=b"
        assert Link.parse(text) == ("Grafana", url, url)

    @pytest.mark.parametrize("text", ["", "Jaeger", "=http://x", "Jaeger=x", "Jaeger=http://"])
    def test_others_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not like"):
            Link.parse(text)

    @pytest.mark.parametrize("status", [200, 401, 404])
    def test_what_answers_is_printed(self, status: int) -> None:
        said: list[str] = []
        with answering(status) as polled:
            poll([Link("Jaeger", "http://127.0.0.1:16686", polled)], said.append).join()
        assert said == ["open Jaeger: http://127.0.0.1:16686"]

    def test_what_does_not_answer_is_said_in_the_end(self) -> None:
        said: list[str] = []
        with nobody() as refused, answering(503) as broken:
            links = [Link("A", "http://a", f"http://{refused}"), Link("B", "http://b", broken)]
            poll(links, said.append, patience=0.1).join()
        assert said == ["A does not answer: http://a", "B does not answer: http://b"]
