"""Ports, URLs and paths: where the guard runs, never what it decides (that is policy).

Every setting comes from the command line, else ``GUARD_*`` in the environment, else the TOML file
named by ``--config``, else the default here.  The models and policies that ship with the guard are
found here as well: an installed wheel carries them inside the package (``guard/_shipped``), in a
source checkout they lie beside it.
"""

from __future__ import annotations

import base64
import difflib
import os
import re
import shlex
import socket
import tomllib
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from guard.core.errors import InputError
from guard.environment import inherited

EMBEDDED: Final = "embedded"
MEMORY: Final = Path("memory")
"""In place of a directory for the data of the embedded Redis: nothing outlives the run."""
BUILTIN: Final = "builtin:"
"""Prefix of a policy that ships with the guard, on a command line or in ``extends``."""
VOCABULARY: Final = "vocabulary"
"""The folder of shipped word lists beside the policies; its files are not policies."""
MODEL_APIS: Final = ("api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com")
DECIDE: Final = "decide"
"""Prefix of the names of servers behind an Envoy, as ``HOST`` is of other listeners."""
UNIX: Final = "unix:"
"""Prefix of an address that is the path of a socket."""
_ROUTE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
ModelT = TypeVar("ModelT", bound=BaseModel)


class Durability(StrEnum):
    """Durability of a write before its call continues."""

    RELAXED = "relaxed"
    """The memory of one server: a crash loses what was not yet synced to its disk, a failover what
    was not yet replicated."""
    REPLICATED = "replicated"
    """One replica as well (``WAIT 1`` behind each write): the loss of either loses nothing."""
    FSYNC = "fsync"
    """The server's disk (``appendfsync always``): its crash loses nothing once it is back, a
    failover to a replica may."""

    @property
    def replicas(self) -> int:
        """Replicas that must confirm each write."""
        return 1 if self is Durability.REPLICATED else 0


class Listener(BaseModel):
    """A server behind ``--reverse [PRINCIPAL@]HOST:PORT[/PATH]=URL``, or behind an Envoy."""

    model_config = ConfigDict(frozen=True)

    host: str
    port: int = Field(ge=0, le=65535)
    upstream: str
    """``http://host:port`` or ``https://host:port``."""
    endpoint: str = ""
    """Path of the MCP endpoint behind it, where the URL has one."""
    principal: str | None = None
    """Principal of the unauthenticated traffic of this listener; everybody's together if None."""
    route: str = ""
    """``/NAME``, where several servers share the address; empty where it is one server's."""
    name: str = ""
    """Name that an Envoy in front gives it; empty for a listener of the guard's own."""
    trusts_forwarded: bool = False
    """True if only a proxy that writes forwarding headers itself reaches it."""

    @classmethod
    def parse(cls, text: str) -> Listener:
        """Read ``[PRINCIPAL@]HOST:PORT[/PATH]=URL``.

        Raises:
            ValueError: it is not of that form.
        """
        form = "HOST:PORT=URL, for example 127.0.0.1:8080=http://127.0.0.1:9000"
        place, server = _place_and_server(text, form)
        address, slash, route = place.partition("/")
        if slash and not _ROUTE.fullmatch(route):
            raise ValueError(
                f"the path of `{text}` is one name, for example 127.0.0.1:8080/mail=URL"
            )
        host, port = _address(address)
        return cls(host=host, port=port, route=slash + route, **server)

    @classmethod
    def parse_named(cls, text: str) -> Listener:
        """Read ``[PRINCIPAL@]NAME=URL``, a server that an Envoy in front of the guard names.

        Raises:
            ValueError: it is not of that form.
        """
        form = "NAME=URL, for example mail=http://127.0.0.1:9000/mcp"
        name, server = _place_and_server(text, form)
        if not _ROUTE.fullmatch(name):
            raise ValueError(f"`{text}` is not {form}")
        return cls(host=DECIDE, port=0, name=name, **server)

    @property
    def key(self) -> str:
        """Part of the listener's name after the colon: port and path, or its own name."""
        return self.name or f"{self.port}{self.route}"

    @property
    def place(self) -> str:
        """Address that it listens at, ``HOST:PORT``, or its own name."""
        return self.name or f"{self.host}:{self.port}"


class PepKind(StrEnum):
    """The enforcement points of reverse listeners; forward listeners always have mitmproxy."""

    AUTO = "auto"
    LEAN = "lean"
    MITMPROXY = "mitmproxy"
    """Read for commands of an earlier edition; reverse listeners have the lean one all the same."""


class ListenerSettings(BaseSettings):
    """Listeners, and the servers behind them."""

    policy: list[Path] = Field(default_factory=list)
    reverse: list[str] = Field(default_factory=list)
    pep: PepKind = PepKind.AUTO
    """Server of reverse listeners: ``lean``, which ``auto`` chooses."""
    listen: list[str] = Field(default_factory=list)
    """Addresses at which an Envoy reaches ``guard decide``: ``unix:PATH`` or ``HOST:PORT`` each."""
    server: list[str] = Field(default_factory=list)
    """The servers behind it, ``[PRINCIPAL@]NAME=URL`` each."""
    front_secret: Path | None = None
    """File of the secret that the Envoy in front shows; ``HOST:PORT`` needs one."""
    egress: str = ""
    """``unix:PATH`` of the listener of an Envoy that takes allowed calls on to their servers; empty
    sends them there directly."""
    trust_forwarded: list[str] = Field(default_factory=list)
    """Listeners (``HOST:PORT``, or the name of a server) that only a proxy reaches which writes
    ``X-Forwarded-*``, ``Forwarded`` and their like anew; elsewhere they are not sent on."""
    forward: list[str] = Field(default_factory=list)
    """Listeners that are an agent's ``HTTPS_PROXY``, each ``HOST:PORT``."""
    ca: Path | None = None
    """Directory of the authority that opens TLS for forward listeners; in the user's state
    directory if None."""
    upstream_ca: Path | None = None
    """PEM file of authorities to trust upstream, besides the public ones."""
    model_api: list[str] = Field(default_factory=lambda: list(MODEL_APIS))
    """Hosts (``HOST`` or ``HOST:PORT``) whose requests are conversations with a model."""
    authorization_server: list[str] = Field(default_factory=list)
    """Issuers (``https://login.example.com``) at which clients of reverse listeners may log in,
    besides a listener's own server."""
    upstream_proxy: str | None = None
    """``http://[user:secret@]host:port`` that forward listeners go through."""


class StateSettings(BaseSettings):
    """State, credentials and models."""

    redis: str = EMBEDDED
    durability: Durability = Durability.RELAXED
    data: Path | None = None
    """Directory in which the embedded Redis keeps its state; beside the label key where none is
    named, and in memory only where it is ``memory``."""
    models: Path | None = None
    credentials: Path | None = None
    """TOML file of principals and how they prove who they are, see
    :mod:`guard.credentials.client_authentication`."""
    write_credentials: Path | None = None
    """TOML file of the memory stores' write credentials, by listener."""
    memory_checker: str | None = None
    """Command that looks again at memory writes of classes whose second look is ``checker``."""
    decisions: Path | None = None
    """Unix socket on which ``guard stdio`` wrappers ask; its directory must be private."""
    label_key: Path | None = None
    """Key file of labels and grants, the same for every worker; made in the state directory."""
    prompt_credentials: Path | None = None
    """TOML file of the front ends that may say what users typed: ``name = "sha256 of secret"``."""


class RecordSettings(BaseSettings):
    """Metrics, audit log, recordings and spans."""

    admin: str = "127.0.0.1:9464"
    audit: Path | None = None
    audit_key: Path | None = None
    """Key file that signs the audit log; left out, one in the state directory, made if absent."""
    record: Path | None = None
    """Directory of recordings: whole exchanges, enciphered.  None keeps none."""
    record_key: Path | None = None
    """Key file of recordings; left out, one in the state directory, made if absent."""
    record_limit: int = 1024**3
    """Bytes of recordings that are kept; the oldest go first."""
    record_days: float = Field(default=7.0, gt=0)
    """Days for which recordings are kept."""
    otlp: str = ""
    """OTLP receiver of spans, such as ``http://localhost:4318/v1/traces``; empty sends none."""


class ConsoleSettings(BaseSettings):
    """The console."""

    console: str = ""
    """``HOST:PORT`` of the console; empty serves none."""
    console_people: Path | None = None
    """TOML file of who may sign in, besides whoever has the printed link."""
    console_url: str = ""
    """Under which people reach it, where that is not its address."""
    action_trial: int = Field(default=7, ge=0, le=30)
    """Days for which action rules only count after an upgrade from a version without them; 0 for
    none."""
    console_webhooks: Path | None = None
    """TOML file of who is told that somebody is asked."""
    console_certificate: Path | None = None
    """PEM file with certificate and key: the console speaks TLS."""
    console_commit: bool = False
    """True if the console may write the policy files and commit them in their Git repository."""
    console_logs: list[Path] = Field(default_factory=list)
    """Audit logs of further guards, which its pages show as well."""
    console_memory: list[str] = Field(default_factory=list)
    """URLs of the guard's listeners in front of memories, through which the console has repairs of
    incidents written."""
    console_memory_secret: Path | None = None
    """File with the secret of the principal as whom they are written; left out, nobody's."""


class LimitSettings(BaseSettings):
    """Limits of one worker, and the number of workers."""

    body_limit: int = 16 * 1024 * 1024
    """Bytes of one message body, before and after decoding."""
    held_limit: int = 64 * 1024 * 1024
    """Bytes that are held of all unfinished messages of a worker together."""
    concurrency: int = Field(default=32, ge=0)
    """Requests that a worker judges at once, some of them never one principal's; the others wait.
    0 limits neither this nor what waits."""
    queue: int = Field(default=3072, ge=0)
    """Requests that wait for a worker."""
    queue_timeout: float = Field(default=1.0, gt=0)
    """Seconds that one waits before it is refused and told when to retry."""
    connections: int = Field(default=0, ge=0)
    """Connections of clients that a worker has open; 0: as many as its descriptors allow."""
    busy_poll: int = Field(default=200, ge=0, le=10_000)
    """Microseconds that a worker looks for news before it sleeps; 0, or no core to spare: none."""
    state_timeout: float = Field(default=0.25, gt=0)
    """Seconds a call to Redis may take."""
    heartbeat: float = Field(default=5.0, gt=0)
    """Seconds without a heartbeat after which a worker is killed and replaced."""
    drain: float = Field(default=5.0, ge=0)
    """Seconds that calls in flight get on shutdown."""
    workers: int = Field(default=1, ge=0, le=256)
    """Processes that judge calls; 0 starts one for each core."""
    reload: float = Field(default=1.0, ge=0)
    """Seconds between looks at the policy files; 0 looks at SIGHUP only."""


class Settings(ListenerSettings, StateSettings, RecordSettings, ConsoleSettings, LimitSettings):
    """All settings of ``guard run``."""

    model_config = SettingsConfigDict(
        env_prefix="GUARD_", extra="forbid", frozen=True, nested_model_default_partial_update=False
    )

    owner: str = ""
    """Set by the supervisor: ``GUARD:NUMBER`` of this worker, so that after a crash the next knows
    which writes its predecessor left in flight."""
    restarts: int = Field(default=0, ge=0)
    """Set by the supervisor: how often it has replaced the worker."""
    pulse: Path | None = None
    """Set by the supervisor: the file the worker's heartbeat goes to."""
    sockets: dict[str, list[int]] = Field(default_factory=dict)
    """Set by the supervisor: descriptors of sockets that listen already, as
    :data:`guard.processes.listening_ports.Sockets` names them."""

    @field_validator("reverse")
    @classmethod
    def _listeners(cls, value: list[str]) -> list[str]:
        at: dict[tuple[str, int], set[str]] = {}
        for text in value:
            one = Listener.parse(text)
            routes = at.setdefault((one.host, one.port), set())
            if one.port and (one.route in routes or (routes and "" in {one.route, *routes})):
                raise ValueError(
                    f"`{text}`: several servers at one address need a path each, and another one"
                )
            routes.add(one.route)
        return value

    @field_validator("server")
    @classmethod
    def _servers(cls, value: list[str]) -> list[str]:
        names = [Listener.parse_named(text).name for text in value]
        if len(set(names)) < len(names):
            raise ValueError("each server needs a name of its own")
        return value

    @field_validator("listen", "egress", "forward", "admin", "console")
    @classmethod
    def _places(cls, value: list[str] | str, info: ValidationInfo) -> list[str] | str:
        for text in [value] if isinstance(value, str) else value:
            is_path = text.startswith(UNIX) and info.field_name == "listen"
            if is_path or info.field_name == "egress":
                if text and not Path(text.removeprefix(UNIX)).is_absolute():
                    raise ValueError(f"`{text}` is not unix:PATH with an absolute path")
            elif text or info.field_name != "console":
                _address(text)
        return value

    @field_validator("trust_forwarded")
    @classmethod
    def _known_listeners(cls, value: list[str], info: ValidationInfo) -> list[str]:
        reverse, server = info.data.get("reverse", ()), info.data.get("server", ())
        known = {Listener.parse(text).place for text in reverse}
        known |= {Listener.parse_named(text).place for text in server}
        for place in set(value) - known:
            raise ValueError(
                f"`{place}` is no listener; write it as --reverse or --server does, without the URL"
            )
        return value

    @field_validator("workers")
    @classmethod
    def _processes(cls, value: int, info: ValidationInfo) -> int:
        cores = getattr(os, "sched_getaffinity", None)
        value = value or (len(cores(0)) if cores is not None else os.cpu_count() or 1)
        reverse, forward = info.data.get("reverse", ()), info.data.get("forward", ())
        ports = [Listener.parse(text).port for text in reverse]
        ports += [_address(text)[1] for text in forward]
        ports += [_address(one)[1] for one in info.data.get("listen", ()) if UNIX not in one]
        if value > 1 and not (all(ports) and hasattr(socket, "SO_REUSEPORT")):
            raise ValueError(
                "several workers need the number of a port for each listener, and SO_REUSEPORT"
            )
        return value

    @field_validator("durability")
    @classmethod
    def _kept(cls, value: Durability, info: ValidationInfo) -> Durability:
        if value is Durability.REPLICATED and info.data.get("redis") == EMBEDDED:
            raise ValueError("the embedded redis has no replica; name yours with --redis URL")
        return value

    @field_validator("authorization_server")
    @classmethod
    def _issuers(cls, value: list[str]) -> list[str]:
        for text in value:
            parts = urlsplit(text)
            is_open = parts.scheme == "http" and parts.hostname in {"127.0.0.1", "::1", "localhost"}
            if not parts.hostname or (parts.scheme != "https" and not is_open) or parts.query:
                raise ValueError(f"`{text}` is no issuer, for example https://login.example.com")
        return value

    @field_validator("upstream_proxy")
    @classmethod
    def _next_proxy(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "http://none.invalid:1")
        if parts.scheme not in {"http", "https"} or not parts.hostname or not parts.port:
            raise ValueError("the upstream proxy is not of the form http://host:port")
        return value

    @field_validator("memory_checker")
    @classmethod
    def _command(cls, value: str | None) -> str | None:
        if value is not None and not shlex.split(value):
            raise ValueError("the memory checker is a command with its arguments")
        return value

    @field_validator("console_memory")
    @classmethod
    def _memories(cls, value: list[str]) -> list[str]:
        for one in value:
            if not one.startswith(("http://", "https://")):
                raise ValueError(f"`{one}` is not the URL of a listener, http://HOST:PORT/PATH")
        return value

    @field_validator("body_limit", "held_limit", "record_limit", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        return int(match[1]) * _UNITS[match[2].lower()] if match else value

    @property
    def listeners(self) -> list[Listener]:
        """The servers behind reverse listeners and behind an Envoy, parsed."""
        found = [
            *(Listener.parse(text) for text in self.reverse),
            *(Listener.parse_named(text) for text in self.server),
        ]
        return [
            one.model_copy(update={"trusts_forwarded": one.place in self.trust_forwarded})
            for one in found
        ]

    @property
    def ports(self) -> list[tuple[str, str, int]]:
        """The addresses on which agents, or an Envoy, are served: option, host and port."""
        found = [("--reverse", one.host, one.port) for one in self.listeners if not one.name]
        found += [("--listen", *_address(one)) for one in self.listen if not one.startswith(UNIX)]
        return found + [("--forward", *_address(text)) for text in self.forward]

    @property
    def listening_sockets(self) -> list[Path]:
        """The Unix sockets on which an Envoy is served."""
        return [Path(one.removeprefix(UNIX)) for one in self.listen if one.startswith(UNIX)]

    @property
    def modes(self) -> list[str]:
        """The forward listeners in the spelling of mitmproxy."""
        kind = "regular"
        if self.upstream_proxy:
            proxy = urlsplit(self.upstream_proxy)
            kind = f"upstream:{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}"
        return [f"{kind}@{at}" for at in self.forward]

    @property
    def upstream_authorization(self) -> str | None:
        """``Proxy-Authorization`` for the upstream proxy."""
        proxy = urlsplit(self.upstream_proxy or "")
        if proxy.username is None:
            return None
        pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    @property
    def admin_address(self) -> tuple[str, int]:
        """Host and port of the admin endpoint."""
        return _address(self.admin)

    @property
    def console_address(self) -> tuple[str, int]:
        """Host and port of the console."""
        return _address(self.console)

    @property
    def authority(self) -> Path:
        """Directory of the authority that opens TLS.

        Raises:
            InputError: none is named, and the user has no state directory.
        """
        return self.ca or state_directory() / "ca"

    @property
    def console_page(self) -> str:
        """Start of the console's URLs for people; empty if it is unknown."""
        if self.console_url:
            return self.console_url.rstrip("/")
        return self.console_local if self.console and self.console_address[1] else ""

    @property
    def console_local(self) -> str:
        """URL of the console on this machine."""
        scheme = "http" if self.console_certificate is None else "https"
        return f"{scheme}://{self.console}"

    @property
    def console_host(self) -> str:
        """Name by which people reach the console."""
        return urlsplit(self.console_url).hostname or self.console_address[0]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: command line, environment, file (see :func:`load_settings`)."""
        del dotenv_settings, file_secret_settings
        file_settings = InitSettingsSource(settings_cls, _file_values)
        return (init_settings, env_settings, file_settings)


def state_directory() -> Path:
    """Return where the guard keeps what must outlive it, by the XDG convention.

    Raises:
        InputError: the user has no home directory, and no variable names another place.
    """
    base = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".local" / "state") / "egress-guard"
    except RuntimeError as error:
        raise InputError(
            "this user has no home directory to keep keys and state in: set XDG_STATE_HOME"
        ) from error


def detectors_directory() -> Path:
    """Return the directory of added text classifiers.

    ``EGRESS_GUARD_DETECTORS`` names it; workers inherit that variable, unlike ``GUARD_*``.
    """
    named = os.environ.get("EGRESS_GUARD_DETECTORS")
    try:
        return Path(named) if named else state_directory() / "detectors"
    except InputError:
        return Path("/var/lib/egress-guard/detectors")


def models_directory() -> Path:
    """Return the directory of the shipped models; it holds ``manifest.json``.

    Raises:
        FileNotFoundError: the installation carries no models.
    """
    return _shipped("models")


def policies_directory() -> Path:
    """Return the directory of the shipped policies; it holds ``default.yaml``.

    Raises:
        FileNotFoundError: the installation carries no policies.
    """
    return _shipped("policies")


def builtin_policies() -> dict[str, Path]:
    """Return the shipped policies by name; ``coding-agent`` is ``coding_agent.yaml``.

    Files in `vocabulary` are data that policies use, and not policies.
    """
    return {
        path.stem.replace("_", "-"): path
        for path in sorted(policies_directory().rglob("*.yaml"))
        if not path.stem.endswith("_test") and path.parent.name != VOCABULARY
    }


def policy_file(path: Path) -> Path:
    """Return the file that a path means: itself, or a shipped one for ``builtin:NAME[@REVISION]``.

    Raises:
        InputError: no shipped policy has that name.
    """
    text = str(path)
    if not text.startswith(BUILTIN):
        return path
    name = text.removeprefix(BUILTIN).partition("@")[0]
    found = builtin_policies().get(name)
    if found is None:
        near = difflib.get_close_matches(name, builtin_policies(), n=1)
        hint = f"; did you mean `{BUILTIN}{near[0]}`?" if near else "; see `guard policies list`"
        raise InputError(f"no policy `{text}` ships with the guard{hint}")
    return found


def _shipped(name: str) -> Path:
    package = Path(str(files("guard")))
    shipped = package / "_shipped" / name
    if shipped.is_dir():
        return shipped
    checkout = package.parent
    # Beside an installed package lie other people's packages; only a checkout has this file.
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    message = f"this installation carries no `{name}` directory, reinstall the package"
    raise FileNotFoundError(message)


_file_values: dict[str, Any] = {}
"""The values of the config file being loaded; only :func:`load_settings` writes it."""


def load_settings(config: Path | None, **given: Any) -> Settings:
    """Return the settings from all sources; options that are None were not given.

    Raises:
        InputError: a value is wrong, with the setting's name and what is right.
    """
    _file_values.clear()
    if config is not None:
        try:
            _file_values.update(tomllib.loads(config.read_text(encoding="utf-8")))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"config file `{config}` cannot be read: {error}") from error
    try:
        return Settings(**{key: value for key, value in given.items() if value not in (None, [])})
    except ValidationError as error:
        details = "; ".join(
            f"setting `{'.'.join(map(str, e['loc']))}`: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors()
        )
        raise InputError(details) from error
    finally:
        _file_values.clear()


def read_secret(path: Path) -> str:
    """Return the secret in a file.

    Raises:
        InputError: it cannot be read, or holds nothing.
    """
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"secret file `{path}` cannot be read ({type(error).__name__})") from None
    if not secret:
        raise InputError(f"secret file `{path}` is empty")
    return secret


def read_table(path: Path, name: str, model: type[ModelT]) -> ModelT:
    """Return a TOML file as a model.

    Raises:
        InputError: the file cannot be read, or does not fit.
    """
    try:
        return model.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{name} file `{path}`: `{place}`: {first['msg']}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name} file `{path}` cannot be read: {error}") from error


def child_environment(secrets: list[str]) -> dict[str, str]:
    """Return the environment of a child process: this one's, without the guard's own settings.

    Args:
        secrets: ``NAME=FILE`` each: a credential that only the server gets.

    Raises:
        InputError: an item is not of that form, or its file cannot be read.
    """
    variables = inherited()
    for item in secrets:
        name, equals, file = item.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InputError(f"`{item}` is not NAME=FILE")
        variables[name] = read_secret(Path(file))
    return variables


def _place_and_server(text: str, form: str) -> tuple[str, dict[str, Any]]:
    """Return where a listener is, and its principal, upstream and endpoint.

    Raises:
        ValueError: it is not of the form, or the URL has more than a path.
    """
    address, equals, url = text.partition("=")
    principal, _, place = address.rpartition("@")
    parts = urlsplit(url)
    if not equals or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"`{text}` is not {form}")
    if parts.query or parts.fragment or parts.username or "//" in parts.path:
        raise ValueError(f"the upstream of `{text}` may have a path, and no query or user")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    upstream = f"{parts.scheme}://{name}{f':{parts.port}' if parts.port else ''}"
    endpoint = "" if parts.path == "/" else parts.path
    return place, {"principal": principal or None, "upstream": upstream, "endpoint": endpoint}


MAX_PORT: Final = 65535


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"`{text}` is not HOST:PORT")
    if int(port) > MAX_PORT:
        raise ValueError(f"`{text}` has port {port}; ports end at {MAX_PORT}")
    return host.strip("[]"), int(port)
