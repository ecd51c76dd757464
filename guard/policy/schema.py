"""Contents of a policy file as pydantic models."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)

from guard.core.errors import PolicyProblem
from guard.core.labels import VOUCHING, Channel
from guard.core.mappings import ActionName, DetectionSettings, PropagationSettings
from guard.core.model import Integrity, Json, Role
from guard.core.policy import AskSettings, Mode
from guard.policy.field_types import (
    AllowedText,
    DestinationText,
    Duration,
    FoldText,
    InternalText,
    Label,
    Location,
    PathText,
    Port,
    PrivateText,
    ReceiverPath,
    ShortDuration,
    Version,
    checked,
)
from guard.policy.memory_schema import (
    NESTED_MEMORY,
    STORES,
    LimitsEntry,
    MemoryEntry,
    StoreEntry,
    StoreName,
    StoreReadEntry,
    StoreWriteEntry,
    has_default_matrix,
)
from guard.policy.rules.base import OF_A_POLICY, Pattern, RuleConfig
from guard.protocols.http.tools import UrlTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.policy.yaml_loader import Document


def _listed(value: Json) -> object:
    """Return one text as a list of one; what a validator returns is no longer JSON to pydantic."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


BuiltinText = Annotated[str, Field(pattern=r"^builtin:[a-z0-9][a-z0-9-]{0,63}(@[1-9][0-9]{0,5})?$")]
BuiltinTexts = Annotated[
    tuple[BuiltinText, ...], BeforeValidator(_listed, json_schema_input_type=str | list[str])
]
ServiceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ToolName = Annotated[str, Field(min_length=1, max_length=200)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
TemplateText = Annotated[
    str,
    checked(
        UrlTemplate.parse, "a URL template is a text such as `https://api.example.com/v1/notes`"
    ),
]
ReceiverKind = Literal["mail", "url", "host", "handle", "phone"]
Writer = Literal["owner", "service", "outsider", "agent"]
"""Causes of an entry: the account's owner, the service's own record of the account, or others."""
HttpMethod = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


Language = Annotated[str, Field(pattern=r"^[a-z]{2}$")]
ActionWord = Annotated[str, Field(pattern=r"^[^\s~]{1,40}~?$")]


class _Strict(BaseModel):
    model_config = OF_A_POLICY


class StateEntry(_Strict):
    """Retention times of sessions and principals."""

    session_idle: Duration = 24 * 3600
    """Since the session's last call; ``24h``, ``30m``."""
    principal_window: Duration = 24 * 3600
    """Since the principal's last call in any session."""
    memory_read: Duration = 3600
    """Time after a read of memory within which the replies in all other sessions of the principal
    are asked about; in the same session, as long as it lasts."""
    labels: Duration = 90 * 86400
    """Time for which values stay labelled."""
    approval: Duration = 3600
    """Time for which a human's grant for one call is good."""
    established: Duration = 90 * 86400
    """Time for which a principal may send again, with the same tool, to a receiver that its user
    named or a person approved to be remembered."""
    audit: Duration | None = None
    """Least time for which lines of the audit log are kept: it is set aside once a day, and removed
    when every line of it is older.  Left out, for good."""


class PauseEntry(_Strict):
    """Limit after which a principal's calls are refused without a question."""

    asks: Annotated[int, Field(ge=1, le=10_000)]
    """So many asks …"""
    within: ShortDuration = 600
    """… within so long pause it."""
    lasts: ShortDuration = 3600
    """For so long what would be asked is blocked, unless somebody ends the pause."""


class ApprovalsEntry(_Strict):
    """People who may answer questions, and limits on the number of questions."""

    two_people: Literal["all"] | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Rules (ids) whose asks two different people have to approve, or ``all``."""
    own: Literal["refuse", "allow"] = "refuse"
    """Treatment of an approval by somebody in whose own name the asking agent runs."""
    pause: PauseEntry | None = None
    """Pauses a principal that asks too often."""
    break_glass: ShortDuration | None = None
    """For how long, at most, two people may let a principal do what would be asked: never what is
    blocked.  Left out, they may not."""
    changes: Literal["one", "two_people"] = "one"
    """People that a change of the policy needs on the console: a commit, or a trial in which it
    decides for anybody.  The policy in force counts, not the changed one."""
    incidents: Literal["one", "two_people"] = "one"
    """People that it takes on the console to give back what an incident withholds (undo, release),
    or to write into a memory (repair).  To withhold, one is enough."""


class ElicitEntry(_Strict):
    """Questions that go to the person at an agent's MCP client."""

    by: Literal["url", "form"]
    """``url``: his client opens the console's page, where he signs in and answers.  ``form``: he
    answers in his client, which is believed to have asked him and not the agent."""
    rules: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Rules (ids) whose asks these are; left out, every rule's."""
    principals: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Principals whose agents these are; left out, all."""

    @model_validator(mode="after")
    def _names_whom_it_believes(self) -> Self:
        if self.by == "form" and (self.rules is None or self.principals is None):
            raise ValueError(
                "`by: form` takes an answer from the agent's own client: say for which "
                "`principals` and which `rules`"
            )
        return self


class AskEntry(_Strict):
    """Handling of a call that a rule asks about, besides its refusal."""

    hold: Duration | None = None
    """Time for which it is held open for a person's answer, instead of being refused at once."""
    quiet: Duration = AskSettings().quiet
    """The same for clients that can be told nothing meanwhile (plain HTTP, answers in one piece)
    and send no ``Prefer: wait=SECONDS``."""
    elicit: tuple[ElicitEntry, ...] = ()
    """Asks that a person may answer at his own MCP client; the first entry that fits and that the
    client can follow counts."""

    @model_validator(mode="after")
    def _is_within(self) -> Self:
        if self.hold is None and "quiet" in self.model_fields_set:
            raise ValueError("`quiet` bounds what `hold` allows; say `hold` as well")
        return self


class DetectionEntry(_Strict):
    """Effect of saves that `guard memory watch` finds to look poisoned."""

    effect: Literal["ask", "withhold"] = "ask"
    """`ask`: a person is asked before what follows from one is sent. `withhold`: it is contained as
    well, by an incident that can be undone, once the detector has fired on at most 0.1 % of 10,000
    own writes taken as clean (`guard memory watch --calibrate`)."""
    threshold: Annotated[float, Field(gt=0, le=1)] = DetectionSettings().threshold
    """Probability of poison from which on a save is a finding."""


class PropagationEntry(_Strict):
    """Record of the spread of memory items, so that it can be followed and undone."""

    events: Annotated[int, Field(ge=1000, le=5_000_000)] = PropagationSettings().events
    """Saves, sends and recalls of a tenant that are kept; of more, the oldest go."""
    versions: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Versions of items whose text is kept, enciphered with the label key, so that an incident can
    restore one; 0 keeps no text."""
    detection: DetectionEntry | None = None
    """Left out, nothing is asked about because of what a save looks like."""


ATTESTING: Final[dict[str, frozenset[str | None]]] = {
    "directory": frozenset({"owner"}),
    "own_record": frozenset({"owner", "service"}),
    "counterparty": frozenset({"outsider", "agent", None}),
}
"""Writers that fit a declared field: INVARIANT (an entry that others can cause attests nothing)."""


class FieldEntry(_Strict):
    """A part of a tool's results that is declared: who can write it, or its label."""

    path: PathText
    who: Annotated[Literal["directory", "own_record", "counterparty"] | None, Field(alias="as")] = (
        None
    )
    """``directory``: only its owner writes it; ``own_record``: what this account itself has sent or
    paid; ``counterparty``: an outsider sets it, so it says who, and never that he may receive."""
    label: Label | None = None
    """Label of older policies; ``authenticated`` and ``trusted`` mean ``as: counterparty``."""
    name: PathText | None = None
    """Beside the value, the name by which people call its owner: a receiver whom the user names so
    in a prompt is the value."""
    kinds: tuple[ReceiverKind, ...] = ()
    """Kinds of destination that it vouches for; every kind if empty.  ``phone`` is a handle that is
    a number with its country: it means the same in every service, as a mailbox does."""
    writer: Writer | None = None
    """Writer that can cause an entry.  ``owner`` vouches, ``service`` in an ``own_record``;
    ``outsider``, ``agent`` or none vouches for nobody."""
    serves: Annotated[tuple[ServiceName, ...], Field(alias="for")] = ()
    """Further services, or servers, in which the handles in it may receive: an account that a
    directory of people holds is valid at the bank, a channel nowhere but in its own service."""
    complete: bool = False
    """Every handle of its service is in it, so a name that the user gives needs no look-up there:
    nobody but the owner of the directory can create a member or a channel."""

    @model_validator(mode="after")
    def _is_declared(self) -> Self:
        if (self.who is None) == (self.label is None):
            raise ValueError(
                "say who can write the field: `as: directory`, `own_record` or `counterparty`"
            )
        if self.who not in VOUCHING and (self.name or self.kinds or self.serves):
            raise ValueError(
                "`name`, `kinds` and `for` belong to a field `as: directory` or `own_record`"
            )
        if self.complete and (self.declared is not Channel.DIRECTORY or "handle" not in self.kinds):
            raise ValueError(
                "`complete` belongs to a field `as: directory`, `writer: owner`, `kinds: [handle]`"
            )
        return self

    @model_serializer(mode="wrap")
    def _said(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Members that are left out stay so: older policies keep their digest.
        empty: tuple[object, ...] = (None, [], (), False)
        return {name: value for name, value in dump(self).items() if value not in empty}

    @property
    def declared(self) -> Channel:
        """Channel of the field.  A label alone, or a field without a writer, vouches for nobody."""
        if self.who is not None:
            return Channel(self.who) if self.writer in ATTESTING[self.who] else Channel.COUNTERPARTY
        promises = self.label is not None and self.label >= Integrity.AUTHENTICATED
        return Channel.COUNTERPARTY if promises else Channel.RESULT


class MessagesEntry(_Strict):
    """Location of messages in a result, and the names of each; paths are within one message."""

    each: PathText
    id: PathText
    sender: PathText
    names: tuple[PathText, ...] = ()


class ItemsEntry(_Strict):
    """Location of a memory's items in a result; ``id`` is a path within one item."""

    each: PathText
    id: PathText


class LinksEntry(_Strict):
    """Messages whose links may be followed where the user named their sender or their place."""

    each: PathText
    """The messages in the result."""
    text: PathText
    """The text of one."""
    sender: PathText
    """Location of the sender, as the service says."""
    place: PathText | None = None
    """In the arguments: the channel or person whose messages are read."""


class EgressEntry(_Strict):
    """Limits of forward listeners."""

    ports: Annotated[tuple[Port, ...], Field(min_length=1)] = (80, 443)
    """Ports that clients may name."""
    private: tuple[PrivateText, ...] = ()
    """Hosts that may have a private or loopback address, and networks that any host may lie in."""
    passthrough: tuple[InternalText, ...] = ()
    """Hosts whose TLS is not opened; each tunnel to one is a single ``http.connect`` call."""


class _Until(_Strict):
    until: date
    """The last day, ``2027-01-31`` (UTC); from the next on the entry has no effect."""

    @property
    def ends(self) -> float:
        """Seconds since the epoch at which it ends."""
        return datetime.combine(self.until + timedelta(days=1), time(), UTC).timestamp()


class AllowedEntry(_Until):
    """A destination outside that may receive data until a day."""

    to: AllowedText
    """Destination, as in a plain entry."""


class EstablishedEntry(_Until):
    """A receiver to whom one principal may send again with one tool, until a day."""

    to: AllowedText
    """One receiver: a mailbox, or a URL with its path."""
    tool: Annotated[str, Field(min_length=1, max_length=256)]
    principal: Annotated[str, Field(min_length=1, max_length=256)]

    @field_validator("to")
    @classmethod
    def _is_one(cls, to: str) -> str:
        if "*" in to or ("@" not in to and "/" not in to.partition("://")[2]):
            raise ValueError(
                "name one receiver, `ann@partner.example`; whole hosts belong in `allow`"
            )
        return to


class DirectoryEntry(_Until):
    """A part of a mapped tool's results that is a directory until a day, besides its `fields`.

    What it said before keeps its label.
    """

    tool: Annotated[str, Field(min_length=1, max_length=256)]
    """The very name of a tool that a mapping claims, and no server's own."""
    path: PathText
    """Location, as in `fields`; only its owner writes what stands there."""
    writer: Literal["owner"] | None = None
    """``owner`` states that nobody else can cause an entry; without it the entry has no effect."""


class IdentityEntry(_Strict):
    """Differences between two recipients that do not count."""

    fold: Annotated[tuple[FoldText, ...], Field(min_length=1)]
    """``plus_tags``: a mailbox is the same whatever its ``+tag``.  ``scheme``: ``http`` is
    ``https``.  ``query:PARAMETER``: this parameter of a URL chooses no account and no page."""


class InertEntry(_Strict):
    """An argument in which an address outside is not a receiver."""

    path: PathText
    why: Annotated[str, Field(min_length=8, max_length=500)]
    """Why nothing is sent to what stands in it, for whoever reviews the policy."""


class ListedActionEntry(_Strict):
    """An action that needs no request."""

    action: ActionName
    tools: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    """Tools for which it is listed."""


class ActionsEntry(_Strict):
    """Requests of actions: what needs none, and further words by which prompts request them."""

    listed: tuple[ListedActionEntry, ...] = ()
    words: dict[ActionName, dict[Language, tuple[ActionWord, ...]]] = {}
    """Further words by action and language, beside the shipped ones (`guard policies show
    actions`); ``~`` stands for the rest of a word, ``_`` for a space."""


class ToolArguments(_Strict):
    """Mapping of the tools that ``match`` claims: their role and their arguments."""

    match: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    """Globs such as ``mail_*``, or ``{re2: ...}``, over the whole name.  The first mapping that
    claims a name counts."""
    role: Role
    """Role of the tool."""
    destinations: tuple[ReceiverPath, ...] = ()
    """JSONPaths to what names a receiver.  ``$.owner / $.repo`` is one in two arguments: their
    texts with ``/`` between them, nobody where one is missing."""
    body: tuple[PathText, ...] = ()
    """JSONPaths to the payload."""
    ignore: tuple[PathText, ...] = ()
    """JSONPaths to what is neither.  A mailbox or URL outside in one counts nevertheless; `inert`
    says that it does not, and why."""
    action: ActionName | None = None
    """The change that a call makes; rules of type ``action`` ask whether anybody requested it."""
    object: tuple[PathText, ...] = ()
    """JSONPaths to the names of what it changes."""
    inert: tuple[InertEntry, ...] = ()
    """Arguments in which an address is not a receiver.  Everything else is looked through, whatever
    the role; in a path, climbing out of it counts nevertheless."""


class ToolEntry(ToolArguments):
    """Mapping of tools: their role, and the parts of their arguments and results."""

    source: Label = Integrity.UNTRUSTED
    """The label of what it returns; ``untrusted``: anybody may have written it."""
    fields: tuple[FieldEntry, ...] = ()
    """Parts of its results that are declared: who can write them."""
    store: StoreName | None = None
    """The memory it reads or writes; `stores` says it once, for the memory gate as well."""
    item: PathText | None = None
    """Location of the name of the store's item in the arguments."""
    items: ItemsEntry | None = None
    """Location of item names in its results: of those that a search shows, or the id that the store
    gave to what was saved."""
    amount: PathText | None = None
    """Amount of a payment: a remembered payee is good for payments up to the approved amount."""
    currency: PathText | None = None
    """Its currency, where an argument says so; in another one the payee is asked about again."""
    guarded: tuple[PathText, ...] = ()
    """Arguments of a send that are traced like destinations."""
    unfurls: tuple[PathText, ...] = ()
    """Texts of a send for whose links the service loads a preview.  Each link in one is a
    destination: its host is told the path and the query before anybody clicks."""
    sql: tuple[PathText, ...] = ()
    """Arguments that are statements of SQL.  A statement that may reach outside its database, and a
    text that does not parse, is a destination."""
    reply: PathText | None = None
    """Location in a send of the name of the message that it answers."""
    messages: MessagesEntry | None = None
    """Location of messages in its results."""
    private: bool = False
    """True if its results are private: rules of type ``private_body`` know them again in a send."""
    links: LinksEntry | None = None
    """Messages in its results whose links, word for word, count as named with their place."""
    named_by: PathText | None = None
    """Argument in which a read names its page: one that the user typed, exactly, may be read."""
    delegates: tuple[ActionName, ...] = ()
    """Actions whose recipient the result may supply, if the prompt names the document (`named_by`)
    and requests the action.  The text must hold exactly one recipient and no orders to a model."""
    supplies: tuple[PathText, ...] = ()
    """JSONPaths to parts of the result that supply all recipients in them, instead of the text.
    Choose parts that only the owner of the document can write."""
    optional_destinations: bool = False
    """A send that names nobody sends nothing."""
    service: ServiceName | None = None
    """The service that its tools belong to, if not the one of the whole file."""
    description: Annotated[str, Field(max_length=2000)] = ""
    """For people who read the policy."""

    @model_validator(mode="after")
    def _names_its_document(self) -> Self:
        if self.delegates and self.named_by is None:
            raise ValueError("`delegates` needs `named_by`: the argument that names the document")
        if self.supplies and not self.delegates:
            raise ValueError("`supplies` needs `delegates`: the actions that it supplies")
        return self


class HttpToolEntry(_Strict):
    """Plain HTTP requests that are calls of one tool, and where their arguments are."""

    tool: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}$")]
    """The tool's name, which a mapping in ``tools`` must claim."""
    method: Annotated[tuple[HttpMethod, ...], Field(min_length=1)]
    """The methods that mean this tool."""
    url: TemplateText
    """``https://host/path/{variable}``; a variable is a whole segment.  Its arguments are
    ``$.path.NAME``, those of the query ``$.query.NAME``."""
    body: Literal["none", "json", "form", "multipart"] = "none"
    """Format of the body; its arguments are ``$.body``.  Another body is refused."""
    repeat: tuple[str, ...] = ()
    """Query and form fields that may occur more than once; their value is a list."""
    description: Annotated[str, Field(max_length=2000)] = ""
    """For people who read the policy."""


class ServerEntrySchema(_Strict):
    """A server and the mappings of its own tools, which no other server's tools come under."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """Name in this policy."""
    listener: (
        Annotated[
            str,
            Field(
                pattern=r"^([^\s/]{1,255}:[0-9]{1,5}(/[A-Za-z0-9._-]{1,64})?|decide:[A-Za-z0-9._-]{1,64})$"
            ),
        ]
        | None
    ) = None
    """``HOST:PORT`` of the guard's listener in front of it, with its path where it has one;
    ``decide:NAME`` for a server of `guard decide`."""
    upstream: Annotated[str, Field(pattern=r"^[^\s/@]{1,255}(?:/\S{0,255})?$")] | None = None
    """Its host, ``host:port``, or either with the path of its endpoint; ``stdio:NAME`` for one that
    `guard stdio --name NAME` wraps."""
    profile: BuiltinTexts = ()
    """Shipped policies whose mappings, stores and restricting rules are about this server, each
    ``builtin:NAME``; what its own `tools` map comes first."""
    pins: dict[ToolName, Digest] | None = None
    """Digests of its tools' definitions, as `guard init` saw them.  One that is defined otherwise
    counts as changed; where they are declared, what `profile` says holds for these tools only."""
    tools: tuple[ToolEntry, ...] = ()
    """Mappings of its tools; these come before the mappings under ``tools``."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.tools and not self.profile and self.pins is None:
            raise ValueError("say what its tools do: `tools`, or the `profile` of a known server")
        return self


class AccountEntry(_Strict):
    """Argument that names the account of the operator, never a recipient."""

    argument: Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,63}$")]
    """Its name, alike in every tool of the server."""
    variable: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
    """Variable of the server's configuration in which the operator names the account."""


class RecognisedEntry(_Strict):
    """Names by which ``guard init`` recognises a server: of the program or URL alone."""

    npm: tuple[str, ...] = ()
    """Packages that `npx` and its like start."""
    pypi: tuple[str, ...] = ()
    """Packages that `uvx` and its like start."""
    images: tuple[str, ...] = ()
    """Container images, without tags."""
    urls: tuple[Annotated[str, Field(pattern=r"^https://")], ...] = ()
    """Endpoints: the host, and where the path begins."""
    read_only: bool = False
    """Annotations of these servers were reviewed: `guard init` maps a tool with `readOnlyHint` as a
    read, unless its name, its arguments or another annotation says otherwise."""
    accepts: tuple[str, ...] = ()
    """Further names of arguments that do not take a tool out of the profile; every value of them is
    inspected.  A switch that shares or notifies, and an id, never qualifies."""
    account: AccountEntry | None = None
    """Argument for the operator's own account; a call with another account is asked about."""


class PolicyHeader(_Strict):
    """Name, version and origin of a policy file."""

    version: Version
    """The version of this language; it changes apart from the package's."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """Shown in audit lines and on ``guard_policy_info``."""
    revision: Annotated[int, Field(ge=1)] = 1
    """Number of a policy that others extend: it goes up where a verdict may change."""
    extends: BuiltinTexts = ()
    """Shipped policies that this one builds on, as ``builtin:NAME`` or ``builtin:NAME@REVISION``.
    A rule of the same id and a mapping of the same tool are this file's; whom the shipped policy
    names as internal or allowed is not taken over."""
    recognised_by: RecognisedEntry | None = None
    """Signs by which `guard init` knows the server; in the profile of a known server."""
    service: ServiceName | None = None
    """The service whose tools it maps.  An account, a channel or another handle that one service
    holds may receive in that service alone, unless `for` names others."""
    description: Annotated[str, Field(max_length=4000)] = ""
    """For people who read the policy."""
    mode: Mode = Mode.ENFORCE
    """``enforce`` refuses what the rules refuse; ``monitor`` records it and lets it pass."""


class PromptSection(PolicyHeader):
    """Reach of what prompts name."""

    prompted_scope: Literal["page", "host"] | None = None
    """Reach of a URL in a prompt.  ``page`` (the default): this page.  ``host``: also pages of the
    same scheme, host and port that its pages link to, word for word; never on a shared host."""
    shared_hosts: tuple[InternalText, ...] = ()
    """Further hosts of several owners, beside the shipped list and the Public Suffix List."""


class PolicyDocument(PromptSection):
    """One policy file.  Its rules are validated one by one, each by its rule type."""

    internal_domains: tuple[InternalText, ...] = ()
    """``example.com`` is that domain alone, ``*.example.com`` is everything below it."""
    allow: tuple[
        Annotated[
            Annotated[AllowedText, Tag("allow")] | Annotated[AllowedEntry, Tag("entry")],
            Discriminator(lambda value: "allow" if isinstance(value, str) else "entry"),
        ],
        ...,
    ] = ()
    """Destinations outside that may receive data, as narrow as they can be; ``{to, until}`` for a
    while."""
    established: tuple[EstablishedEntry, ...] = ()
    """Receivers to whom one principal may send again with one tool: rung ``established``."""
    directories: tuple[DirectoryEntry, ...] = ()
    """Parts of mapped tools' results that are directories for a while."""
    deny: tuple[DestinationText, ...] = ()
    """Destinations that may never receive data; a deny beats every allow."""
    state: StateEntry | None = None
    """Times for which the guard remembers."""
    approvals: ApprovalsEntry | None = None
    """Limits on who may answer what is asked."""
    actions: ActionsEntry | None = None
    """Requests of actions."""
    ask: AskEntry | None = None
    """Handling of a call that a rule asks about, besides its refusal."""
    recording: Literal["required", "optional"] | None = None
    """``required``: a call goes out only once it stands in the recording (``--record DIR``)."""
    memory: MemoryEntry | None = None
    """The memory gate."""
    egress: EgressEntry | None = None
    """Limits of forward listeners, checked before any rule."""
    identity: IdentityEntry | None = None
    """Differences between receivers that do not count; without it, every difference counts."""
    tools: tuple[ToolEntry, ...] = ()
    """Mappings of tools: role and arguments of each."""
    servers: tuple[ServerEntrySchema, ...] = ()
    """Servers with mappings of their own.  A name that two servers offer is mapped here, or it is
    asked about."""
    propagation: PropagationEntry | None = None
    """Keeps on record which item follows from which; left out, nothing of it is."""
    stores: tuple[StoreEntry, ...] = ()
    """Memory stores, each with the tools that write and read it."""
    http_tools: tuple[HttpToolEntry, ...] = ()
    """Plain HTTP requests that are calls of tools."""
    rules: tuple[dict[str, Any], ...] = ()
    """Every rule is asked; their order means nothing."""

    def mappings(self) -> Iterator[tuple[Location, ToolEntry]]:
        """Yield where each tool mapping is declared, and it: of ``servers``, ``tools``, ``stores``.

        A store's write that is a plain request (``methods``, ``path``) maps no tool: the request's
        role is that of ``http.request``.
        """
        for number, server in enumerate(self.servers):
            for index, entry in enumerate(server.tools):
                yield ("servers", number, "tools", index), entry
        for index, entry in enumerate(self.tools):
            yield ("tools", index), entry
        for number, store in enumerate(self.stores):
            for index, write in enumerate(store.writes):
                if not write.methods and write.path is None:
                    where: Location = (STORES, number, "writes", index)
                    yield where, _store_mapping(store.name, write, Role.SAVE)
            for index, read in enumerate(store.reads):
                where = (STORES, number, "reads", index)
                mapping = _store_mapping(store.name, read, Role(read.role))
                yield (
                    where,
                    mapping.model_copy(update={"source": read.source, "private": read.private}),
                )


def _store_mapping(store: str, entry: StoreWriteEntry | StoreReadEntry, role: Role) -> ToolEntry:
    return ToolEntry.model_construct(match=entry.match, role=role, store=store, item=entry.item)


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """One validated file."""

    source: Document
    content: PolicyDocument
    rules: tuple[RuleConfig, ...]
    inherited: bool = False
    """True if another file extends it, or names it as a server's profile."""
    server: str = ""
    """Name of the one server that a profile is about."""
    only: frozenset[str] | None = None
    """Names of the tools that a profile is about; None for all."""

    def server_at(self, location: Location) -> str:
        """Return the server that a mapping is about, empty for every server."""
        if location[0] != "servers":
            return self.server
        return self.content.servers[int(location[1])].name

    def problem(self, location: Location, message: str, rule: str | None = None) -> PolicyProblem:
        """Return a problem at a place in the file."""
        return PolicyProblem(self.source.path, self.source.line(location), message, rule)

    @property
    def is_base(self) -> bool:
        """Mark of a policy that is written for others to extend."""
        return "revision" in self.content.model_fields_set

    @property
    def canonical(self) -> Json:
        """The content as JSON values, defaults filled in: what the digest is taken of."""
        # An extended policy is a file of its own in the digest.
        content = self.content.model_dump(
            mode="json", exclude={"rules", "revision", "extends", "recognised_by"}
        )
        # Older policies keep their digest, which audit lines and grants name.
        _drop_unsaid(content, _LATER)
        for listed in content.get("directories", ()):
            _drop_unsaid(listed, ("writer",))
        for server in content.get("servers", ()):
            _drop_unsaid(server, ("profile", "pins"))
            for tool in server["tools"]:
                _drop_unsaid(tool, _LATER_OF_TOOLS)
        if self.server:
            content["server"] = [self.server, None if self.only is None else sorted(self.only)]
        state = content["state"]
        unsaid = {
            name: getattr(StateEntry(), name) for name in ("established", "audit", "memory_read")
        }
        for name in [name for name, value in unsaid.items() if state and state[name] == value]:
            del state[name]
        if (memory := content["memory"]) is not None:
            if memory["limits"]["recover_after"] == LimitsEntry().recover_after:
                del memory["limits"]["recover_after"]
            if has_default_matrix(self.content.memory):
                memory["sources"] = None
        for tool in content["tools"]:
            _drop_unsaid(tool, ("inert", *_LATER_OF_TOOLS))
        return {
            **content,
            "rules": [_rule_values(rule) for rule in self.rules],
        }


def own_files(files: Iterable[PolicyFile]) -> Iterator[PolicyFile]:
    """Yield the operator's own files, without those that they extend."""
    return (file for file in files if not file.inherited)


def tools_of(files: Iterable[PolicyFile]) -> Iterator[tuple[PolicyFile, Location, ToolEntry]]:
    """Yield each tool mapping with its file and its place."""
    return ((file, *one) for file in files for one in file.content.mappings())


_LATER_OF_TOOLS: Final = (
    "action",
    "amount",
    "currency",
    "delegates",
    "items",
    "object",
    "service",
    "sql",
    "supplies",
    "unfurls",
)
_LATER: Final = (
    "prompted_scope",
    "shared_hosts",
    "actions",
    "http_tools",
    "stores",
    "identity",
    "servers",
    "directories",
    "established",
    "propagation",
    "recording",
    "approvals",
    "ask",
    "service",
)
"""Sections that the first edition of the language did not have."""


def _drop_unsaid(values: dict[str, Json], names: Iterable[str]) -> None:
    """Take members out that came later, where a policy says nothing of them."""
    for name in names:
        if not values[name]:
            del values[name]


def _rule_values(rule: RuleConfig) -> dict[str, Json]:
    """Return a rule as JSON values: renamed fields under their oldest spelling, without later ones
    that are left out.
    """
    dumped = rule.model_dump(mode="json")
    for later in ("over_calls", "remember"):
        if dumped.get(later, later) is None:
            del dumped[later]
    for name, info in type(rule).model_fields.items():
        if isinstance(info.validation_alias, AliasChoices):
            dumped[str(info.validation_alias.choices[-1])] = dumped.pop(name)
    return dumped


NESTED: Final[dict[Location, type[BaseModel]]] = {
    (): PolicyDocument,
    ("recognised_by",): RecognisedEntry,
    ("allow",): AllowedEntry,
    ("established",): EstablishedEntry,
    ("directories",): DirectoryEntry,
    ("servers",): ServerEntrySchema,
    ("servers", "tools"): ToolEntry,
    ("tools",): ToolEntry,
    ("http_tools",): HttpToolEntry,
    ("tools", "fields"): FieldEntry,
    ("tools", "messages"): MessagesEntry,
    ("tools", "items"): ItemsEntry,
    ("tools", "links"): LinksEntry,
    ("tools", "inert"): InertEntry,
    ("identity",): IdentityEntry,
    ("state",): StateEntry,
    ("approvals",): ApprovalsEntry,
    ("approvals", "pause"): PauseEntry,
    ("ask",): AskEntry,
    ("ask", "elicit"): ElicitEntry,
    ("propagation",): PropagationEntry,
    **NESTED_MEMORY,
    ("egress",): EgressEntry,
}
"""Models by location, list indexes left out, for suggestions."""
