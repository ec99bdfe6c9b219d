"""What is stored or shown of a command line holds no secret, in whatever form it was given."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.capture.manifest import surroundings
from timesink.untrusted.masking import is_secret_name, redacted, stored_command
from timesink.verify.environment import Command, command_differences

SECRET = "hunter2abc"
TOKEN = "Ab1" * 12
FORMS = f"""--password {SECRET}|--password={SECRET}|--api-key {SECRET}|--api_key={SECRET}|--token {SECRET}
|--hf-token={SECRET}|HF_TOKEN={SECRET}
|AWS_SECRET_ACCESS_KEY={SECRET}|MYSQL_PWD={SECRET}|--header 'Authorization: Bearer {SECRET}'
|-H 'Authorization: Basic {SECRET}'|-H 'X-Api-Key: {SECRET}'|--auth {SECRET}|--pwd {SECRET}|--pass {SECRET}
|--passphrase {SECRET}|-p {SECRET}|-p{SECRET}|--private-key {SECRET}|--wandb.key {SECRET}|+wandb.api_key={SECRET}
|-u bob:{SECRET}|--user=bob:{SECRET}|'{{"password":"{SECRET}"}}'|--config '{{"db": {{"secret": "{SECRET}"}}}}'
|'https://h/x?token={SECRET}'|'https://b.s3.amazonaws.com/k?a=b&X-Amz-Signature={SECRET}'|https://me:{SECRET}@h/x
|postgres://svc:{SECRET}@db/x|https://hooks.slack.com/services/T0/B0/{SECRET}|bash -c 'export API_TOKEN={SECRET}; x'
|eyJ{TOKEN}.eyJ{TOKEN}.{TOKEN}|nvapi-{TOKEN}|npm_{TOKEN}|hf_{TOKEN}|sk-proj-{TOKEN}|glpat-{TOKEN}|{TOKEN}
|--password 'two {SECRET}'|--client-secret "{SECRET}"|--cookie 'session={SECRET}'|'Cookie: session={SECRET}'
|--dsn {SECRET}|'password: {SECRET}'|--sas={SECRET}|'AccountName=x;AccountKey={SECRET}=='""".replace("\n", "").split(
    "|"
)


def test_there_are_the_forms_that_were_measured(record_property: Callable[[str, object], None]) -> None:
    record_property("figure", f"secrets in command lines: {len(FORMS)} forms")
    assert len(FORMS) >= 37


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_in_any_usual_form_is_neither_stored_nor_shown(form: str) -> None:
    argv = ["python", "train.py", *shlex.split(form), "--lr", "3"]
    line = shlex.join(argv)
    told = [stored_command(argv), redacted(line), Command.parse(line).text, json.dumps(surroundings(argv, []))]
    told += [str(pair) for pair in command_differences(Command.parse("python train.py"), Command.parse(line)).values()]
    other = line.replace(SECRET, f"{SECRET}9").replace(TOKEN, f"{TOKEN}9")
    told += [str(pair) for pair in command_differences(Command.parse(line), Command.parse(other)).values()]
    for text in told:
        assert SECRET not in text and TOKEN not in text, text
    assert stored_command(argv).endswith("--lr 3"), "what follows stays"


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc-per-node 8 train.py --tokenizer gpt2 --max-tokens 128 -p 4 --author x --keep 3",
        "python -m pkg.train +trainer.devices=2 model.keys_per_head=4 --passes 3",
        "python train.py --model meta-llama/Meta-Llama-3-8B-Instruct --bypass --monkey 3 https://h/x?page=3",
    ],
)
def test_a_plain_command_stays_as_it_is(line: str) -> None:
    assert stored_command(shlex.split(line)) == redacted(line).replace("https://h/x?page=3", "'https://h/x?page=3'")
    assert redacted(line) == line


@given(
    st.sampled_from(["API_TOKEN", "db.password", "apiKey", "X-Amz-Signature", "wandb_key", "clientSecret"]),
    st.text(min_size=1),
)
def test_the_value_of_a_secret_s_name_never_stays(name: str, value: str) -> None:
    assert is_secret_name(name)
    for argv in ([f"--{name}={value}"], [f"--{name}", f"x{value}"]):
        assert (
            value == "*" or shlex.quote(value) not in stored_command(argv).replace("***", "").replace(name, "").split()
        )


def test_a_fact_that_names_a_secret_is_not_kept() -> None:
    facts = surroundings(["python"], [], {"api_key": SECRET, "batch": "8"})["facts"]
    assert facts == {"api_key": "***", "batch": "8"}
