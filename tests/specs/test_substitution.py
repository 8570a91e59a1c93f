"""`${VAR}` from the environment: where it is replaced, and where it never is."""

from __future__ import annotations

from tests.specs.reading import Reader


def test_variables(read: Reader) -> None:
    environment = {"N": "2", "WHO": "me", "EMPTY": "", "SPACE": "a b"}
    job = read.job(
        "run: echo ${WHO}\nsetup: echo ${WHO}\nnodes: ${N}\nimage: 'reg/${WHO}:${TAG:-latest}'\n"
        "env:\n  A: ${SPACE}\n  B: $${WHO}\n  C: ${EMPTY}\n  D: ${EMPTY:-d}\n  E: $WHO\n  F: ${N}\n"
        "roles: {worker: {run: 'r ${WHO}'}}",
        environment=environment,
    )
    role = job.roles[0]
    assert role.run == "r ${WHO}" and job.setup == "echo ${WHO}"
    assert role.nodes == 2 and role.image == "reg/me:latest"
    assert role.env == {"A": "a b", "B": "${WHO}", "C": "", "D": "d", "E": "$WHO", "F": "2"}


def test_an_undefined_variable_is_one_problem_at_its_place(read: Reader) -> None:
    problems = read.problems("run: x\nnodes: ${N}\nimage: ${\n")
    assert [str(problem).split(": ")[0] for problem in problems] == ["0.yaml:2:8", "0.yaml:3:8"]
    assert "the variable N is not set" in problems[0].message and "${N:-" in str(problems[0].hint)


def test_an_undefined_variable_in_a_field_that_must_be_there(read: Reader) -> None:
    (problem,) = read.problems("name: a\nrun: x\ndata:\n- url: ${DATA_URL}\n  to: data\n")
    assert "the variable DATA_URL is not set" in problem.message


def test_what_follows_from_an_undefined_variable_is_not_read_on(read: Reader) -> None:
    """The parameters' own complaint is not shown, and they are not parameters all the same."""
    problems = read.problems("name: a\nrun: x\nsweep:\n  lr: a ${sweep.lr}\n")
    assert [problem.path for problem in problems] == ["sweep.lr"]


def test_a_substituted_value_is_not_shown(read: Reader) -> None:
    text = read.says("run: x\nqueue: ${TOKEN}", environment={"TOKEN": "Very Secret"})
    assert "Secret" not in text and "${TOKEN}" in text


def test_secrets_are_never_substituted_nor_shown(read: Reader) -> None:
    environment = {"TOKEN": "s3cret"}
    for text in (
        "secrets: {TOKEN: abc123}",
        'secrets: {TOKEN: "${TOKEN}"}',
        "secrets: [abc-123]",
        "secrets: [TOKEN=abc123]",
        "secrets: abc123",
        "secrets: [hf_abc123abc123abc123abc123]",
        "secrets: {hf_abc123abc123abc123abc123: }",
        "secrets: {TOKEN: {env: 'abc 123'}}",
        "secrets: {TOKEN: {env: [abc123]}}",
        "secrets: {TOKEN: 123}",
    ):
        said = read.problems(f"run: x\n{text}", environment=environment)
        shown = "".join(f"{problem} {problem.hint}" for problem in said)
        assert "123" not in shown and "s3cret" not in shown, text
