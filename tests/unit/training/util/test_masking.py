"""Secrets stay out of what others may read, and what is none stays readable."""

from __future__ import annotations

import pytest

from training.util.masking import masked, without_secrets


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "hf_abc", "***"),
        ("SPARK_AUTH_SECRET", "abc", "***"),
        ("AWS_ACCESS_KEY_ID", "abc", "***"),
        ("DET_SESSION_TOKEN", "abc", "***"),
        ("PGPASSWORD", "abc", "***"),
        ("DET_PASS", "abc", "***"),
        ("MYSQL_PWD", "abc", "***"),
        ("OPENAI_APIKEY", "abc", "***"),
        ("GITHUB_PAT", "abc", "***"),
        ("SLACK_WEBHOOK_URL", "https://hooks/abc", "***"),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=abc", "***"),
        ("PROXY", "http://me:abc@proxy:3128", "http://***@proxy:3128"),
        ("PROXY", "me:abc@proxy:3128", "***@proxy:3128"),
        ("PROXY", "http://me:a/b@proxy:3128", "http://***@proxy:3128"),
        (
            "PYSPARK_SUBMIT_ARGS",
            "--conf spark.authenticate.secret=abc --name x",
            "--conf spark.authenticate.secret=*** --name x",
        ),
        (
            "DET_EXPERIMENT_CONFIG",
            '{"secret_key": "abc", "registry_auth": {"password": "abc"}, "cpu": ["HF_TOKEN=abc"]}',
            '{"secret_key": "***", "registry_auth": {"password": "***"}, "cpu": ["HF_TOKEN=***"]}',
        ),
        ("DATA", "https://store/x?sig=abc&se=2", "https://store/x?sig=***&se=2"),
        ("DATA", "https://store/x?X-Amz-Signature=abc", "https://store/x?X-Amz-Signature=***"),
        ("SAID", "eyJhbGciOi.eyJzdWIi.c2ln", "***"),
        ("LOGIN", "password={abc}", "password=***"),
        ("LOGIN", '{"keys": ["one", "two"], "auth": {}}', '{"keys": ["one", "two"], "auth": {}}'),
        ("PATH", "/usr/bin:/bin", "/usr/bin:/bin"),
        ("PWD", "/srv/runs", "/srv/runs"),
        ("OLDPWD", "/root", "/root"),
        ("DB_PWD", "abc", "***"),
        ("NCCL_SOCKET_IFNAME", "eth0", "eth0"),
        ("TOKENIZERS_PARALLELISM", "false", "false"),
        ("KEYBOARD", "de", "de"),
    ],
)
def test_what_may_be_a_secret_in_a_variable_is_masked(name: str, value: str, shown: str) -> None:
    assert masked(name, value) == shown


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("--conf spark.authenticate.secret=abc x", "--conf spark.authenticate.secret=*** x"),
        ("Refused: password: a&b, user: ada", "Refused: password: ***, user: ada"),
        ("Refused: {'hf_token': 'abc', 'x': 1}", "Refused: {'hf_token': '***', 'x': 1}"),
        ("secret=[abc", "secret=***"),
        ("https://ada:pw@store/x", "https://***@store/x"),
        ("https://t0ken@store/x", "https://***@store/x"),
        ("Expired: eyJhbGciOi.eyJzdWIi.c2ln", "Expired: ***"),
    ],
)
def test_what_surely_is_a_secret_in_a_sentence_is_masked(said: str, shown: str) -> None:
    assert without_secrets(said) == shown


@pytest.mark.parametrize(
    "harmless",
    [
        "tokenizer: KeyError, tokens_per_s: 3",
        "Rank 0 on worker1: KeyError: 'x'",
        "author: Ada, key: 3",
        "worker1:29500: connection refused",
    ],
)
def test_a_sentence_without_secrets_stays_as_it_is(harmless: str) -> None:
    assert without_secrets(harmless) == harmless
