"""The command that starts the program again."""

from pathlib import Path

from router.app.restart.successor import command


def test_a_module_is_run_by_the_same_interpreter() -> None:
    argv = ["python3", "-m", "router", "serve", "--emulate", "3"]
    assert command(argv, "/venv/bin/python") == ["/venv/bin/python", *argv[1:]]


def test_an_installed_script_chooses_its_interpreter(tmp_path: Path) -> None:
    """After an upgrade by a symbolic link, the script of the new version has another one."""
    script = tmp_path / "hedgerow"
    script.write_text("#!/venv-2/bin/python")
    argv = ["/venv-1/bin/python", str(script), "serve"]
    assert command(argv, "/venv-1/bin/python") == ["/venv-1/bin/python", *argv[1:]]
    script.chmod(0o755)
    assert command(argv, "/venv-1/bin/python") == [str(script), "serve"]
