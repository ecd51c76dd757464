"""The rules that make the guard the only way out: well-formed, and closed where they should be."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

NETWORK = Path(__file__).resolve().parents[3] / "deploy" / "network"


def documents(name):
    """Return the YAML documents of a file."""
    return list(YAML(typ="safe", pure=True).load_all(NETWORK / name))


def test_nftables_reads_the_rule():
    """`nft --check` parses it, where it is installed and may."""
    nft = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if nft is None:
        pytest.skip("nft is not installed")
    ran = subprocess.run(
        [nft, "--check", "--file", str(NETWORK / "agent-egress.nft")],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Operation not permitted" in ran.stderr or "netlink" in ran.stderr:
        pytest.skip("nft may not speak to the kernel here")

    assert ran.returncode == 0, ran.stderr


def test_the_last_word_on_an_agents_packet_is_no():
    """Two things are accepted, by address and port or as an answer; the rest is rejected."""
    text = (NETWORK / "agent-egress.nft").read_text("utf-8")
    chain = re.search(r"chain agent \{(.*?)\n  \}", text, re.DOTALL)[1]
    rules = [line.strip() for line in chain.splitlines() if line.strip()[:1] not in {"", "#"}]

    assert rules[-1].startswith("counter name refused reject")
    assert len([rule for rule in rules if rule.endswith("accept")]) == 2
    assert all(("$guard_ports" in r) or ("established" in r) for r in rules[:-1])


def test_the_agents_network_of_compose_leads_nowhere():
    """Only the guard is on a network with a way out, and agents never see the authority's key."""
    (compose,) = documents("compose.yaml")
    services = compose["services"]

    assert compose["networks"]["agents"]["internal"] is True
    assert services["agent"]["networks"] == ["agents"]
    assert set(services["guard"]["networks"]) == {"agents", "outside"}
    assert not any("authority" in volume for volume in services["agent"]["volumes"])
    assert not any("ports" in service for service in services.values())


def test_the_policy_of_kubernetes_leaves_agents_one_way():
    """Egress of every pod but the guard is the guard's forward port, and no DNS."""
    out, into = documents("networkpolicy.yaml")

    assert out["spec"]["policyTypes"] == ["Egress"]
    (rule,) = out["spec"]["egress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8080}]
    (peer,) = rule["to"]
    assert peer["podSelector"]["matchLabels"] == into["spec"]["podSelector"]["matchLabels"]
    assert out["spec"]["podSelector"]["matchExpressions"][0]["operator"] == "NotIn"
