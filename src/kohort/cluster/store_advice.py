"""What to do about what a bucket's library says: one sentence for each mistake of a first try. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or a role of the machine)",
    "gs": "GOOGLE_SERVICE_ACCOUNT, a file with the key of a service account (or a role of the machine)",
    "az": "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
}
_PLACES = {
    "s3": "AWS_REGION, and AWS_ENDPOINT where it is not Amazon's",
    "gs": "the network to storage.googleapis.com",
    "az": "AZURE_STORAGE_ACCOUNT_NAME",
}
_BOX = {"s3": "bucket", "gs": "bucket", "az": "container"}

NO_ACCOUNT, NO_BOX, ELSEWHERE, NOBODY, REFUSED, UNCONDITIONAL, INSECURE, UNREACHABLE, NO_NAME, FULL = range(10)
_SIGNS: Sequence[tuple[int, Sequence[str]]] = (
    (NO_NAME, ("unable to recognise url",)),
    (FULL, ("storagefull", "quotaexceeded", "insufficient storage", "507 insufficient", "no space left")),
    (NO_ACCOUNT, ("account must be specified",)),
    (NO_BOX, ("nosuchbucket", "containernotfound", "the specified bucket does not exist", "bucket does not exist")),
    (
        ELSEWHERE,
        (
            "permanentredirect",
            "received redirect",
            "authorizationheadermalformed",
            "illegallocationconstraint",
            "301 moved",
            "missing region",
            "incorrect region",
        ),
    ),
    (NOBODY, ("169.254.169.254", "metadata.google.internal", "token request", "instance metadata", "no credential")),
    (
        REFUSED,
        (
            "invalidaccesskeyid",
            "signaturedoesnotmatch",
            "accessdenied",
            "authenticationfailed",
            "authorizationfailure",
            "403 forbidden",
            "401 unauthorized",
            "lacked the necessary privileges",
            "lacked valid authentication",
        ),
    ),
    (UNCONDITIONAL, ("notimplemented", "501 not implemented", "not supported", "operation not yet implemented")),
    (INSECURE, ("url scheme is not allowed", "builder error")),
    (UNREACHABLE, ("error sending request", "dns error", "connection refused", "timed out", "operation timed out")),
)


def kind_of(scheme: str) -> str:
    return {"abfs": "az", "abfss": "az"}.get(scheme, scheme)


def advice(url: str, said: str) -> str:
    """What to do; empty where that is not known."""
    kind = kind_of(url.partition("://")[0])
    low = said.lower()
    for sign, words in _SIGNS:
        if any(word in low for word in words):
            return _sentences(kind, url)[sign]
    return ""


def _sentences(kind: str, url: str) -> Mapping[int, str]:
    box = _BOX.get(kind, "bucket")
    credentials, place = _CREDENTIALS.get(kind, "its credentials"), _PLACES.get(kind, "its address")
    return {
        FULL: f"the {box} is full, or its quota is used up: make room in it, and the brokers go on by themselves",
        NO_NAME: f"name the {box}, as in {url.partition('://')[0]}://{box}/prefix",
        NO_ACCOUNT: f"whose account it is must be known: set {credentials}",
        NO_BOX: f"there is no such {box}: create it, or mend the name",
        ELSEWHERE: f"the {box} is elsewhere: set {place}",
        NOBODY: f"no credentials were found: set {credentials}",
        REFUSED: f"the store refuses these credentials: check {credentials}, and that they may read, write, list and "
        "delete there",
        UNCONDITIONAL: "this store has no conditional puts, and no cluster can rest on it: choose another "
        "(docs/cluster.md lists those known to be good)",
        INSECURE: "the address is not https: set AWS_ALLOW_HTTP=true where that is meant",
        UNREACHABLE: f"the store cannot be reached: check {place}",
    }
