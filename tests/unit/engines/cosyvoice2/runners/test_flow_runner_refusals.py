import pytest

torch = pytest.importorskip("torch")

from cc_tts.engines.cosyvoice2.model.networks.flow.flow import Flow, FlowReference  # noqa: E402
from cc_tts.engines.cosyvoice2.runners.flow import FlowRow, FlowRunner  # noqa: E402
from tests.support.flow_cases import CLOSE, NOISE, new_flow, new_runner, num_used, prompt_of, run, tokens_of, whole  # noqa: E402
from tests.support.torch_threads import one_thread_without_gradients  # noqa: E402

pytestmark = pytest.mark.unit

_one_thread_without_gradients = pytest.fixture(autouse=True, scope="module")(one_thread_without_gradients)


@pytest.fixture(scope="module")
def flow() -> Flow:
    return new_flow()


class TestRefusals:
    """What cannot be done is said before anything is done."""

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([FlowRow(1, [1], is_last=False)], "not open"),
            ([FlowRow(0, [1], is_last=False), FlowRow(0, [1], is_last=False)], "once at a time"),
            ([FlowRow(0, [6561], is_last=False)], "no speech token 6561"),
            ([FlowRow(0, [1] * 181, is_last=False)], "more tokens"),
        ],
    )
    def test_steps(self, flow: Flow, rows: list[FlowRow], message: str) -> None:
        prompt, tokens = prompt_of(20), tokens_of(12, 3)
        runner = new_runner(flow)
        runner.open(0, runner.add_voice(prompt))
        with pytest.raises(ValueError, match=message):
            runner.step(rows)
        torch.testing.assert_close(torch.cat(run(runner, 0, [tokens]), dim=1), whole(flow, prompt, tokens), **CLOSE)
        with pytest.raises(ValueError, match="over"):
            runner.step([FlowRow(0, [], is_last=True)])

    def test_slots(self, flow: Flow) -> None:
        runner = new_runner(flow)
        voice = runner.add_voice(prompt_of(50))
        runner.open(0, voice)
        for slot in (0, -1, 4):
            with pytest.raises(ValueError, match="not free"):
                runner.open(slot, voice)
        runner.close(1)
        runner.close(0)
        assert num_used(runner.pool) == 1

    @pytest.mark.parametrize("num_prompt", [201, 20])
    def test_voices(self, flow: Flow, num_prompt: int) -> None:
        prompt, runner = prompt_of(num_prompt), new_runner(flow)
        if num_prompt == 20:
            with pytest.raises(ValueError, match="no speech token"):
                runner.add_voice(FlowReference(prompt.token + 6561, prompt.feat, prompt.embedding))
        else:
            with pytest.raises(ValueError, match="more than 200"):
                runner.add_voice(prompt)
        assert num_used(runner.pool) == 0

    def test_runners(self, flow: Flow) -> None:
        with pytest.raises(ValueError, match="noise"):
            FlowRunner(flow, num_slots=1, num_pages=1, noise=NOISE, max_tokens=201)
