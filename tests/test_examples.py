"""The examples and the README's code run, and the README tells the truth."""

import dataclasses
import inspect
import json
import pathlib
import re
import runpy
import shlex

import pytest

import keras_vit
from keras_vit.checkpoints import find_checkpoint
from keras_vit.cli import parse
from keras_vit.experiments.paper_tables import SCALING_STUDY, count_exaflops
from keras_vit.training import RECIPES
from tests.fixtures.images import write_folder

pytestmark = pytest.mark.backends("tensorflow", reason="pages are the same on every backend")

ROOT = pathlib.Path(__file__).parent.parent
# Other tests run those that need an engine, another package or weights.
ELSEWHERE = (
    "08_predict_on_spark",
    "09_detector_on_keras_hub",
    "10_moving_on_from_vit_keras",
    "11_saliency",
)
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem not in ELSEWHERE)
README = (ROOT / "README.md").read_text()
PAGES = {
    path.name: path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
}


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page], flags=re.DOTALL)


PAGES_WITH_PYTHON = sorted(page for page in PAGES if blocks(page, "python"))
SHELL_BLOCKS = [block for page in PAGES for block in blocks(page, "sh")]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Keras's cache with files, of random weights, under the names that the pages load."""
    home = tmp_path_factory.mktemp("home")
    for build in (keras_vit.ViT_S16, keras_vit.R26_S32):
        checkpoint = find_checkpoint(f"{build.__name__}/augreg_imagenet21k")
        path = home / "keras_vit" / checkpoint.url.removeprefix("gs://")
        model = build(num_classes=checkpoint.num_classes)
        keras_vit.save_checkpoint(model, path, "google")
    return home


@pytest.fixture
def photos(tmp_path, monkeypatch, cache):
    """A working directory with a folder of images, as the README's reader has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(cache))
    return write_folder(tmp_path / "photos", ("cat", "dog"), count=10)


@pytest.mark.examples
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path, photos, monkeypatch):
    arguments = [str(photos)] if path.name.startswith("01") else []
    monkeypatch.setattr("sys.argv", [str(path), *arguments])
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.examples
def test_saliency_of_trained_weights():
    """The served maps are those of ONNX Runtime."""
    directory = ROOT / "build" / "real"
    if not directory.exists():
        pytest.skip("`make real` downloads the weights to build/real")
    runpy.run_path(str(ROOT / "examples" / "11_saliency.py"))["main"](directory)


@pytest.mark.examples
@pytest.mark.parametrize("page", PAGES_WITH_PYTHON)
def test_python_of_the_pages(page, photos):
    # Later blocks go on with the names of earlier ones.
    names = {}
    for code in blocks(page, "python"):
        exec(compile(code, page, "exec"), names)


def test_the_page_has_the_table_of_the_scaling_study():
    for (model, builder, epochs), results in SCALING_STUDY.items():
        reported, counted = results["exaflops"], count_exaflops(builder, epochs)
        cells = model, epochs, reported, f"{counted:,.1f}"
        line = " | ".join(map(str, (*cells, f"{counted / reported.value:.3f}")))
        assert f"| {line} |" in PAGES["studies.md"]


@pytest.mark.slow
def test_commands_of_the_pages_are_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = {"recipe": dataclasses.asdict(RECIPES["finetune"]), "model": "m", "data": "digits"}
    lines = "\n".join(SHELL_BLOCKS).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("keras-vit ")]
    assert len(commands) >= 5
    for command in commands:
        if "--resume" in command:
            # What it goes on with is recorded there.
            workdir = pathlib.Path(command[command.index("--workdir") + 1])
            workdir.mkdir(parents=True)
            (workdir / "run.json").write_text(json.dumps(run))
        words = [word.replace("-", "") for word in command[1:3]]
        assert type(parse(command[1:])).__name__.lower() in words


def test_generated_pages_are_not_in_the_repository():
    pages = runpy.run_path(str(ROOT / "docs" / "pages.py"))["pages"]()
    assert {"weight_maps.md", "support.md", "catalog.md", "recipes.md"} < set(pages)
    assert [path for path in pages if (ROOT / "docs" / path).exists()] == []


def test_links_of_the_readme_work_on_pypi():
    readme = runpy.run_path(str(ROOT / "setup.py"))["with_whole_addresses"](README)
    links = re.findall(r"\]\(([^)#]+)", readme)
    assert len(links) == len(re.findall(r"\]\(([^)#]+)", README)) > 20
    assert all(link.startswith("https://") for link in links)
    assert "/raw/main/docs/pictures/" in readme


def test_the_reference_has_every_public_name():
    script = runpy.run_path(str(ROOT / "docs" / "pages.py"))
    functions = " ".join([script["builders"](), *script["reference"]().values()])
    wings = {name for name in keras_vit.__all__ if inspect.ismodule(getattr(keras_vit, name))}
    for name in set(keras_vit.__all__) - wings:
        assert re.search(rf"\bkeras_vit\.{name}\b", functions), name


def test_tables_in_pages_are_generated():
    generated = runpy.run_path(str(ROOT / "docs" / "tables.py"))["tables"]()
    for page, tables in generated.items():
        for table in tables:
            assert table in PAGES[page.removeprefix("../")]


def test_links_lead_somewhere():
    site = "https://keras-vit.github.io/keras_vit/"
    generated = runpy.run_path(str(ROOT / "docs" / "pages.py"))["pages"]()
    for page, text in PAGES.items():
        folder = ROOT if page == "README.md" else ROOT / "docs"
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            is_generated = folder != ROOT and link in generated
            assert is_generated or (folder / link).exists(), f"{page}: {link}"
        for name in re.findall(rf"\]\({site}([^)#]+)/\)", text):
            assert f"{name}.md" in generated, f"{page}: {name}"
