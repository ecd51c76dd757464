"""What a service is for, where that is what a search would take for a leak.  Pure: no I/O.

A processor of payments is told cards and accounts, an explorer of a public chain addresses, and a
model what is to be judged or answered.  Whose service it is, its host says; a host that only looks
like it, and any other text, is searched as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import re2

from guard.content.account_numbers import without_addresses, without_payment_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


def _hosts(*forms: str) -> re2._Regexp:
    return re2.compile("^(?:" + "|".join(forms) + ")$")


_LABEL: Final = r"[a-z0-9-]{1,63}"
_PAYMENTS: Final = _hosts(
    r"api\.stripe\.com",
    rf"(?:{_LABEL}\.){{0,2}}adyen\.com",
    r"(?:api|api-m)(?:\.sandbox)?\.paypal\.com",
    r"payments(?:\.sandbox)?\.braintree-api\.com|api(?:\.sandbox)?\.braintreegateway\.com",
    r"connect\.squareup(?:sandbox)?\.com",
    r"api(?:\.(?:sandbox\.)?transferwise\.tech)|api\.(?:sandbox\.)?(?:transferwise|wise)\.com",
    r"api(?:-sandbox)?\.gocardless\.com",
    r"api\.mollie\.com|api\.checkout\.com|api\.sandbox\.checkout\.com|api\.sumup\.com",
    r"api\.razorpay\.com|api\.iban\.com|openiban\.com",
)
_CHAINS: Final = _hosts(
    r"(?:(?:api|www)\.)?(?:etherscan\.io|basescan\.org|polygonscan\.com|arbiscan\.io|bscscan\.com)",
    r"(?:(?:api|www)\.)?(?:blockchair\.com|blockchain\.com|blockchain\.info|blockstream\.info)",
    r"mempool\.space|solscan\.io|explorer\.solana\.com|api\.(?:mainnet-beta|devnet)\.solana\.com",
    rf"{_LABEL}\.infura\.io|{_LABEL}\.g\.alchemy\.com|rpc\.ankr\.com|cloudflare-eth\.com",
    rf"(?:{_LABEL}\.){{1,2}}quiknode\.pro|{_LABEL}\.publicnode\.com|tronscan\.org",
)
_MODELS: Final = _hosts(
    r"api\.(?:(?:openai|anthropic|cohere|groq|deepseek)\.com|(?:mistral|perplexity|x)\.ai|together\.xyz)",
    r"(?:generativelanguage|aiplatform|[a-z0-9-]+-aiplatform)\.googleapis\.com",
    r"bedrock-runtime\.[a-z0-9-]+\.amazonaws\.com|openrouter\.ai|api\.lakera\.ai",
    rf"{_LABEL}\.openai\.azure\.com|{_LABEL}\.cognitiveservices\.azure\.com",
)


def reads_prompts(hosts: Collection[str]) -> bool:
    """Return whether everybody who is called is a model: what it is told is told to a model."""
    return bool(hosts) and all(_MODELS.search(host) is not None for host in hosts)


def without_business(hosts: Collection[str]) -> Callable[[str], str] | None:
    """Return what takes from a text the numbers that these hosts are there for, if all are."""
    for known, reader in ((_PAYMENTS, without_payment_numbers), (_CHAINS, without_addresses)):
        if hosts and all(known.search(host) is not None for host in hosts):
            return reader
    return None
