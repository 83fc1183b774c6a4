"""``cc-tts voices enrol | remove | enrolled``, by the whole command line."""

import json
import shlex
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

pytest.importorskip("safetensors")

from cc_tts import cli
from cc_tts.engines.enrolment import commands
from cc_tts.voices.enrolment import ReferenceFeatures
from cc_tts.voices.library import VoiceLibrary
from tests.fakes.fake_engine import FakeEngine

pytestmark = pytest.mark.unit

Samples = npt.NDArray[np.float32]
Run = Callable[..., int]
TEXT = "Thank you for calling, how can I help?"


class CountingEncoder:
    """Stands in for the networks."""

    def __init__(self) -> None:
        self.fingerprint = "networks 1"
        self.num_calls = 0
        self.error: BaseException | None = None

    def encode(self, audio: Samples, rate_hz: int) -> ReferenceFeatures:
        self.num_calls += 1
        if self.error is not None:
            raise self.error
        seconds = len(audio) / rate_hz
        return ReferenceFeatures(
            np.arange(int(seconds * 25), dtype=np.int32),
            np.zeros((int(seconds * 50), 80), dtype=np.float32),
            np.ones(192, dtype=np.float32),
        )


def write_wav(path: Path, seconds: float, *, peak: float = 0.5, rate_hz: int = 24_000) -> Path:
    """A tone whose loudness goes up and down four times a second, as syllables do."""
    at = np.arange(int(seconds * rate_hz)) / rate_hz
    sound = 32767 * peak * np.sin(2 * np.pi * 180 * at) * np.abs(np.sin(2 * np.pi * 2 * at))
    with path.open("wb") as raw, wave.open(raw, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(sound.astype("<i2").tobytes())
    return path


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> CountingEncoder:
    fake = CountingEncoder()
    monkeypatch.setattr(commands, "reference_encoder", lambda _model: fake)
    for module in ("cc_tts.engines.factory", "cc_tts.startup"):
        monkeypatch.setattr(f"{module}.make_engine", lambda *_arguments, **_more: FakeEngine())
    monkeypatch.setattr("cc_tts.logs.configure", lambda **_more: None)
    return fake


@pytest.fixture
def library(tmp_path: Path) -> VoiceLibrary:
    return VoiceLibrary(tmp_path / "voices")


@pytest.fixture
def run(tmp_path: Path, encoder: CountingEncoder, library: VoiceLibrary) -> Run:
    """``cc-tts voices COMMAND …`` with the folder and, for ``enrol``, what it cannot do without."""
    write_wav(tmp_path / "anna.wav", 4.5)
    (tmp_path / "model").mkdir()

    def call(command: str, *arguments: str, **given: str) -> int:
        given = {"voices": str(library.folder)} | given
        if command == "enrol":
            usual = {"wav": str(tmp_path / "anna.wav"), "language": "en-GB", "model": str(tmp_path / "model")}
            given = usual | given
        words = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", value)]
        return cli.main(["voices", command, *arguments, *words])

    return call


def test_a_voice_is_enrolled_and_found(run: Run, library: VoiceLibrary, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("enrol", "anna", transcript=TEXT, description="our Anna") == 0
    record, features = library.load("anna")
    assert (record.language, record.mode, record.description) == ("en-GB", "zero_shot", "our Anna")
    assert (features.transcript, len(features.llm_tokens), len(features.flow_tokens)) == (TEXT, 112, 88)
    out, err = capsys.readouterr()
    assert "anna: en-GB, zero_shot, 4.5 s, 112 speech tokens (88 for the flow)" in out
    assert f"kept in:  {library.folder}" in out
    assert "warning" not in out
    assert err.startswith("anna.wav: 4.5 s; loading")
    assert err.endswith("done\n")


def test_a_tilde_in_a_setting_is_the_home_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run("enrol", "anna", voices="~/mine", model="~/model", transcript=TEXT) == 0
    assert VoiceLibrary(tmp_path / "mine").has("anna")
    assert run("enrolled", voices="~/mine") == 0
    assert "anna" in capsys.readouterr().out
    assert run("remove", "anna", voices="~/mine") == 0
    assert not (tmp_path / "~").exists()


def test_the_transcript_is_normalised_in_the_language_of_the_voice(run: Run, library: VoiceLibrary) -> None:
    assert run("enrol", "anna", transcript="Dr. Lee has 2 cats.") == 0
    assert library.load("anna")[1].transcript == "Doctor Lee has two cats."


def test_the_next_command_is_one_that_parses(
    run: Run, library: VoiceLibrary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("enrol", "anna", "--set", "tts.speed=1.1", transcript=TEXT) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    words = shlex.split(line.removeprefix("try it:"))
    options = cli.build_parser(words[1:]).parse_args(words[1:])
    assert words[:2] == ["cc-tts", "say"]
    assert (options.voice, options.output) == ("anna", Path("anna-says.wav"))
    assert options.set == [
        "tts.speed=1.1",
        "tts.engine=cosyvoice2",
        f"tts.models.main.model_dir={tmp_path / 'model'}",
        f"tts.models.main.voices_dir={library.folder}",
    ]


def test_the_folders_come_from_the_configuration(
    tmp_path: Path, run: Run, library: VoiceLibrary, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("enrolled") == 0  # makes the fixtures' files
    config = tmp_path / "cc_tts.toml"
    text = f'[tts]\nengine = "cosyvoice2"\nvoices_dir = {json.dumps(str(library.folder))}\n'
    model = f"[tts.models.main]\nmodel_dir = {json.dumps(str(tmp_path / 'model'))}\n"
    config.write_text(text + model, encoding="utf-8")
    wav = str(tmp_path / "anna.wav")
    before = ["voices", "--config", str(config)]
    assert cli.main([*before, "enrol", "anna", "--wav", wav, "--transcript", TEXT, "--language", "en"]) == 0
    assert "--set" not in capsys.readouterr().out
    assert cli.main(["voices", "enrolled", "--config", str(config)]) == 0
    assert capsys.readouterr().out.split()[:3] == ["anna", "en", "zero_shot"]
    assert cli.main(["voices", "remove", "anna", "--config", str(config)]) == 0
    assert library.records() == ()


def test_with_several_models_the_one_that_is_meant_is_named(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("enrolled") == 0  # makes the fixtures' files
    (tmp_path / "other").mkdir()
    folders = {"v2": ("model", "voices"), "v3": ("other", "voices3")}
    given = [
        word
        for name, (model, voices) in folders.items()
        for key, folder in (("model_dir", model), ("voices_dir", voices))
        for word in ("--set", f"tts.models.{name}.{key}={tmp_path / folder}")
    ]
    told = ["--wav", str(tmp_path / "anna.wav"), "--transcript", TEXT, "--language", "en"]
    for arguments in (["enrol", "anna", *told], ["enrolled"], ["remove", "anna"]):
        assert cli.main(["voices", *given, *arguments]) == 2
        assert "give --model with one of v2, v3" in capsys.readouterr().err
    assert cli.main(["voices", *given, "enrol", "anna", *told, "--model", "v3"]) == 0
    assert (tmp_path / "voices3" / "anna.voice.json").exists()
    assert "model_dir=" not in capsys.readouterr().out.splitlines()[-1].replace(shlex.join(given), "")
    assert cli.main(["voices", *given, "enrolled", "--model", "v3"]) == 0
    assert capsys.readouterr().out.split()[0] == "anna"
    assert cli.main(["voices", *given, "enrolled", "--model", "v4"]) == 2
    assert "no model of tts.models is called 'v4', did you mean v" in capsys.readouterr().err
    assert cli.main(["voices", *given, "remove", "anna", "--model", "v3"]) == 0
    assert cli.main(["voices", *given, "enrol", "anna", *told, "--model", "v33"]) == 2
    assert "no directory 'v33', and no model of tts.models is called so, did you mean v3?" in capsys.readouterr().err
    elsewhere = ("--model", "v3", "--voices", str(tmp_path / "elsewhere"))
    assert cli.main(["voices", *given, "enrol", "anna", *told, *elsewhere]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"--set tts.models.v3.voices_dir={tmp_path / 'elsewhere'}")


def test_settings_before_and_after_the_command_all_count(
    library: VoiceLibrary, tmp_path: Path, encoder: object
) -> None:
    config = tmp_path / "cc_tts.toml"
    config.write_text("[tts]\nspeed = 1.5\n")
    arguments = ["voices", "--config", str(config), "--set", "a.b=1", "enrolled", "--set", "c.d=2", "--set", "e.f=3"]
    options = cli.build_parser(arguments).parse_args(arguments)
    assert (options.config, options.set) == (config, ["a.b=1", "c.d=2", "e.f=3"])
    options = cli.build_parser(["voices"]).parse_args(["voices", "enrolled"])
    assert (options.config, options.set) == (None, [])


@pytest.mark.parametrize("arguments", [["enrolled"], ["remove", "anna"]])
def test_without_a_folder_the_option_and_the_key_are_named(
    arguments: list[str], encoder: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["voices", *arguments]) == 2
    err = capsys.readouterr().err
    assert "--voices DIR" in err
    assert "tts.voices_dir" in err


def test_without_a_model_the_option_and_the_key_are_named(
    tmp_path: Path, encoder: object, capsys: pytest.CaptureFixture[str]
) -> None:
    wav = str(write_wav(tmp_path / "anna.wav", 3.0))
    given = ["--wav", wav, "--transcript", TEXT, "--language", "en", "--voices", str(tmp_path / "voices")]
    assert cli.main(["voices", "enrol", "anna", *given]) == 2
    err = capsys.readouterr().err
    assert "--model DIR" in err
    assert "[tts.models.main]" in err


def test_a_name_that_is_taken_is_refused_unless_replaced(
    run: Run, library: VoiceLibrary, encoder: CountingEncoder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("enrol", "anna", transcript=TEXT) == 0
    assert run("enrol", "anna", transcript="Other words.") == 2
    assert "a voice 'anna' is there already" in capsys.readouterr().err
    assert encoder.num_calls == 1
    assert library.load("anna")[1].transcript == TEXT
    assert run("enrol", "anna", "--replace", transcript="Other words.") == 0
    assert library.load("anna")[1].transcript == "Other words."
    assert len(list(library.features.entries())) == 1


def test_the_same_recording_is_computed_once_for_two_names(
    run: Run, library: VoiceLibrary, encoder: CountingEncoder
) -> None:
    assert run("enrol", "anna", transcript=TEXT) == 0
    assert run("enrol", "calm", transcript=TEXT, mode="instruct", instruction="Speak calmly.") == 0
    assert encoder.num_calls == 1
    assert run("remove", "anna") == 0
    record, features = library.load("calm")
    assert (record.mode, record.instruction, features.transcript) == ("instruct", "Speak calmly.", TEXT)


@pytest.mark.parametrize("more", [{"mode": "cross_lingual"}, {"mode": "instruct", "instruction": "Speak calmly."}])
def test_two_modes_need_no_transcript(
    run: Run, library: VoiceLibrary, encoder: CountingEncoder, more: dict[str, str]
) -> None:
    assert run("enrol", "anna", **more) == 0
    assert run("enrol", "again", **more) == 0
    record, features = library.load("anna")
    assert (record.mode, features.transcript, len(features.flow_tokens)) == (more["mode"], "", 88)
    assert encoder.num_calls == 1


def test_the_flows_prompt_may_stay_whole(run: Run, library: VoiceLibrary) -> None:
    assert run("enrol", "anna", "--keep-whole", transcript=TEXT) == 0
    assert run("enrol", "across", "--keep-whole", mode="cross_lingual") == 0
    assert [len(library.load(voice_id)[1].flow_tokens) for voice_id in ("anna", "across")] == [112, 112]


def test_a_transcript_comes_from_a_file_as_one_line(run: Run, library: VoiceLibrary, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "Grüß Gott,\r\n  wie kann ich helfen?\n".encode())
    assert run("enrol", "anna", transcript_file=str(path)) == 0
    assert library.load("anna")[1].transcript == "Grüß Gott, wie kann ich helfen?"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "the transcript is empty"),
        (b" \n", "the transcript is empty"),
        (b"...", "no words, only signs"),
        (b"Gr\xfc\xdf Gott", "not a text in UTF-8"),
        (b"a" * 3601, "too long for what is said in 30 s"),
        (b"a" * 901, "the transcript has 901 characters"),
        (b"a\0b", "control characters"),
        (b"Hello.<|endofprompt|>", "marks of the model"),
    ],
)
def test_transcript_files_that_say_nothing(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes | None, message: str
) -> None:
    path = tmp_path / "words.txt"
    if data is not None:
        path.write_bytes(data)
    assert run("enrol", "anna", transcript_file=str(path)) in {1, 2}
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Give --transcript TEXT or --transcript-file FILE"),
        ({"transcript": ""}, "the transcript is empty"),
        ({"transcript": TEXT, "language": "english"}, "not a language tag"),
        ({"transcript": TEXT, "instruction": "Speak calmly."}, "zero_shot takes none"),
        ({"mode": "instruct"}, "needs an instruction"),
        ({"transcript": TEXT, "description": "a\nb"}, "the description holds control"),
        ({"transcript": TEXT, "model": "/nonexistent/model"}, "/nonexistent/model: no such directory"),
        ({"transcript": TEXT, "wav": "/nonexistent/anna.wav"}, "anna.wav: cannot be read: No such file"),
        ({"mode": "cross_lingual", "wav": "/nonexistent/anna.wav"}, "anna.wav: cannot be read: No such file"),
        ({"transcript": TEXT, "wav": "/"}, "/: not a file"),
        (
            {"transcript": TEXT, "wav": __file__, "model": "/nonexistent/model"},
            "test_commands.py: this is no audio file",
        ),
    ],
)
def test_what_is_wrong_is_told_before_the_slow_part(
    run: Run,
    library: VoiceLibrary,
    encoder: CountingEncoder,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, str],
    message: str,
) -> None:
    assert run("enrol", "anna", **given) in {1, 2}
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("cc-tts: ")
    assert captured.out == ""
    assert encoder.num_calls == 0
    assert not library.folder.exists()


@pytest.mark.parametrize(("seconds", "peak", "message"), [(3.0, 0.0, "silent"), (45.0, 0.5, "longer than 30 s")])
@pytest.mark.parametrize("given", [{"transcript": TEXT}, {"mode": "cross_lingual"}])
def test_recordings_that_no_voice_can_come_of(
    run: Run,
    library: VoiceLibrary,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seconds: float,
    peak: float,
    message: str,
    given: dict[str, str],
) -> None:
    wav = write_wav(tmp_path / "bad.wav", seconds, peak=peak)
    assert run("enrol", "anna", wav=str(wav), **given) == 1
    assert f"The recording cannot be used as a voice: bad.wav: {message}" in capsys.readouterr().err
    assert not library.has("anna")


def test_a_file_too_long_to_be_speech_is_not_read(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wav = tmp_path / "huge.wav"
    with wav.open("wb") as file:
        file.truncate(commands.MAX_WAV_BYTES + 1)  # a hole, no bytes on the disk
    assert run("enrol", "anna", wav=str(wav), transcript=TEXT) == 1
    assert "100,000,001 bytes; no 30 s of speech" in capsys.readouterr().err


def test_a_recording_may_be_flac_and_must_be_whole(
    run: Run, tmp_path: Path, library: VoiceLibrary, capsys: pytest.CaptureFixture[str]
) -> None:
    data, rate_hz = soundfile.read(write_wav(tmp_path / "anna.wav", 4.5))
    soundfile.write(tmp_path / "anna.flac", data, rate_hz)
    assert run("enrol", "anna", wav=str(tmp_path / "anna.flac"), transcript=TEXT) == 0
    assert library.load("anna")[1].duration_s == 4.5
    cut = tmp_path / "cut.wav"
    cut.write_bytes((tmp_path / "anna.wav").read_bytes()[:100_000])
    assert run("enrol", "bruno", wav=str(cut), transcript=TEXT) == 1
    assert "cut.wav: it is cut short: 2.1 s of 4.5 s are there" in capsys.readouterr().err


def test_warnings_of_the_recording_are_told_and_kept(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wav = write_wav(tmp_path / "quiet.wav", 3.0, peak=0.02)
    assert run("enrol", "anna", wav=str(wav), transcript=TEXT) == 0
    assert "warning: quiet, its loudest moment" in capsys.readouterr().out
    assert run("enrolled") == 0
    assert "  warning: quiet, its loudest moment" in capsys.readouterr().out


def test_a_failure_of_the_networks_leaves_no_voice(
    run: Run, library: VoiceLibrary, encoder: CountingEncoder, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder.error = KeyboardInterrupt()
    assert run("enrol", "anna", transcript=TEXT) == 130
    assert capsys.readouterr().err.endswith("failed\n")
    assert not library.has("anna")


def test_without_safetensors_the_extra_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, encoder: CountingEncoder, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert run("enrol", "anna", transcript=TEXT) == 2
    assert "gpu.lock" in capsys.readouterr().err
    assert encoder.num_calls == 0


def test_enrolled_lists_a_line_a_voice(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("enrol", "bruno", mode="cross_lingual", language="de")
    run("enrol", "anna", transcript=TEXT, description="our Anna")
    capsys.readouterr()
    for module in ("cc_tts.engines.factory", "cc_tts.startup"):
        monkeypatch.setattr(f"{module}.make_engine", lambda *_a, **_k: pytest.fail("an engine was started"))
    assert run("enrolled") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["anna", "en-GB", "zero_shot", "4.5", "s", "112", "tokens", "our", "Anna"],
        ["bruno", "de", "cross_lingual", "4.5", "s", "112", "tokens"],
    ]


def test_enrolled_reports_what_cannot_be_used(
    run: Run, library: VoiceLibrary, capsys: pytest.CaptureFixture[str]
) -> None:
    run("enrol", "anna", transcript=TEXT)
    run("enrol", "bruno", mode="cross_lingual")
    library.features.remove(library.load("bruno")[0].key)
    (library.folder / "zoe.voice.json").write_text("{")
    capsys.readouterr()
    assert run("enrolled") == 1
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["anna", "bruno"]
    assert "no features" in out
    assert "cc-tts: zoe.voice.json: not a voice" in err
    assert "cc-tts: bruno: its features are missing" in err


def test_an_empty_library_says_how_to_fill_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("enrolled") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "`cc-tts voices enrol` makes one" in err


def test_remove(run: Run, library: VoiceLibrary, capsys: pytest.CaptureFixture[str]) -> None:
    run("enrol", "anna", transcript=TEXT)
    assert run("remove", "ana") == 1
    assert "did you mean anna?" in capsys.readouterr().err
    assert run("remove", "../anna") == 1
    assert run("remove", "anna") == 0
    assert f"removed anna from {library.folder}" in capsys.readouterr().out
    assert (library.records(), list(library.features.entries())) == ((), [])


def test_the_voices_of_the_engine_are_still_listed(encoder: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["voices", "--language", "de"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["de"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["sing"],
        ["enrol", "anna", "--language", "en"],
        ["enrol", "anna", "--wav", "x.wav"],
        ["enrol", "anna", "--wav", "x.wav", "--language", "en", "--mode", "sft"],
        ["enrol", "anna", "--wav", "x.wav", "--language", "en", "--transcript", "a", "--transcript-file", "b"],
        ["remove"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["voices", *arguments])
    assert ended.value.code == 2
    assert "usage: cc-tts voices" in capsys.readouterr().err


def test_the_real_graphs_enrol_a_voice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], library: VoiceLibrary
) -> None:
    """With the small model in the published layout; its tokens are below the codebook of the published one."""
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from lab.cosyvoice.tiny_model import NUM_CODES, make_tiny_model

    model = make_tiny_model(tmp_path / "model")
    wav = str(write_wav(tmp_path / "anna.wav", 3.0))
    given = ["--wav", wav, "--language", "en", "--model", str(model), "--voices", str(library.folder)]
    assert cli.main(["voices", "enrol", "anna", "--transcript", TEXT, *given]) == 0
    features = library.load("anna")[1]
    assert len(features.llm_tokens) == 75
    assert 0 <= features.llm_tokens.min() <= features.llm_tokens.max() < NUM_CODES
    assert features.flow_mel.shape == (126, 80)
    assert np.linalg.norm(features.embedding) > 0

    (model / "campplus.onnx").unlink()
    capsys.readouterr()
    assert cli.main(["voices", "enrol", "bruno", "--transcript", TEXT, *given]) == 2
    assert "campplus.onnx: no such file" in capsys.readouterr().err
    (model / "campplus.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert cli.main(["voices", "enrol", "bruno", "--transcript", TEXT, *given]) == 2
    assert "Git LFS pointer" in capsys.readouterr().err
