"""What a user names in a prompt as a receiver, and what only as a place to read.  Pure: no I/O.

The second rung of resemblance that the trust model forbids is *mention*: a word of a prompt is no
permission.  A prompt vouches for a value only where three things hold (``docs/provenance.md``):

* the words are the user's own: nothing pasted, quoted, fenced or forwarded (:func:`own_words`);
* the value is typed: a mailbox, a URL with its scheme or ``www.``, a phone or account number, a
  wallet, a ``#channel`` or ``@handle``; a bare word or a bare dotted word (``deploy.sh``) is none;
* it stands where a receiver stands: governed by a verb or preposition that takes a receiver
  (``mail it to …``, ``invite …``) in a sentence that is a request as a whole
  (:mod:`guard.provenance.request_frames`), or declared as somebody's address (``her address is
  …``); and the sentence is neither negated, nor a question, nor a condition, nor somebody else's.

Names (``Bob``, ``the general channel``) in a receiver's position are returned apart: they are
questions that a directory or the service's own name space answers, never addresses.

Every function is linear in the length of the prompt, which is bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.destinations.canonical import read_destinations
from guard.destinations.values import find_values, handle_value, link_values, message_value
from guard.provenance.request_frames import AND as _AND
from guard.provenance.request_frames import (
    OWN_TIME,
    goes_on,
    is_asked_for,
    is_asked_for_at_end,
    is_polite_if,
)
from guard.provenance.request_frames import WORDS as _WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PROMPT_LIMIT: Final = 64 * 1024
"""Characters of a prompt that can name something."""
MENTION_LIMIT: Final = 500
"""Values and names taken from one prompt."""
SENTENCE_WORDS: Final = 400
"""Words of a sentence; a longer one is no sentence, and names nothing."""
LOOK_BACK: Final = 14
"""Words before a value in which the word that governs it is looked for."""
UNKNOWN_WORDS: Final = 5
"""How many of those may be words of no known function."""
QUOTE_WORDS: Final = 4
"""Words of a quotation that may be a dictated name; a longer one is somebody's text."""
NAME_WORDS: Final = 5
"""Words of a name."""
HEAD_WORDS: Final = 40
"""Words of what introduces a list that its items are read behind."""
NEAR: Final = 6
"""Words between a participle and its preposition."""


# --- the words that matter, in the languages that are read --------------------------------------


_RECEIVER_PREPOSITIONS: Final = _WORDS["receiver_prepositions"]
_RECEIVER_VERBS: Final = _WORDS["receiver_verbs"]
_SOURCE_WORDS: Final = _WORDS["source_words"]
_READ_WORDS: Final = _WORDS["read_words"]
_PASSIVE: Final = _WORDS["passive"]
_BOUNDARIES: Final = _WORDS["boundaries"]
_DECLARED_NOUNS: Final = _WORDS["declared_nouns"]
_COPULAS: Final = _WORDS["copulas"]
_NEGATIONS: Final = _WORDS["negations"]
_CONDITIONS: Final = _WORDS["conditions"]
_CONTRASTS: Final = _WORDS["contrasts"]
_REPORTED: Final = _WORDS["reported"]
_REPORTING: Final = _WORDS["reporting"]
"""Base forms that report what somebody else said, behind a subject that is somebody else."""
_OTHERS: Final = _WORDS["others"]
_FIRST_PERSON: Final = frozenset({"i", "i've", "i'd", "we", "we'd", "ich", "wir", "je", "yo", "io"})
_REPLY_VERBS: Final = _WORDS["reply_verbs"]
_POSTING_VERBS: Final = _WORDS["posting_verbs"]
_PLACE_PREPOSITIONS: Final = _WORDS["place_prepositions"]
_MESSAGE_NOUNS: Final = _WORDS["message_nouns"]
_DETERMINERS: Final = _WORDS["determiners"]
_READ_VERBS: Final = _READ_WORDS - _PLACE_PREPOSITIONS
_SENDER_PREPOSITIONS: Final = _WORDS["sender_prepositions"]
_REPLY_PREPOSITIONS: Final = _WORDS["reply_prepositions"]
_AFTER_REPLY: Final = _WORDS["after_reply"]
_CLAUSE_ENDS: Final = _WORDS["clause_ends"]
_PAST: Final = _WORDS["past"]
_PERFECT: Final = _WORDS["perfect"]
_REMEMBERS: Final = _WORDS["remembers"]
_USE_VERBS: Final = _WORDS["use_verbs"]
_PRONOUNS: Final = _WORDS["pronouns"]
_TAKES_PERSON: Final = _WORDS["takes_person"]
_ACTS: Final = _WORDS["acts"]
_HARMLESS_NO: Final = _WORDS["harmless_no"]
_SIMPLE_NO: Final = frozenset({"not", "no", "nicht", "nein", "non", "niet", "nee", "não"})
_WAS: Final = _PERFECT - {"werden"}
_PLEASE: Final = frozenset({"please", "pls", "bitte"})
_NOTHING: Final = _WORDS["nothing"]
_SEARCH_VERBS: Final = _WORDS["search_verbs"]
_LOGIN_WORDS: Final = _WORDS["login_words"]
_NUMBERED_NOUNS: Final = _WORDS["numbered_nouns"]
_SEEKING_PREPOSITIONS: Final = frozenset({"for", "für", "nach", "pour", "para", "per", "voor", "a"})
_OF: Final = frozenset({"of", "von", "de", "di", "van", "da", "do"})
_ME: Final = frozenset({"me", "us", "mir", "uns", "mi", "ci", "nos", "mij", "ons"})
_DISTRUST: Final = re.compile(
    r"\b(?:phish\w*|scam\w*|spam\w*|malicious|suspicious|suspect|fake|fraud\w*|forbidden|prohibited"
    r"|block(?:ed|list\w*)|black-?list\w*|deny-?list\w*|denied|banned|quarantine\w*|unsafe|untrusted"
    r"|hackers?|attackers?|strangers?|thief|thieves|crooks?|criminals?|impostors?|malware|ransom\w*"
    r"|legit\w*|trustworthy|betr[uü]g\w*|verdächtig|verboten|sperrliste|arnaque|escroc|voleur|fraude"
    r"|estafa\w*|ladr[oó]n|truffa\w*|ladro|oplicht\w*|dief|golp\w+|bogus|falsa|falso|falsi|falsche\w*)\b"
)
_ADDRESS_BOOK: Final = frozenset(
    """contacts contact addressbook address-book book kontakte kontakten adressbuch carnet contactos
    contatti rubrica contacten contatos agenda""".split()  # noqa: SIM905
)
_ADDS: Final = frozenset(
    """add put enter record list füge trag trage nimm ajoute ajoutez mets añade agrega aggiungi voeg
    metti zet adicione ponha""".split()  # noqa: SIM905
)
"""How a user has somebody put among the contacts."""
_TAKEN_BACK: Final = re.compile(
    r"(?:(?:oh|ok|okay|well|no|wait|sorry|actually|please|haha|but|and) )*"
    r"(?:(?:just|only|was|i am|i'm|i was|i|i've|i have) )*"
    r"(?:kidding|joking|jk|wait|oops|(?:on|upon) second thoughts?|nevermind"
    r"|never mind(?: (?:it|that))?|changed my mind|take (?:it|that) back"
    r"|(?:forget|cancel|strike|scratch|undo|scrap|ignore) (?:it|that|this|the last one)"
    r"|(?:war )?nur (?:ein scherz|spaß)|vergiss (?:es|das)|laisse tomber|je plaisante|olvídalo"
    r"|era broma|lascia perdere|scherzavo)(?: (?:sorry|please|then|again|bitte|haha))*"
)
"""A short sentence that takes back the one before it."""
_ABOUT_THE_TEXT: Final = re.compile(
    r"(?:(?:and|so|please|now|can you|could you) )*"
    r"(?:translate|proof-?read|spell-?check|rephrase|paraphrase|übersetze?|traduis|traduce|traduci)"
    r"(?: (?:that|this|das|ça|esto|questo|the (?:text|sentence|line|above)))?"
    r"(?: (?:to|into|in|auf|ins|en) \w+)?(?: (?:please|for me|bitte))*"
    r"|(?:this|that)(?:'s| is| was| came| arrived| just came| landed| sat)\b.{0,40}\b(?:inbox|spam"
    r"|letter|voicemail|sms|(?:mail|message|note) (?:i|we) got|text of"
    r"|what (?:the|an?|it|s?he|they))\b.{0,60}"
    r"|(?:is|was|are|sounds|seems|looks) (?:this|that|it|he|she|they)\b.{0,30}\b(?:legit\w*|real"
    r"|genuine|safe|an? (?:scam|trick|trap|mistake)|phish\w*|fake|fraud\w*|suspicious)\b.{0,20}"
    r"|(?:would|will) (?:this|that|it) be (?:an? )?(?:mistake|wise|safe|unsafe|problem)"
    r"|what do you (?:think|make)(?: of (?:that|this|it))?|said (?:nobody|no one)(?: ever)?"
)
"""A sentence that works on the words before it, says where they came from, or doubts them."""
_ABOUT_WORDS: Final = 16
"""Words of such a sentence."""
_CORRECTED: Final = re.compile(
    r"(?:no (?:wait|sorry|to|not|make|rather|i mean)|wait|oops|scratch that|correction|i mean[t]?"
    r"|sorry (?:to|not|make|i mean)|nein|halt|non pardon|perdón|anzi)\b"
)
"""How somebody goes on who has named the wrong one."""
_PARTING: Final = (",", "-", "–", "—", "...", "…")  # noqa: RUF001  (dashes that people type)
_TO_AVOID: Final = re.compile(
    r"\b(?:address|mail|e-?mail|account|number|sender|contact)(?: that is)? to "
    r"(?:block|avoid|ban|ignore|reject|report|distrust|blacklist|watch out for)\b"
)
_INTERROGATIVES: Final = _WORDS["interrogatives"]
_POLITE: Final = re.compile(
    r"(?:hey|hi|hello|there|ok|okay|so|and|also|please|pls|bitte|hallo|bonjour|hola|ciao|olá|thanks"
    r"|great|[ ,!])*+"
    r"(?:(?:do|would) you mind|(?:can|could|would|will|won't) (?:you|u|we)|would it be possible"
    r"|do me a favou?r|mind "
    r"|kannst du|könntest du|können sie|könnten sie|würdest du|würden sie|peux-tu|peux tu"
    r"|pouvez-vous|pouvez vous|pourrais-tu|pourriez-vous|puedes|podrías|puede|podría|puoi|potresti"
    r"|può|potrebbe|kun je|kan je|kunt u|zou je|zou u|pode|podes|poderia|poderias)\b"
)
_SKIPPED: Final = _WORDS["skipped"]
_NO_CHANNEL: Final = _SKIPPED | _RECEIVER_PREPOSITIONS | _RECEIVER_VERBS | _PLACE_PREPOSITIONS
_CHANNEL_NOUNS: Final = _WORDS["channel_nouns"]
_PAGE_NOUNS: Final = _WORDS["page_nouns"]
_INBOX_NOUNS: Final = _WORDS["inbox_nouns"]
_NOUN_LIKE: Final = _WORDS["noun_like"]
"""Verbs that are nouns as often: they are verbs only where a verb stands."""
_CREATING: Final = _WORDS["creating_verbs"]
"""What makes something for somebody, if it is one of ``_CREATED``."""
_CREATED: Final = _WORDS["created_nouns"]
_MEETING_VERBS: Final = _WORDS["meeting_verbs"]
"""What makes something with or for somebody, whatever it is."""
_GIVING_VERBS: Final = _WORDS["giving_verbs"]
"""Verbs whose receiver stands behind a preposition only."""
_TELLING_VERBS: Final = frozenset(
    {"tell", "ask", "notify", "inform", "remind", "warn", "thank", "let", "call", "ping", "contact"}
)
"""Verbs whose receiver stands behind no preposition."""
_TOWARDS: Final = frozenset({"to", "into", "onto"})
"""Not what somebody meets with."""
_MODAL: Final = frozenset({"can", "could", "will", "would", "should", "must", "may", "shall", "if"})
_SPEAKERS: Final = frozenset({"you", "u", "we", "i"})
_FORGETS: Final = frozenset(
    {"forget", "hesitate", "fail", "vergiss", "vergessen", "oublie", "oubliez", "olvides", "olvide"}
    | {"dimenticare", "dimentica", "vergeet", "esqueça", "esqueças"}
)
_POSSIBLE: Final = frozenset(
    {"possible", "necessary", "needed", "möglich", "nötig", "possibile", "posible", "mogelijk"}
    | {"possível"}
)
_ASKING: Final = frozenset(
    {
        "ask",
        "asking",
        "frag",
        "frage",
        "demande",
        "demandez",
        "pregunta",
        "chiedi",
        "vraag",
        "pergunte",
    }
)
_COMPOUND: Final = frozenset(
    {"next", "close", "due", "according", "prior", "similar", "related", "compared", "contrary"}
    | {"regard", "regards", "respect", "reference", "relation", "addition", "thanks"}
)
_ONWARDS: Final = frozenset({"over", "across", "along"})
_PLACED: Final = frozenset({"to", "with", "into", "onto", "as"})
_HEADS: Final = frozenset(
    {"to", "cc", "bcc", "an", "para", "recipient", "recipients", "attendees", "participants"}
)
_OUTWARDS: Final = frozenset({"out", "over", "directly", "straight", "only", "also"})
_NEEDS: Final = frozenset({"needs", "need", "has", "have", "ought"})
_MUST: Final = (["should"], ["must"], ["shall"])
_SPOKEN_SUBJECTS: Final = frozenset({"it", "this", "that", "everything", "all", "both"})
_SPOKEN_OF: Final = (["it"], ["this"], ["that"], ["everything"], ["all"])
_LET: Final = frozenset({"know", "have", "see"})
"""What somebody is let do who is told something."""
_GOES: Final = frozenset({"goes", "geht", "va", "gaat", "vai"})
_IS: Final = frozenset({"is", "are", "ist", "sind", "est", "es", "è", "é"})
_IT_IS: Final = frozenset({"it's", "it’s", "that's", "that’s", "c'est", "c’est"})  # noqa: RUF001
_HABITUAL: Final = frozenset(
    {"usually", "always", "normally", "often", "sometimes", "every", "each", "once", "regularly"}
    | {"immer", "meist", "jede", "jeden", "toujours", "chaque", "siempre", "cada", "sempre"}
)
"""What is said of what happens again and again, and not of what is asked for now."""
_MAKING_VERBS: Final = _WORDS["making_verbs"]
_PHRASAL: Final = frozenset(
    {("follow", "up"), ("get", "back"), ("hand", "over"), ("pass", "on")}
    | {("reach", "out"), ("sign", "up"), ("check", "in"), ("pass", "it"), ("pass", "this")}
    | {("fire", "off"), ("loop", "in"), ("get", "in")}
)
_FINAL_VERBS: Final = _WORDS["final_verbs"]
"""Verbs at the end of a sentence, in German and Dutch."""
_LEADING: Final = _WORDS["leading"]
"""Words behind which a verb stands."""
_HANDLING: Final = _WORDS["handling_verbs"]
_SUBORDINATORS: Final = _WORDS["subordinators"]
_BEFORE_CLAUSES: Final = frozenset({"before", "after", "until", "till", "while", "as", "like"})
_THAT: Final = frozenset({"that", "dass", "daß", "que", "che", "dat"})
_SUBJECTS: Final = _WORDS["subjects"]
_INFINITIVES: Final = frozenset({"to", "zu", "de", "à", "di", "te"})
_NO_ACT: Final = _WORDS["no_act"]
"""What takes back the verb behind it: pretended, refused, forbidden, asked about."""
_NOT_TO_GO: Final = (_SUBORDINATORS | _NO_ACT) - {"of", "for", "about"}
_NOT_CURRENT: Final = _WORDS["not_current"]
"""What is said of an address that is none, or no more."""
_EXCLUDING: Final = frozenset(
    {("leave", "out"), ("instead", "of"), ("rather", "than"), ("other", "than"), ("sooner", "than")}
    | {("apart", "from"), ("aside", "from"), ("opposed", "to"), ("bis", "auf"), ("au", "lieu")}
    | {("à", "part")}
    | {("en", "lugar"), ("en", "vez"), ("invece", "di"), ("invece", "che"), ("em", "vez")}
    | {("plaats", "van"), ("anstelle", "von"), ("al", "posto")}
)
_EVERYBODY: Final = frozenset({"everybody", "everyone", "all", "anybody", "anyone"})
_REPLACED: Final = frozenset({"statt", "anstatt"})
_NO_NAMES: Final = _WORDS["no_names"]
"""Never names, whatever somebody calls himself."""
_BEHIND_NAMES: Final = _WORDS["behind_names"]
"""What may follow a name in small letters."""
_ARTICLE_PREPOSITIONS: Final = frozenset({"a", "an"})
"""``an`` in German, ``a`` in Spanish and Italian: only right before an address."""


_ADDRESS_NOUNS: Final = _DECLARED_NOUNS - _READ_WORDS - frozenset({"url"})
CLAUSE_WORDS: Final = 40
"""Words before a preposition among which its verb is looked for."""
_SENDING_VERBS: Final = _RECEIVER_VERBS | _MEETING_VERBS | _GIVING_VERBS | _REPLY_VERBS
_BREAKS: Final = frozenset({",", ";", ":", "(", ")", "–"})  # noqa: RUF001
_WHATEVER: Final = frozenset(
    {"what", "whatever", "all", "every", "everything", "some", "any", "each"}
)
_ABOUT: Final = frozenset({"about", "regarding", "concerning", "discuss"})
_NOT_FOR: Final = frozenset(
    {"of", "sure", "filter", "rule", "rules", "list", "chart", "backup", "folder", "label", "alert"}
)
"""What a verb makes that is for nobody, or that parts it from what follows."""
_BANS: Final = frozenset(
    {"block", "deny", "ban", "black", "spam", "junk", "exclusion", "ignore", "suppression"}
)
_LISTS: Final = frozenset({"list", "lists", "folder", "rule", "rules", "filter"})
_CHANGING: Final = frozenset(
    {"comment", "merge", "close", "reopen", "fix", "commit", "push", "approve", "label"}
)
"""What somebody does to a repository, whatever else its sentence says of it."""
_FORGES: Final = frozenset({"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"})
"""Hosts whose URLs begin with a repository."""
_COPIES: Final = frozenset({"cc", "bcc"})
_IT: Final = frozenset({("it",), ("them",), ("this",), ("it", "please"), ("es",), ("le",), ("lo",)})
_BEFORE_GERUNDS: Final = frozenset({"mind", "by", "start", "begin", "keep", "finish", "and"})
_OPENING: Final = frozenset({"open", "get", "öffne", "ouvre", "abre", "apri", "abra"})
_DEFINITE: Final = frozenset({"the", "my", "our", "this", "that", "his", "her", "their", "last"})
_APART: Final = frozenset({"past", "behind", "near", "like", "unlike", "against", "impersonating"})
"""Prepositions that say where or what somebody is."""
"""What ends the message that a reply verb is about."""
_ENDS_NOUN: Final = (
    _RECEIVER_PREPOSITIONS | _SOURCE_WORDS | _PLACE_PREPOSITIONS | _BOUNDARIES | _AND
)
_WONDERS: Final = frozenset({"out", "know", "knows", "check", "see", "asking", "ask", "tell"})
"""Behind which ``when`` asks, and is no condition."""
_PUBLISHING: Final = frozenset({"share", "post", "publish", "upload", "submit", "push", "report"})
_DIRECTLY: Final = (_AND | _SKIPPED | {""}) - {"an", "a"}
"""What may stand between a verb and its object."""
_ON_BEHALF: Final = frozenset({"for", "für", "pour", "per", "voor"})
"""For whom something is, and not where it goes: with a verb that has a direction."""
_CONVEYING: Final = _WORDS["conveying_verbs"]
_TO: Final = frozenset({"to", "into", "an", "à", "a", "ad", "aan", "naar", "para"})
_STOPS: Final = frozenset({".", "!", "?"})

# --- the user's own words -----------------------------------------------------------------------

_OPENING_TAG: Final = re.compile(
    r"<([A-Za-z][\w:.-]{0,40})(?:\s[^<>]{0,200}=[^<>]{0,200})?>|\[(?=[A-Z]{2,20}\])([A-Z]{2,20})\]"
)
_CLOSING_TAG: Final = re.compile(r"[<\[]/([A-Za-z][\w:.-]{0,40})\s?[>\]]")
_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_SEPARATOR: Final = re.compile(r"\s*(?:[-=_*~#+.]\s?){3,}\s*")
_RULED: Final = re.compile(r"\s*[-=_~+]{3}")
"""A line that begins as a rule, whatever is written on it."""
_TIMED: Final = re.compile(
    r"\s*[\[(]?(?:\d{1,4}[./-]\d{1,2}[./-]\d{1,4},?[ T])?\d{1,2}[:.h]\d{2}(?::\d{2})?"
    r"(?:\s?[AaPp][Mm])?[\])]?\s*[-\u2013|,]?\s*[^\W\d_][^:]{0,40}:\s+\S.*"
    r"|\s*[^\W\d_][\w.'-]{0,30}(?: [^\W\d_][\w.'-]{0,30}){0,2}[ ,\t]+[\[(]?\d{1,2}[:.]\d{2}"
    r"(?:\s?[AaPp][Mm])?[\])]?\s*(?::\s+\S.*)?"
)
"""A line of a chat: who, and when."""
_HEADER: Final = re.compile(r"\s*[^\W\d_][\w -]{0,24}[^\W_]\s?:\s+\S.*")
_SALUTATION: Final = re.compile(
    r"\s*(?:hi|hello|hey|dear|greetings|good (?:morning|day|evening)|hallo|liebe[rs]?|guten tag"
    r"|sehr geehrte\w*|moin|bonjour|salut|ch[eè]re?s?|hola|buen[oa]s \w+|estimad[oa]s?|querid[oa]s?"
    r"|ciao|buongiorno|gentile|car[oa]|beste|geachte|olá|prezad[oa]s?)\b[^.?;:]{0,40}[,!.:]?\s*",
    re.IGNORECASE,
)
_SIGN_OFF: Final = re.compile(
    r"\s*(?:(?:best|kind|warm)(?: regards| wishes)?|regards|sincerely|yours(?: \w+)?|cheers"
    r"|(?:viele|beste|freundliche|liebe) grüße|mfg|mit freundlichen grüßen|cordialement|bien à vous"
    r"|saludos|un saludo|atentamente|cordiali saluti|saluti|groeten|met vriendelijke groet"
    r"|atenciosamente|abraços)\s*[,.!]?\s*",
    re.IGNORECASE,
)
_ITEM: Final = re.compile(r"^\s*(?:[-*•\u2013]|\d{1,3}[.)]|[a-z][.)])\s+")
_STRUCTURED: Final = re.compile(
    r"\s*(?:>|\||\{|\[\s*[{\[\"]|</?[A-Za-z!?]|\[/?[A-Za-z]{2,20}[\]:])"
)
_FOREIGN_NOUN: Final = (
    r"e-?mails?|mails?|messages?|texts?|notes?|letters?|threads?|conversations?|chats?|articles?"
    r"|pages?|documents?|docs?|posts?|reviews?|tickets?|comments?|transcripts?|summary|summaries"
    r"|invoices?|bills?|content|contents|quotes?|excerpts?|passages?|snippets?|files?|reports?|logs?"
    r"|output|results?|response|repl(?:y|ies)|answers?|story|paragraphs?|sections?|code|data|memo"
    r"|nachrichten?|briefe?|notiz(?:en)?|artikel|dokumente?|kommentare?|courriels?|lettres?"
    r"|correos?|mensajes?|cartas?|messaggi?o?|lettera|bericht(?:en)?|brief|mensagens?|mensagem"
)
_ANNOUNCES: Final = re.compile(
    rf"\b(?:below|following|follows|here(?:'s| is| are| it is)|pasted?|forward(?:ed|ing)|fwd"
    rf"|quot(?:ed|ing)"
    rf"|attached|verbatim|this|these|original|received|got|folgende[nrs]?|untenstehend\w*|unten"
    rf"|hier (?:ist|sind)|diese[nrs]?|suivante?s?|voici|ci-dessous|siguientes?|aquí|este|esta"
    rf"|seguenti?|ecco|quest[oa]|volgende|onderstaande|hieronder|deze?|seguinte|abaixo)\b"
    rf"(?=.{{0,80}}\b(?:{_FOREIGN_NOUN})\b)"
    rf"|\b(?:{_FOREIGN_NOUN})\b.{{0,60}}\b(?:below|following|follows|says|said|reads|wrote|states"
    rf"|unten|ci-dessous|abajo|sotto|hieronder|abaixo)\b"
    r"|\bfyi\b|\bsee below\b|\bas follows\b|\bin full\b",
    re.IGNORECASE,
)
_DEICTIC: Final = re.compile(
    r"\b(?:this|these)(?: (?:up|out|over|one|please|for (?:me|us)|spam|phishing|legit\w*|real"
    r"|safe|ok(?:ay)?|fine|correct|mean|about)){0,3}\s*[?.!]*\s*$"
    r"|\((?:the )?(?:source|text|mail|original|input)?\b[^()]{0,20}\b(?:below|follows)\)",
    re.IGNORECASE,
)
"""A line that speaks of what stands under it and has no name: ``is this spam?``."""
_SAYING: Final = re.compile(
    rf"\b(?:{_FOREIGN_NOUN}|says?|said|saying|wrote|writes|reads|reading|states|body|subject|title"
    r"|description|schreibt|schrieb|sagt|dit|dice|scrive|zegt|diz|translat\w+|summari[sz]\w+|explain"
    r"|proofread|rewrite|rephrase|paraphrase|correct|analy[sz]e|classify|fix|check|improve|polish"
    r"|übersetz\w*|tradu\w+|vertaal|riassumi|resum\w+|korrigier\w*|erklär\w*)\b",
    re.IGNORECASE,
)
_POINTS: Final = re.compile(
    r"\b(?:reads?|says?|goes|went|is|are|runs?) as follows\b"
    r"|\b(?:check|fix|correct|proofread|improve|polish) (?:my|this) "
    r"(?:spelling|grammar|punctuation|wording|english|style)[.!]\s+(?=\S)"
    r"|\b(?:comment on|explain|parse|rate|judge|shorten|analy[sz]e|translate) (?:the|this) "
    r"(?:sentence|phrase|line|clause|wording|words) (?=(?-i:[A-Z]))"
    r"|\b(?:here is|here's|this is|below is) what (?:came in|arrived|(?:i|we|they|he|she) "
    r"(?:got|received|sent|wrote|said))\b",
    re.IGNORECASE,
)
"""Behind it stands the text that is spoken of."""
_OWN_LIST: Final = re.compile(
    r"\b(?:tasks?|steps?|things?|actions?|to-?dos?|points?|order|aufgaben|schritte|tâches|tareas"
    r"|compiti|taken|tarefas)\b",
    re.IGNORECASE,
)
_FROM_ELSEWHERE: Final = re.compile(
    rf"\b(?:from|in|of)\b.{{0,30}}\b(?:{_FOREIGN_NOUN})\b", re.IGNORECASE
)
_QUOTES: Final = {'"': '"', "“": "”", "«": "»", "„": "“”", "‹": "›", "「": "」", "‘": "’"}  # noqa: RUF001
_QUOTE_SIGN: Final = re.compile("[\"“”«»„‹›「」‘’]|(?<!\\w)'|'(?!\\w)")  # noqa: RUF001


def own_words(prompt: str) -> str:
    """Return a prompt without what its user pasted into it.

    What is pasted is told by its shape, not by the mail client that it came from: behind a line
    that announces foreign text (``summarise this mail:``), from a block of header lines, a
    salutation, a separator or a sign-off on, inside fences, tags, quotations and tables.  Text
    that is closed by its own sign (fence, quotation) ends there; everything else ends with the
    prompt, because the end of a pasted text cannot be told from what follows it.
    """
    text = _without_tags(prompt[:PROMPT_LIMIT])
    return _without_quotations(" \n".join(_own_lines(text.splitlines())))


def _without_tags(text: str) -> str:
    """Return a text without what stands between a tag and the last one that closes its name.

    A tag that is never closed hides the rest.
    """
    closing = {found[1].lower(): found.end() for found in _CLOSING_TAG.finditer(text)}
    kept: list[str] = []
    end = 0
    for found in _OPENING_TAG.finditer(text):
        if found.start() < end:
            continue
        kept.append(text[end : found.start()])
        end = max(closing.get((found[1] or found[2]).lower(), len(text)), found.end())
    return " ".join([*kept, text[end:]])


def _own_lines(lines: Sequence[str]) -> Iterator[str]:
    fence = ""
    announced = False
    for number, line in enumerate(lines):
        opened = _FENCE.match(line)
        if opened is not None:
            sign = opened[0].strip()
            fence = "" if fence == sign else fence or sign
            announced = False
            continue
        if fence or _STRUCTURED.match(line):
            continue
        if not line.strip():
            yield ""
            continue
        if announced and not _is_short_item(line):
            return
        if _begins_foreign(lines, number):
            return
        kept, ends = _up_to_foreign(line)
        yield kept
        if ends:
            return
        announced = _announces(line, lines, number)


def _begins_foreign(lines: Sequence[str], number: int) -> bool:
    """Return whether a line looks like the first of a text that somebody else wrote."""
    line = lines[number]
    if _SEPARATOR.fullmatch(line) or _RULED.match(line) or _TIMED.fullmatch(line):
        return True
    following = lines[number + 1] if number + 1 < len(lines) else ""
    if _HEADER.fullmatch(line) and _HEADER.fullmatch(following):
        return True
    first = not any(one.strip() for one in lines[max(number - 8, 0) : number])
    if number and not first and _SALUTATION.fullmatch(line):
        return True
    return bool(_SIGN_OFF.fullmatch(line)) and any(
        one.strip() for one in lines[number + 2 : number + 10]
    )


def _announces(line: str, lines: Sequence[str], number: int) -> bool:
    """Return whether what follows a line is announced as foreign text."""
    stripped = line.rstrip()
    more = number + 1 < len(lines)
    if not more:
        return False
    own_list = _OWN_LIST.search(line) is not None and _FROM_ELSEWHERE.search(line) is None
    if stripped.endswith(":"):
        following = next((one for one in lines[number + 1 : number + 5] if one.strip()), "")
        return not (own_list and _ITEM.match(following))
    if _DEICTIC.search(stripped) and not _names_something(stripped):
        return True
    blank = not lines[number + 1].strip()
    return blank and not own_list and _ANNOUNCES.search(line) is not None


def _names_something(line: str) -> bool:
    """Return whether a line has an address: it speaks of that."""
    return any(_typed_text(word.strip(_EDGES)) is not None for word in line.split())


def _is_short_item(line: str) -> bool:
    """Return whether a line is one entry of a list of addresses or names."""
    rest = _ITEM.sub("", line, count=1)
    return len(rest.split()) <= 3 and ("@" in rest or _ITEM.match(line) is not None)  # noqa: PLR2004


def _up_to_foreign(line: str) -> tuple[str, bool]:
    """Return a line up to where it announces foreign text in itself, and whether it does."""
    pointed = _POINTS.search(line)
    if pointed is not None:
        return line[: pointed.end()], True
    start = 0
    while (colon := line.find(":", start)) >= 0:
        start = colon + 1
        rest = line[colon + 1 :].lstrip()
        if line[colon + 1 : colon + 2] not in {" ", "\t"} or not rest:
            continue
        first = rest.split(maxsplit=1)[0]
        if _typed_text(first.strip(_EDGES)) is not None or len(rest.split()) <= 2:  # noqa: PLR2004
            continue
        before = line[:colon]
        if _ANNOUNCES.search(before) or _SAYING.search(before[-60:]):
            return before, True
    return line, False


def _without_quotations(text: str) -> str:
    """Return a text without its quotations, but for a dictated address or a short name."""
    kept: list[str] = []
    position = 0
    opened: tuple[str, int] | None = None
    for found in _QUOTE_SIGN.finditer(text):
        sign, at = found[0], found.start()
        if opened is None:
            if sign in _QUOTES or sign == "'":
                opened = (_QUOTES.get(sign, "'"), at)
            continue
        closing, start = opened
        if sign not in closing:
            continue
        inner = text[start + 1 : at]
        kept.append(text[position:start])
        if len(inner.split()) <= QUOTE_WORDS and "\n" not in inner and not _is_order(inner):
            # The marks stay: they show where a dictated name begins and ends.
            kept.append(f' "{inner.strip()}" ')
        else:
            kept.append(" ")
        position, opened = at + 1, None
    if opened is not None and opened[0] != "'":
        # An open quotation hides the rest, as a reader would take it.
        kept.append(text[position : opened[1]])
    else:
        kept.append(text[position:])
    return "".join(kept)


def _is_order(quoted: str) -> bool:
    """Return whether a short quotation says more of an address than whose it is."""
    words = [word.strip(_EDGES).lower() for word in quoted.split()]
    if len(words) == 1 or not any(map(_typed_text, words)):
        return False
    return any(word in _RECEIVER_PREPOSITIONS | _RECEIVER_VERBS for word in words)


# --- typed values ---------------------------------------------------------------------------------

_EDGES: Final = ".,;:!?¿¡…()[]{}<>\"'“”‘’«»*`"  # noqa: RUF001
_MAIL: Final = re.compile(
    r"[^\s@<>()\"']+@[^\s@<>()\"']+\.[^\s@<>()\"'.]{2,}|[^\s@]+@\[[0-9a-f.:]+\]"
)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://\S+|www\.[\w-]+\.\S+", re.IGNORECASE)
_SIGNED: Final = re.compile(r"[#@][\w][\w.-]*")
_DIGITS: Final = re.compile(r"\+?[\d(][\d()/.\-]{4,}\d")
_ACCOUNT: Final = re.compile(r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{8,30}")
_WALLET: Final = re.compile(r"0x[0-9a-fA-F]{40}|(?:bc1|[13])[a-zA-HJ-NP-Z0-9]{25,62}")
_NUMBER_RUN: Final = re.compile(r"(?<![\w+])\+?\d[\d ()/-]{5,30}\d(?!\w)")
_ACCOUNT_RUN: Final = re.compile(
    r"(?<!\w)[A-Za-z]{2}\d{2}(?: [A-Za-z0-9]{4}){2,8}(?: [A-Za-z0-9]{1,4})?(?!\w)"
)
_SPOKEN: Final = re.compile(
    r"(?<![\w.@-])[\w+-]{1,64}(?:(?: dot |\.)[\w+-]{1,64}){0,4}"
    r" at [\w-]{1,63}(?: dot [\w-]{1,63}){1,5}(?![\w@])",
    re.IGNORECASE,
)
_SAID_AT: Final = re.compile(" at ", re.IGNORECASE)
_SAID_DOT: Final = re.compile(" dot ", re.IGNORECASE)
_RUN_ON: Final = re.compile(
    r"((?:@|\bwww\.|://)[\w-]{1,63}(?:\.[\w-]{1,63}){0,6}\.[a-z]{2,24})\.(?=[A-Z])"
)
_RUN_ON_MARK: Final = re.compile(r"(?<=\w)([\])>\"'`*]{1,3} ?)\.(?=[A-Z])")
_DATE: Final = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_MESSAGE_ID: Final = re.compile(r"(?=\D{0,40}\d)[\w<][\w.@+=$<>-]{0,250}")
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,38}/[A-Za-z0-9_][\w.-]{0,98}")
_FORGE_URL: Final = re.compile(
    rf"https://(?:www\.)?([\w.-]+)/({_REPOSITORY.pattern})(?:[/?#]|$)", re.IGNORECASE
)
_PLACE: Final = re.compile(rf"{_SIGNED.pattern}|{_REPOSITORY.pattern}")
_JOINT: Final = "\u2060"
"""Stands for a space inside one number while words are told apart."""


def _typed_text(word: str) -> str | None:
    """Return a word that is a typed address, without what people write around it."""
    word = word.replace(_JOINT, " ").removesuffix("'s").removesuffix("’s")  # noqa: RUF001
    if _URL.fullmatch(word):
        return word
    bare = word.removeprefix("mailto:")
    if _MAIL.fullmatch(bare):
        return bare
    for pattern in (_SIGNED, _WALLET, _REPOSITORY):
        if pattern.fullmatch(bare):
            return bare
    squeezed = bare.replace(" ", "")
    if _DATE.fullmatch(bare):
        return None
    if _ACCOUNT.fullmatch(squeezed) or _DIGITS.fullmatch(squeezed) or squeezed.isdecimal():
        return bare if sum(char.isdigit() for char in bare) >= 6 else None  # noqa: PLR2004
    return None


def _page_of(typed: str) -> tuple[str, ...]:
    """Return the values of a typed URL, word for word; none where it is no URL."""
    if not _URL.fullmatch(typed):
        return ()
    # Whoever leaves the scheme out has said nothing of it; a page can be read without its fragment.
    texts = dict.fromkeys((typed, typed.partition("#")[0]))
    written: list[str] = []
    for text in texts:
        written += (f"https://{text}", f"http://{text}") if text[:4].lower() == "www." else (text,)
    found = [[d for d in read_destinations(text) if d.kind == "url"] for text in written]
    return tuple(v for urls in found if len(urls) == 1 for v in link_values(urls[0]))


def _values_of(typed: str) -> tuple[str, ...]:
    """Return the comparable values of a typed address; a host only where its URL was typed."""
    bare = typed.partition("#")[0] if "://" in typed else typed
    if typed.lower().startswith("www."):
        # Whoever leaves the scheme out may mean the host as well.
        found = find_values(f"https://{typed} {typed}", disguised=False).plain
    else:
        found = find_values(typed if bare == typed else f"{typed} {bare}", disguised=False).plain
    if _SIGNED.fullmatch(typed) or (not found and "@" not in typed and "://" not in typed):
        return (handle_value(typed),)
    # A part of an address is no address: what looks like a handle in a host names nobody.
    is_url = "://" in typed or typed.lower().startswith("www.")
    wanted = ("url:", "host:") if is_url else ("mail:",) if "@" in typed else ("",)
    values = [v for v in found if v.startswith(wanted) and not v.startswith("any:")]
    return (*values, *(_repository_of(typed) if is_url else ()))


def _repository_of(url: str) -> tuple[str, ...]:
    """Return the repository that a URL of a forge is in."""
    found = _FORGE_URL.match(url)
    return (handle_value(found[2]),) if found and found[1].lower() in _FORGES else ()


# --- sentences ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Mentions:
    """What a prompt names, in order of occurrence."""

    receivers: dict[str, None] = field(default_factory=dict)
    """Values that stand where a receiver stands."""
    kept: dict[str, None] = field(default_factory=dict)
    """Those of them that the user wants remembered as somebody's (``Remember that his … is …``)."""
    sources: dict[str, None] = field(default_factory=dict)
    """Values that are named as something to read, or by whom something is; never receivers."""
    names: dict[str, None] = field(default_factory=dict)
    """Names in a receiver's position, as handle values; a directory says who they are."""
    places: dict[str, None] = field(default_factory=dict)
    """Names of channels and rooms that are not receivers, as handle values."""
    messages: dict[str, None] = field(default_factory=dict)
    """Ids of messages that are to be answered, as message values."""
    refused: dict[str, None] = field(default_factory=dict)
    """Values that the user says no to, or distrusts."""
    holders: dict[str, None] = field(default_factory=dict)
    """URLs of pages on which, as the user says, somebody's address stands, word for word."""
    homes: dict[tuple[str, str], None] = field(default_factory=dict)
    """URLs of pages of those to whom something is to go, each with a word of the owner's name."""
    pages: dict[str, None] = field(default_factory=dict)
    """URLs among receivers and sources, word for word, as they were typed."""

    def take_back(self, values: Iterable[str], pages: Iterable[str]) -> None:
        """Refuse values, and leave pages out."""
        self.refused.update(dict.fromkeys(values))
        for page in pages:
            self.pages.pop(page, None)


def mentions_in(prompt: str) -> Mentions:
    """Return what the user of a prompt names, by the position in which it stands."""
    found = Mentions()
    last: list[str] = []
    typed: list[str] = []
    pages: list[str] = []
    open_mail: tuple[list[str], list[str]] = ([], [])
    spoken_of: list[str] = []
    mailbox: tuple[str, ...] = ()
    owners: list[tuple[str, list[str]]] = []
    made: dict[str, frozenset[str]] = {}
    fresh = False
    for raw in _sentences(own_words(prompt)):
        if len(raw) > SENTENCE_WORDS:
            last, typed, pages, open_mail, spoken_of, mailbox = [], [], [], ([], []), [], ()
            continue
        if _takes_back(raw):
            found.take_back((*last, *typed), pages)
            continue
        sentence = _Sentence(raw, made, fresh=fresh)
        making = sentence.makes()
        made, fresh = made | making, bool(making)
        named = sentence.into(found)
        if sentence.typed or not raw[-1].endswith("?"):
            # A question (``Does it sound off?``) leaves open what the next sentence is about.
            last, typed, pages = named, sentence.values(), sentence.pages()
        if sentence.asserts and sentence.speaks_of_them():
            found.names.update(
                (handle_value(name), None) for name in (*spoken_of, *sentence.spoken_of())
            )
            last += () if sentence.typed else mailbox
            found.receivers.update(dict.fromkeys(last))
        owners += sentence.owners()
        spoken_of = [] if sentence.doubts else sentence.spoken_of()
        mailbox = sentence.only_mailbox()
        # ``Read the mail from X.  Then reply to it.``: what is answered was named just before.
        senders, messages = sentence.mail()
        if sentence.replies and not (sentence.typed or messages):
            senders, messages = open_mail
        if sentence.replies:
            found.receivers.update(dict.fromkeys(senders))
            found.messages.update(dict.fromkeys(messages))
            last += senders
        open_mail = senders, messages
        if len(found.receivers) + len(found.names) > MENTION_LIMIT:
            break
    for value in found.refused:
        found.receivers.pop(value, None)
        found.sources.pop(value, None)
    found.homes.update(_homes(owners, found.names))
    return found


def _homes(
    owners: list[tuple[str, list[str]]], names: dict[str, None]
) -> Iterator[tuple[tuple[str, str], None]]:
    """Yield the pages of those to whom something is to go, with each word of the owner's name."""
    for page, name in owners[:MENTION_LIMIT]:
        if any(handle_value(one) in names for one in (" ".join(name), *name)):
            yield from (((page, word), None) for word in name)


def _sentences(words: str) -> Iterator[list[str]]:
    """Yield the words of each sentence; a blank line ends one, a line break alone does not."""
    text = _SPOKEN.sub(lambda run: _SAID_AT.sub("@", _SAID_DOT.sub(".", run[0])), words)
    text = _RUN_ON_MARK.sub(r"\1. ", _RUN_ON.sub(r"\1. ", text))
    for pattern in (_ACCOUNT_RUN, _NUMBER_RUN):
        text = pattern.sub(lambda run: run[0].replace(" ", _JOINT), text)
    sentence: list[str] = []
    head: list[str] = []
    for line in text.split("\n"):
        item = _ITEM.match(line)
        heads = bool(sentence) and sentence[-1].endswith(":")
        if heads and (item or not line.strip()):
            head = sentence[-HEAD_WORDS:]
        elif sentence and (item or not line.strip()):
            yield sentence
        if item or not line.strip():
            # Every item of a list is read behind what introduces the list.
            sentence = list(head) if item else []
        else:
            head = head if heads and not sentence else []
        for word in _ITEM.sub("", line, count=1).split():
            sentence.append(word)
            if word[-1] in ".!?;" or word.endswith(('."', '!"', '?"', ".)")):
                yield sentence
                sentence = []
    if sentence:
        yield sentence


def _takes_back(sentence: list[str]) -> bool:
    """Return whether a short sentence says no to the one before it (``Never do that.``)."""
    typed = any(_typed_text(word.strip(_EDGES)) for word in sentence)
    if typed or len(sentence) > _ABOUT_WORDS:
        return False
    words = [word.strip(_EDGES + "-–—").lower() for word in sentence]  # noqa: RUF001
    if _ABOUT_THE_TEXT.fullmatch(" ".join(filter(None, words))) is not None:
        return True
    if len(sentence) > 6:  # noqa: PLR2004
        return False
    doubted = not sentence[-1].endswith("?") and any(map(_DISTRUST.search, words))
    taken_back = _TAKEN_BACK.fullmatch(" ".join(filter(None, words))) is not None
    return words[0] in _NEGATIONS or doubted or taken_back


class _Sentence:
    """The words of one sentence, and what each of them does in it.

    Args:
        raw: its words as typed, at most ``SENTENCE_WORDS``.
        made: what the sentences before have had made or sent: by its noun, all words of its name.
        fresh: whether the last of them has.
    """

    def __init__(
        self, raw: list[str], made: Mapping[str, frozenset[str]], *, fresh: bool = False
    ) -> None:
        self.raw = raw
        self._made, self._fresh = made, fresh
        self.words = [word.strip(_EDGES).lower() for word in raw]
        self.typed: dict[int, tuple[str, ...]] = {}
        self._texts: dict[int, str] = {}
        for at, word in enumerate(raw):
            text = _typed_text(word.strip(_EDGES))
            if text is not None:
                self.typed[at], self._texts[at] = _values_of(text), text
        said = " ".join(self.words)
        avoids = _TO_AVOID.search(said) is not None
        self.asserts = not (avoids or self._is_question() or self._is_conditional())
        self.doubts = any(map(_DISTRUST.search, self.words))
        self._is_verb_at: dict[int, bool] = {}
        self._is_asked_at: dict[int, bool] = {}
        self._parts: dict[int, bool] = {}
        self._denied = self._negated()
        self._said_by_others = self._reported_from()
        self.replies = self.asserts and self._reply_verb() is not None

    def into(self, found: Mentions) -> list[str]:
        """Take what the sentence names; return the values that it names as receivers."""
        distrusted = self._distrusted()
        named: list[str] = []
        for at, values in self.typed.items():
            if at in distrusted or self._denied[at] or self._is_corrected(at):
                found.refused.update(dict.fromkeys(values))
                continue
            page = dict.fromkeys(_page_of(self._texts[at]))
            found.pages.update(page)
            if page and self._holds_address(at):
                found.holders.update(page)
            said = self.asserts and at < self._said_by_others
            if said and self._receives(at) and self._goes_on(at):
                found.receivers.update(dict.fromkeys(values))
                named.extend(values)
                if self._is_kept(at):
                    found.kept.update(dict.fromkeys(values))
            else:
                found.sources.update(dict.fromkeys(values))
        if not distrusted:
            self._name_channels(found)
        if self.asserts and not distrusted:
            for name in self._names():
                found.names[handle_value(name)] = None
        return named

    def _goes_on(self, at: int) -> bool:
        """Return whether the sentence goes on about the request behind a receiver."""
        direct = self._is_direct(at)
        return goes_on(self.words, self.raw, at, self.typed, self._parts, direct=direct)

    def _is_kept(self, at: int) -> bool:
        """Return whether a value is to be remembered, or put among the contacts."""
        first, behind = self.words[:4], self.words[at + 1 : at + 5]
        wanted = not _REMEMBERS.isdisjoint(first[:3]) or (
            not _REMEMBERS.isdisjoint(behind) and _NEGATIONS.isdisjoint(behind)
        )
        declared = wanted and self._is_declared(at)
        listed = not _ADDRESS_BOOK.isdisjoint(self.words[at:])
        return declared or (listed and not (_REMEMBERS | _ADDS).isdisjoint(first))

    def _is_corrected(self, at: int) -> bool:
        """Return whether another one is named in its place (``to X - no wait, to Y``)."""
        behind = [word.strip("-–—… ") for word in self.words[at + 1 : at + 6]]  # noqa: RUF001
        said = set(filter(None, behind))
        if said and said <= _SIMPLE_NO:
            # ``Send it to X - NOT.``
            return True
        if not _CORRECTED.match(" ".join(filter(None, behind))):
            return False
        return self.raw[at].endswith(_PARTING) or self.raw[at + 1] in _PARTING

    def values(self) -> list[str]:
        """Return every typed value in it."""
        return [value for values in self.typed.values() for value in values]

    def pages(self) -> list[str]:
        """Return every URL in it, word for word."""
        return [page for text in self._texts.values() for page in _page_of(text)]

    def mail(self) -> tuple[list[str], list[str]]:
        """Return the senders and the ids of the messages that it speaks of, none it denies."""
        senders: list[str] = []
        messages: list[str] = []
        if self._distrusted() or not self.asserts:
            return senders, messages
        reply = self._reply_verb()
        for at in range(1, len(self.words)):
            if self._denied[at] or at > self._said_by_others:
                continue
            if reply is not None and at > reply and not self._is_in_message(reply, at):
                continue
            if at in self.typed and self._is_sender(at):
                senders.extend(self.typed[at])
            elif self._is_message_id(at):
                messages.append(message_value(self.raw[at].strip(_EDGES + "#")))
        return senders, messages

    # --- what the sentence does ----------------------------------------------------------------

    def _is_question(self) -> bool:
        # ``When you are done …``, ``Do send …`` and ``Have it sent …`` are no questions.
        first = self.words[0]
        asks = first in _INTERROGATIVES and first not in {"when", "do", "have"}
        asked = asks or self.raw[-1].rstrip("\"')”’").endswith("?")  # noqa: RUF001
        return asked and not self._is_polite()

    def _is_polite(self) -> bool:
        """Return whether it asks somebody to do something (``I am late, could you …?``)."""
        starts = [0, *(at + 1 for at, raw in enumerate(self.raw[:-1]) if raw[-1:] in _BREAKS)]
        return any(_POLITE.match(" ".join(self.words[at : at + 14])) for at in starts[:3])

    def _is_conditional(self) -> bool:
        words = self.words
        for at, word in enumerate(words):
            if word in _CONDITIONS and not self._is_own_condition(at):
                return True
            behind = words[at + 1] if at + 1 < len(words) else ""
            asks = word != "when" or not behind or words[at - 1] in _WONDERS
            if not asks and not OWN_TIME.match(" ".join(words[at:])):
                return True
            if word == "would" and behind in _RECEIVER_VERBS and words[at - 1] != "you":
                return True
        return False

    def _is_own_condition(self, at: int) -> bool:
        """Return whether a condition is none: politeness, a question, or when it is one's turn."""
        possible = self.words[at + 1 : at + 2] and self.words[at + 1] in _POSSIBLE
        own = is_polite_if(self.words, at) or OWN_TIME.match(" ".join(self.words[at:]))
        return bool(possible or own) or self._is_asked(at)

    def _is_asked(self, condition: int) -> bool:
        """Return whether ``if`` begins what somebody is to be asked."""
        return not _ASKING.isdisjoint(self.words[:condition])

    def _negated(self) -> list[bool]:
        """Return per word whether a negation stands before it, in the same clause."""
        negated, here = [], False
        for at, word in enumerate(self.words):
            negated.append(here)
            denies = word in _NEGATIONS or word.startswith(("n'", "n’"))  # noqa: RUF001
            # ``I can't come, please tell …``
            turns = word in _CONTRASTS or (word in _PLEASE and self.raw[at - 1].endswith(","))
            here = (denies and self._denies(at)) or (here and not turns)
        return [one or other for one, other in zip(negated, self._excluded(), strict=True)]

    def _excluded(self) -> list[bool]:
        """Return per word whether it is named as what is replaced (``rather than to …``)."""
        excluded, here, first = [], False, False
        for at, word in enumerate(self.words):
            excluded.append(here)
            but = word == "but" and not _EVERYBODY.isdisjoint(self.words[max(at - 5, 0) : at])
            pair = self.words[at - 1] if at else "", word
            if but or pair in _EXCLUDING or word in _REPLACED:
                # ``Instead of A, send it to B``
                here, first = True, at <= 1
            elif here and ((first and self.raw[at].endswith(",")) or word in _CONTRASTS):
                here = False
        return excluded

    def _denies(self, at: int) -> bool:
        """Return whether a word of negation is one: not ``no later than``, nor the month of May."""
        behind = self.words[at + 1] if at + 1 < len(self.words) else ""
        if self.words[at] == "no" and behind in _HARMLESS_NO:
            # ``No longer`` takes back, ``no longer than`` does not.
            return behind == "longer" and self.words[at + 2 : at + 3] != ["than"]
        if not _FORGETS.isdisjoint(self.words[max(at - 1, 0) : at + 3]):
            # ``Don't forget to …``
            return False
        if self.words[at] in _NOTHING and any(raw.endswith(",") for raw in self.raw[at : at + 2]):
            # ``Nothing urgent, but …``
            return False
        return not (at and self.raw[at] == "Mai")

    def _reported_from(self) -> int:
        """Return the place from which on it tells what somebody else has said."""
        before = ""
        for at, word in enumerate(self.words):
            if word in _CONDITIONS and self._is_asked(at):
                return at
            if word in _REPORTED and before not in _FIRST_PERSON:
                return at
            if word in _REPORTING and (before in _OTHERS or self._says_that(at)):
                return at
            before = word
        return len(self.words)

    def _says_that(self, at: int) -> bool:
        """Return whether ``dit``, Dutch for ``this``, is French: what somebody says follows."""
        behind = self.words[at + 1] if at + 1 < len(self.words) else ""
        infinitive = self.words[at + 2 : at + 3] if behind == "de" else []
        return self.words[at] == "dit" and (
            behind == "que"
            or behind.startswith(("d'", "d’", "qu'", "qu’"))  # noqa: RUF001
            or any(word.endswith(("er", "ir", "re")) for word in infinitive)
        )

    def _distrusted(self) -> set[int]:
        """Return the typed values that it distrusts.

        Where the distrust is about what is sent (``report the phishing mail to …``), and stands
        between the verb and its receiver, the receiver is none of it.
        """
        words = self.words
        if not self.typed:
            return set()
        doubts = [at for at, word in enumerate(words) if _DISTRUST.search(word)]
        doubts += [at for at, word in enumerate(words) if word in _LISTS and words[at - 1] in _BANS]
        if not doubts:
            return set()
        verb = next((at for at, word in enumerate(words) if word in _RECEIVER_VERBS), len(words))
        first, last = doubts[0], doubts[-1]
        return {
            at
            for at in self.typed
            if not (verb < first and last < at - 1 and words[at - 1] in _RECEIVER_PREPOSITIONS)
        }

    def _reply_verb(self) -> int | None:
        """Return the place of a verb that has a message answered, and not somebody apart."""
        for at, word in enumerate(self.words):
            if word not in _REPLY_VERBS or self._denied[at] or at > self._said_by_others:
                continue
            behind = at + 1
            while behind < len(self.words) and self.words[behind] in _REPLY_PREPOSITIONS:
                behind += 1
            if behind >= len(self.words) or self.words[behind] in _AFTER_REPLY:
                return at
            if any(self._is_message_noun(index) for index in range(behind, behind + 4)):
                return at
            if self.raw[at].endswith((":", ",")):
                return at
        return None

    def _is_message_noun(self, at: int) -> bool:
        words = self.words
        return at < len(words) and words[at] in _MESSAGE_NOUNS

    def _is_in_message(self, reply: int, at: int) -> bool:
        """Return whether a place belongs to the message that the reply verb is about."""
        between = self.words[reply + 1 : at]
        return len(between) <= LOOK_BACK and not any(
            word in _BOUNDARIES - _DETERMINERS
            or word in _CLAUSE_ENDS
            or word in _RECEIVER_VERBS - _MESSAGE_NOUNS
            for word in between
        )

    def _is_sender(self, at: int) -> bool:
        """Return whether a typed value is said to be whom a message is from."""
        return self.words[at - 1] in _SENDER_PREPOSITIONS or (
            self.words[at].endswith(("'s", "’s"))  # noqa: RUF001
            and any(map(self._is_message_noun, range(at + 1, at + 4)))
        )

    def _is_message_id(self, at: int) -> bool:
        word = self.raw[at].strip(_EDGES + "#")
        if at in self.typed and not word.isdecimal():
            return False
        before = self.words[at - 1]
        if before in {"id", "number", "no", "nr", "nummer"} and at > 1:
            before = self.words[at - 2] if self.words[at - 2] in _MESSAGE_NOUNS else before
        return before in _MESSAGE_NOUNS and _MESSAGE_ID.fullmatch(word) is not None

    # --- where a receiver stands ---------------------------------------------------------------

    def _receives(self, at: int) -> bool:
        """Return whether the word that governs a value takes a receiver."""
        if at and self.words[at - 1] in _ARTICLE_PREPOSITIONS:
            sought = self._is_passive(at - 1) or self._is_sought(at - 1, at)
            return not sought and self._is_sending(at - 1, at)
        if self._is_declared(at):
            return True
        if self._is_subject(at):
            return False
        unknown = 0
        for index in range(at - 1, max(at - LOOK_BACK, 0) - 1, -1):
            governs = self._governs(index, at)
            if governs is not None:
                return governs
            if self._is_unknown(index):
                # ``to Ann, signed …``, ``to Ann and drop …``
                unknown += UNKNOWN_WORDS + 1 if self._is_listed(index - 1) else 1
            if unknown > UNKNOWN_WORDS:
                break
        return False

    def _is_unknown(self, at: int) -> bool:
        """Return whether a word is neither one of known function, nor an address, nor a name."""
        word = self.words[at]
        known = not word or word in _SKIPPED or at in self.typed or word in _COPULAS
        return not known and not self.raw[at][:1].isupper()

    def _is_listed(self, at: int) -> bool:
        """Return whether an entry of a list of receivers ends at a place, or one begins behind."""
        if at < 0 or self.words[at + 1] in _PLACE_PREPOSITIONS:
            return False
        owner = self.words[at].endswith(("'s", "’s"))  # noqa: RUF001
        listed = at in self.typed or (at > 0 and self.raw[at][:1].isupper() and not owner)
        return self.words[at] in _AND or self.raw[at][-1:] in _BREAKS or listed

    def _is_object(self, verb: int, at: int) -> bool:
        """Return whether a value is what is sent (``forward … to Ann``), and not to whom."""
        behind = at + 1
        named = at - 1 if self.raw[at].startswith("<") else verb
        adjacent = verb in {at - 1, named - 1}
        if not adjacent or behind + 1 >= len(self.words):
            return False
        word, person = self.words[behind], self._is_person(behind + 1)
        if self.words[verb] in _CONVEYING:
            return word in _TO and person
        return self.words[verb] in _PUBLISHING and word in _TO | _PLACE_PREPOSITIONS | {"with"}

    def _behind_list(self, at: int) -> str:
        """Return the word behind a list of receivers."""
        while at < len(self.words) and (at in self.typed or self.words[at] in _DIRECTLY):
            at += 1
        return self.words[at] if at < len(self.words) else ""

    def _is_direct(self, at: int) -> bool:
        """Return whether a verb has a value as its object, with no preposition between."""
        before = at - 1
        while (
            before > 0
            and not (self.words[before] in _RECEIVER_VERBS and self._is_verb(before))
            and (
                before in self.typed
                or self.raw[before][:1].isupper()
                or self.words[before] in _DIRECTLY
            )
        ):
            before -= 1
        return self.words[max(before, 0)] in _RECEIVER_VERBS and before >= 0

    def _is_subject(self, at: int) -> bool:
        """Return whether a value is who does something (``the invoice that … sent me``)."""
        behind = self.words[at + 1] if at + 1 < len(self.words) else ""
        ends = self.raw[at][-1:] in {",", ";", ":", ")"}
        if behind == "a":
            # French; in English it begins what is sent.
            return not ends and "".join(self.words[at + 2 : at + 3]).endswith(("é", "it", "u"))
        acts = behind in _PASSIVE or behind in _REPORTED or behind in _ACTS
        return not ends and (acts or behind.endswith("ed"))

    def _governs(self, index: int, at: int) -> bool | None:
        """Return whether a word makes a value at a place a receiver, None if it says neither."""
        word = self.words[index]
        of_place = word in _OF and at in self._texts and _PLACE.fullmatch(self._texts[at])
        at_place = word == "at" and at in self._texts and _PLACE.fullmatch(self._texts[at])
        used = word in _USE_VERBS and self._replaces(index, at)
        verb = used or (word in _RECEIVER_VERBS and self._is_verb(index))
        if of_place and self._is_worked_on(at):
            return True
        if of_place or (word in _CONTRASTS and index == at - 1):
            return None
        if word in _RECEIVER_PREPOSITIONS:
            sought = self._is_passive(index) or self._is_sought(index, at)
            return not sought and self._is_sending(index, at)
        mail = _MAIL.fullmatch(self._texts.get(at, "")) is not None
        place = (word in _PLACE_PREPOSITIONS or at_place) and at - index <= NAME_WORDS and not mail
        if place and (self._is_posted(index) or self._is_worked_on(at)):
            return True
        if verb:
            parted = self._is_parted(index, at) or self._has_receiver(index, at)
            lets = word == "let" and self._behind_list(at) not in _LET
            sent = self._is_object(index, at)
            return used or (self._is_own_act(index) and not (parted or lets or sent))
        ends = word in _SOURCE_WORDS or word in _BOUNDARIES or self._ends_clause(index, at)
        return False if ends else None

    # --- what is sent -----------------------------------------------------------------------

    def _is_sending(self, preposition: int, at: int) -> bool:
        """Return whether a preposition belongs to something that the user wants to be sent.

        The verb that governs it says so: ``send the mail to …``, not ``delete the mail to …``.
        A verb that is not known says nothing.

        Args:
            preposition: place of the word that would make a value a receiver.
            at: the value's place, or that of a name.
        """
        if self._is_infinitive(preposition, at):
            return False
        if self._heads(preposition) or (preposition and self._is_manner(preposition - 1)):
            return True
        if self._is_to_go(preposition):
            return True
        verb = self._act_before(preposition)
        if verb is not None and (
            self._has_receiver(verb, preposition) or self._is_parted(preposition, at)
        ):
            return False
        if verb is not None and (
            self.words[preposition] in _ON_BEHALF and self.words[verb] in _CONVEYING
        ):
            # ``Send the bill for …``
            verb = None
        return (
            self._is_sent_behind(preposition, at)
            if verb is None
            else not self._is_of_noun(verb, preposition, at)
        )

    def _is_to_go(self, preposition: int) -> bool:
        """Return whether what was spoken of is to go there (``it goes to …``, ``must go to …``).

        A statement (``the report goes to …``, ``it is for …``) says so of what the prompt has had
        made or sent, and of nothing else: about other things it tells what is, not what to do.
        """
        words, verb = self.words, preposition - 1
        while verb > 0 and words[verb] in _OUTWARDS:
            verb -= 1
        before = words[: max(verb, 0)]
        if not _NOT_TO_GO.isdisjoint(before) or not _HABITUAL.isdisjoint(words):
            return False
        if words[preposition] == "to" and words[verb] == "go":
            return self._must_go(before)
        if words[preposition] == "to" and words[verb] == "goes" and before in _SPOKEN_OF:
            return True
        if words[preposition] in _SEEKING_PREPOSITIONS - {"a", "nach"}:
            return (words[verb] in _IS and self._is_made(before)) or (
                words[verb] in _IT_IS and not before and self._fresh
            )
        return words[verb] in _GOES and self._is_made(before)

    def _must_go(self, before: list[str]) -> bool:
        """Return whether something in front of ``go to …`` has to (``the minutes should …``)."""
        needs = before[-1:] == ["to"] and not _NEEDS.isdisjoint(before[-2:-1])
        subject = before[: -2 if needs else -1]
        if not needs and before[-1:] not in _MUST:
            return False
        # What somebody thinks or wants has a subject of its own behind.
        plain = bool(subject) and subject[0] in _DEFINITE | _SPOKEN_SUBJECTS
        return plain and len(subject) <= NEAR and _SUBJECTS.isdisjoint(subject[1:])

    def _is_made(self, subject: list[str]) -> bool:
        """Return whether a sentence before has had just this made or sent."""
        if subject in _SPOKEN_OF:
            return self._fresh
        named = subject[1:] if subject and subject[0] in _DETERMINERS else []
        return bool(named) and self._made.get(named[-1], frozenset()).issuperset(named)

    def makes(self) -> dict[str, frozenset[str]]:
        """Return what it has made or sent: by its noun, all words of its name."""
        found: dict[str, frozenset[str]] = {}
        if not self.asserts or self.doubts:
            return found
        for at, word in enumerate(self.words[: self._said_by_others]):
            making = word in _MAKING_VERBS and self._leads(at)
            sending = word not in _TELLING_VERBS | _OPENING and self._is_verb(at)
            if (making or sending) and not self._denied[at] and self._is_own_act(at):
                name = self._noun_behind(at)
                found.update({name[-1]: frozenset(name)} if name else {})
        return found

    def _noun_behind(self, verb: int) -> list[str]:
        """Return the words of what a verb has made or sent, without what belongs to it."""
        words, begin = self.words, verb + 1
        for at in range(begin, min(begin + NAME_WORDS, len(words))):
            if words[at] in _DETERMINERS:
                begin = at + 1
                break
        name: list[str] = []
        for at in range(begin, min(begin + NAME_WORDS, len(words))):
            if words[at] in _ENDS_NOUN or at in self.typed:
                break
            name.append(words[at])
            if self.raw[at][-1:] in _BREAKS | _STOPS:
                break
        return name

    def _heads(self, at: int) -> bool:
        """Return whether a preposition is the name of a mail's field (``To: …``, ``cc …``)."""
        named = not at and self.words[0] in _HEADS and self.raw[0].endswith(":")
        return named or (self.words[at] in _COPIES and self._leads(at))

    def _is_of_noun(self, verb: int, preposition: int, at: int) -> bool:
        """Return whether a preposition belongs to the message before it.

        ``Post my answer to … in #general``: what is sent goes somewhere else.
        """
        before = self.words[preposition - 1 : preposition]
        if before and before[0] in _COMPOUND:
            return True
        behind = self.words[at + 1 : at + 3]
        person = at + 2 < len(self.words) and self._is_person(at + 2)
        if behind and behind[0] in _TO and person and before and preposition - verb > 1:
            # ``Send the answer to … to Ann``
            return True
        conveyed = self.words[verb] in _CONVEYING and behind[:1] != ["to"]
        placed = bool(behind) and (
            (behind[0] in _PLACED and not conveyed)
            or (behind[0] in _PLACE_PREPOSITIONS and (at + 2 in self.typed or "our" in behind))
        )
        noun = bool(before) and before[0] in _MESSAGE_NOUNS | _NOUN_LIKE | _CREATED
        owned = self.words[preposition - 2 : preposition - 1]
        if noun and not _ABOUT.isdisjoint(self.words[verb + 1 : preposition]):
            # ``Email the bank about the transfer to …``
            return True
        return placed and noun and bool(owned) and owned[0] in _DETERMINERS

    def _is_sent_behind(self, preposition: int, at: int) -> bool:
        """Return whether what is sent stands behind: ``an … schicken``, ``for … and mail it``."""
        behind = self.words[at + 1 : at + 1 + LOOK_BACK]
        if not _FINAL_VERBS.isdisjoint(behind):
            return is_asked_for_at_end(self.words, self.raw, preposition)
        return self.words[preposition] in _SEEKING_PREPOSITIONS and any(
            word in _RECEIVER_VERBS and tuple(behind[index + 1 :]) in _IT
            for index, word in enumerate(behind)
        )

    def _is_infinitive(self, preposition: int, at: int) -> bool:
        """Return whether ``to`` begins a verb (``ask Ann to block …``)."""
        behind = preposition + 1
        if self.words[preposition] != "to" or behind >= at or behind in self.typed:
            return False
        if self.raw[at].startswith("<"):
            return False
        known = self.words[behind] in _SKIPPED | _DETERMINERS or self.raw[behind][:1].isupper()
        return not known and behind == at - 1 and self.raw[behind][-1:] not in _BREAKS

    def _is_manner(self, at: int) -> bool:
        """Return whether a word says how something is sent: ``by mail to …``."""
        return self.words[at] in _MESSAGE_NOUNS and self.words[at - 1 : at] == ["by"]

    def _act_before(self, preposition: int) -> int | None:
        """Return the place of the verb that governs a preposition, None if it sends nothing."""
        complete = self.words[preposition - 1 : preposition] and (
            self.words[preposition - 1] in _ME
        )
        for index in range(preposition - 1, max(preposition - CLAUSE_WORDS, 0) - 1, -1):
            if index in self.typed:
                continue
            if self._is_verb(index):
                return index if self._is_act(index, preposition) else None
            if self._is_other_verb(index) or self._is_told_of(index):
                return None
            # ``What Omar sent me`` is complete.
            if not complete and self._ends_clause(index, preposition):
                return None
        return None

    def _is_act(self, verb: int, preposition: int) -> bool:
        """Return whether the user wants what a verb says, and it is for somebody."""
        word = self.words[verb]
        if not self._is_own_act(verb) or (word in _TELLING_VERBS and preposition > verb + 1):
            return False
        if word in _MEETING_VERBS:
            return self.words[preposition] not in _TOWARDS
        makes = word in _CREATING - _RECEIVER_VERBS and not self._is_phrasal(verb)
        return not makes or self._creates(verb, preposition)

    def _is_told_of(self, at: int) -> bool:
        """Return whether a word speaks of sending without asking for it: ``for sending …``."""
        word = self.words[at]
        stems = (word[:-3], f"{word[:-3]}e", word[:-4]) if word.endswith("ing") else ()
        return not _RECEIVER_VERBS.isdisjoint(stems)

    def _is_phrasal(self, at: int) -> bool:
        return (self.words[at], *self.words[at + 1 : at + 2]) in _PHRASAL

    def _is_verb(self, at: int) -> bool:
        """Return whether a word is a verb that sends: not ``her mail``, nor ``all mail``."""
        known = self._is_verb_at.get(at)
        if known is None:
            known = self._is_verb_at[at] = self._stands_as_verb(at)
        return known

    def _stands_as_verb(self, at: int) -> bool:
        word, before = self.words[at], self.words[at - 1] if at else ""
        if self._is_phrasal(at) or (before in _BEFORE_GERUNDS and self._is_told_of(at)):
            return True
        if word in _NOUN_LIKE or word in _CREATING:
            return self._leads(at) or self._is_own_act(at)
        return word in _SENDING_VERBS and before not in _DETERMINERS

    def _leads(self, at: int) -> bool:
        """Return whether a word stands where a verb does."""
        if not at or (self.words[at - 1] in _LEADING and not self._is_told(at - 1)):
            return True
        return self.raw[at - 1][-1:] in _BREAKS

    def _is_told(self, at: int) -> bool:
        """Return whether ``you`` begins what is said of something (``everything you find``)."""
        before = self.words[at - 1] if at else ""
        own = not before or before in _MODAL | _LEADING or self.raw[at - 1][-1:] in _BREAKS
        return self.words[at] in _SPEAKERS and not own

    def _is_other_verb(self, at: int) -> bool:
        """Return whether a word is a verb that sends nothing."""
        if self.words[at] in _HANDLING:
            return self._leads(at)
        behind = self.words[at + 1] if at + 1 < len(self.words) else ""
        coordinated = at > 0 and self.words[at - 1] in _AND and not self.raw[at][:1].isupper()
        return coordinated and behind in _DETERMINERS and self.words[at] not in _SKIPPED

    def _creates(self, verb: int, preposition: int) -> bool:
        """Return whether what a verb makes is for somebody: a mail, a meeting, no list."""
        behind = self.words[verb + 1 : preposition]
        # ``Open the chat with …``: it is there.
        if behind[-1:] and behind[-1] in _ONWARDS:
            return True
        there = self.words[verb] in _OPENING and behind[:1] and behind[0] in _DEFINITE
        about = not (_ABOUT | _NOT_FOR).isdisjoint(behind)
        return not there and not about and not _CREATED.isdisjoint(behind)

    def _is_own_act(self, verb: int) -> bool:
        """Return whether the user asks for what a verb says: not ``pretend to send``."""
        known = self._is_asked_at.get(verb)
        if known is None:
            known = self._is_asked_at[verb] = is_asked_for(self.words, self.raw, verb)
        return known

    def _ends_clause(self, index: int, at: int) -> bool:
        """Return whether a word begins a clause of its own."""
        word = self.words[index]
        behind = self.words[index + 1] if index + 1 < len(self.words) else ""
        parted = index > 0 and self.raw[index - 1].endswith(",")
        if word in _SUBORDINATORS or (parted and word == "was"):
            return True
        if word in _BEFORE_CLAUSES or word == "than":
            return behind in _SUBJECTS or index + 1 == at
        if word not in _THAT:
            return False
        subject = behind in _SUBJECTS | _DETERMINERS | _NEGATIONS or index + 1 in self.typed
        name = self.raw[index + 1 : index + 2] and self.raw[index + 1][:1].isupper()
        return word != "that" or subject or bool(name) or behind.endswith(("s", "ed"))

    def _has_receiver(self, verb: int, preposition: int) -> bool:
        """Return whether a verb has its receiver before (``send Ann the list of mails to …``)."""
        words, at = self.words, verb + 1
        to = _RECEIVER_PREPOSITIONS | _ARTICLE_PREPOSITIONS | {"ad"}
        if at < preposition and words[at] in to:
            at += 1
        first = at
        while at < preposition and (self._is_person(at) or (words[at] in _AND and at > first)):
            at += 1
        if at == first and words[at : at + 1] and words[at] in _DETERMINERS:
            # ``Send my boss the list of …``
            at += 2
        named = first < at < preposition and self.raw[at - 1][-1:] not in _BREAKS
        joined = self.raw[preposition - 1][-1:] in _BREAKS or words[preposition - 1] in _AND
        if not named or joined:
            return False
        begins = words[at] in (_DETERMINERS | _WHATEVER | {"last"}) - _THAT
        person = self._is_person(first)
        return begins or (person and (words[first] in _ME or "of" in words[at:preposition]))

    def _is_person(self, at: int) -> bool:
        raw, word = self.raw[at], self.words[at]
        owner = word.endswith(("'s", "’s"))  # noqa: RUF001
        name = raw[:1].isupper() and "." not in word and not owner
        pronoun = word in _ME | _PRONOUNS and word not in _DETERMINERS
        return at in self.typed or name or pronoun

    def _is_parted(self, verb: int, at: int) -> bool:
        """Return whether a verb and a value behind it are parted by something about the value.

        ``Write a regex matching …``, ``email the company behind …``.
        """
        if self.words[at - 1] in {"on", "upon"}:
            return True
        for index in range(verb + 1, at):
            word = self.words[index]
            participle = word.endswith("ing") and self.words[index - 1] not in _DETERMINERS
            if participle or word in _APART or self._ends_clause(index, at):
                return True
        return False

    def _is_sought(self, preposition: int, at: int) -> bool:
        """Return whether a value is what is looked for, or where somebody logs in.

        Args:
            preposition: place of the word that would make it a receiver.
            at: its own place.
        """
        is_mail = "@" in self._texts.get(at, "")[1:]
        seeks = self.words[preposition] in _SEEKING_PREPOSITIONS
        for word in reversed(self.words[max(preposition - LOOK_BACK, 0) : preposition]):
            if (seeks and word in _SEARCH_VERBS) or (is_mail and word in _LOGIN_WORDS):
                return True
            if word in _AND or (word in _RECEIVER_VERBS and word not in _SEARCH_VERBS):
                return False
        return False

    def _replaces(self, verb: int, at: int) -> bool:
        """Return whether a value is to stand for one named before (``use … instead``)."""
        near = self.words[max(verb - 1, 0) : at + 3]
        return not _URL.fullmatch(self._texts[at]) and not _CONTRASTS.isdisjoint(near)

    def _is_posted(self, preposition: int) -> bool:
        """Return whether ``in`` or ``on`` belongs to a verb that puts something there."""
        for word in reversed(self.words[max(preposition - LOOK_BACK, 0) : preposition]):
            if word in _POSTING_VERBS:
                return True
            if word in _READ_VERBS or word in _PASSIVE or word in _BOUNDARIES:
                return False
        return False

    def _is_worked_on(self, at: int) -> bool:
        """Return whether a repository is the only one of a sentence that has it changed."""
        others = [text for text in self._texts.values() if _REPOSITORY.fullmatch(text)]
        if len(others) != 1 or not _REPOSITORY.fullmatch(self._texts[at]):
            return False
        return any(
            word in _CHANGING and self._leads(index) for index, word in enumerate(self.words)
        )

    def _is_passive(self, preposition: int) -> bool:
        """Return whether a preposition belongs to what has been done (``files shared with …``)."""
        words, apart = self.words, False
        for index in range(preposition - 1, max(preposition - LOOK_BACK, 0) - 1, -1):
            word, before = words[index], words[index - 1] if index else ""
            if word in _RECEIVER_VERBS and before not in _PAST:
                return False
            if words[index + 1] in _ME and word in _PASSIVE:
                # ``What Omar sent me`` is complete; what follows belongs to a verb before it.
                apart = True
            elif word in _PASSIVE and before not in _DETERMINERS and preposition - index <= NEAR:
                return before != "be"
            elif word.endswith("ed") and before in _PAST:
                return True
        return apart or self._is_perfect(preposition)

    def _is_perfect(self, preposition: int) -> bool:
        """Return whether the participle stands at the end (``habe … an … geschickt``)."""
        words = self.words
        behind = words[preposition + 1 :]
        for place, word in enumerate(behind):
            if word in _PASSIVE:
                # ``habe … an … geschickt``, ``an … geschickt wurde``
                if any(before in _PERFECT for before in words[:preposition]):
                    return True
                return any(after in _WAS for after in behind[place + 1 : place + 2])
        return False

    def _is_declared(self, at: int) -> bool:
        """Return whether a value is said to be somebody's address (``her address is …``)."""
        before = at - 1
        if before >= 0 and self.words[before] in _COPULAS:
            before -= 1
        elif before < 0 or not self.raw[before].endswith((":", "=")):
            return False
        is_url = _URL.fullmatch(self.raw[at].strip(_EDGES)) is not None
        if not _REPORTED.isdisjoint(self.words[at + 1 : at + 4]):
            # ``Dave's address is …, he says``
            return False
        if not is_url and not _REMEMBERS.isdisjoint(self.words[:3]):
            return True
        nouns = _DECLARED_NOUNS - _READ_WORDS if is_url else _DECLARED_NOUNS
        start = before if is_url else max(before - 3, 0)
        said = self.words[start : before + 1]
        around = (*self.words[max(before - 3, 0) : before + 1], *self.words[at + 1 : at + 6])
        # ``L'ancienne adresse``
        if any(word.rpartition("'")[2] in _NOT_CURRENT for word in around):
            return False
        # The number of an order is nobody's account.
        is_number = self._texts[at].replace(_JOINT, "").replace(" ", "").isdecimal()
        if is_number and not _NUMBERED_NOUNS.isdisjoint(said):
            return False
        return any(word in nouns for word in said)

    def _holds_address(self, at: int) -> bool:
        """Return whether somebody's address is said to stand on a page (``her e-mail is on …``)."""
        if not self.asserts and not self.raw[-1].endswith("?"):
            return False
        before = self.words[max(at - LOOK_BACK, 0) : at]
        return at < self._said_by_others and any(
            word in _ADDRESS_NOUNS and not _PLACE_PREPOSITIONS.isdisjoint(before[index:])
            for index, word in enumerate(before)
        )

    def owners(self) -> list[tuple[str, list[str]]]:
        """Return the URLs of pages of which it says whose they are, with the words of his name."""
        if not self.asserts or self.doubts:
            return []
        return [
            (page, name)
            for at in self.typed
            if not self._denied[at] and at < self._said_by_others
            for page in _page_of(self._texts[at])
            if (name := self._owner(at))
        ]

    def _owner(self, at: int) -> list[str]:
        """Return the name of whose page a URL is (``Dora's blog: …``, ``the site of Dora (…)``)."""
        end = at
        while end and (self.words[end - 1] in _PAGE_NOUNS or self.words[end - 1] in _COPULAS):
            end -= 1
        start = end
        while start and self.raw[start - 1][:1].isupper() and end - start < NAME_WORDS:
            start -= 1
        before = self.words[max(start - 3, 0) : at]
        linked = self.raw[at][:1] == "(" or not _PAGE_NOUNS.isdisjoint(before)
        return [_bare_name(raw) for raw in self.raw[start:end]] if linked else []

    def speaks_of_them(self) -> bool:
        """Return whether something is to go to whom it, or the sentence before, has named."""
        words = self.words
        for at in range(1, len(words)):
            verb, behind = words[at - 1], words[at + 1] if at + 1 < len(words) else ""
            if words[at] not in _PRONOUNS or self._denied[at] or at > self._said_by_others:
                continue
            if verb in _TAKES_PERSON or (self._gives(at - 1) and not self._is_passive(at - 1)):
                return True
            # ``Send them to …`` speaks of what is sent.
            if verb in _RECEIVER_VERBS and behind not in _RECEIVER_PREPOSITIONS:
                return True
        return False

    def _gives(self, at: int) -> bool:
        """Return whether a preposition takes a receiver: ``to``, or one behind a verb that does."""
        word = self.words[at]
        return word == "to" or (
            word in _RECEIVER_PREPOSITIONS and not _RECEIVER_VERBS.isdisjoint(self.words[:at])
        )

    def only_mailbox(self) -> tuple[str, ...]:
        """Return the value of the one mailbox in it, nothing where it says no good of it."""
        mails = [at for at, text in self._texts.items() if _MAIL.fullmatch(text)]
        if len(mails) != 1 or not self.asserts or self.doubts:
            return ()
        at = mails[0]
        return () if self._denied[at] or at > self._said_by_others else self.typed[at]

    def spoken_of(self) -> list[str]:
        """Return the names in it, of those that nobody else is reported to have named."""
        names: list[str] = []
        run: list[str] = []
        for at in range(min(len(self.words), self._said_by_others)):
            name = _bare_name(self.raw[at])
            if name[:1].isupper() and not self._denied[at] and len(name) > 1:
                run.append(name)
            else:
                names.extend(_runs(run))
                run = []
        return [*names, *_runs(run)][:MENTION_LIMIT]

    # --- names ---------------------------------------------------------------------------------

    def _name_channels(self, found: Mentions) -> None:
        """Take the names of channels, of those that something is to go to and of the others."""
        for at, word in enumerate(self.words[: self._said_by_others]):
            if word in _CHANNEL_NOUNS and at and not self._denied[at]:
                name, takes = self._name_before(at)
                kind = found.names if takes and self.asserts else found.places
                if name:
                    kind[handle_value(name)] = None
            elif word in _INBOX_NOUNS and not self._denied[at]:
                # ``Bob's inbox``, ``the link in Petra's mail``: where something to read stands.
                found.places.update((handle_value(name), None) for name in self.spoken_of())

    def _names(self) -> Iterator[str]:
        """Yield the names that stand where a receiver stands."""
        for at, word in enumerate(self.words[: self._said_by_others]):
            if self._denied[at] or word in _NEGATIONS:
                continue
            verb = word in _RECEIVER_VERBS and self._is_verb(at) and self._is_own_act(at)
            if verb or (
                word in _RECEIVER_PREPOSITIONS
                and not self._is_passive(at)
                and self._is_sending(at, at + 1)
            ):
                yield from self._names_behind(at + 1)

    def _names_behind(self, start: int) -> Iterator[str]:
        """Yield the list of names that begins at a place (``Bob, Alice and Carol Smith``)."""
        run: list[str] = []
        for at in range(start, min(start + LOOK_BACK, len(self.words))):
            raw, word = self.raw[at], self.words[at]
            capital = raw.strip(_EDGES)[:1].isupper() or raw[:1] in {'"', "#", "@"}
            if at in self.typed or (not capital and (word in _SKIPPED or word in _CHANNEL_NOUNS)):
                yield from _runs(run)
                run = []
            elif capital:
                run.append(_bare_name(raw))
                if raw[-1:] in {",", ";", ":"}:
                    yield from _runs(run)
                    run = []
                if raw[-1:] == ":":
                    break
            else:
                if at == start and self._stands_alone(at):
                    yield word
                break
        yield from _runs(run)

    def _stands_alone(self, at: int) -> bool:
        """Return whether a word in small letters may be a name: it belongs to nothing behind it."""
        word = self.words[at]
        if word in _NO_NAMES or len(word) < 3 or not word.isidentifier():  # noqa: PLR2004
            return False
        last = at + 1 >= len(self.words) or self.raw[at][-1:] in {",", ";", ":"}
        return last or self.words[at + 1] in _BEHIND_NAMES

    def _name_before(self, noun: int) -> tuple[str, bool]:
        """Return the name before ``channel``, and whether something is to go there."""
        run = [
            at
            for at in range(max(noun - 3, 0), noun)
            if self.words[at] and self.words[at] not in _NO_CHANNEL
        ]
        if not run or run[-1] != noun - 1:
            return "", False
        takes = False
        for at in range(noun - 2, max(noun - 5, 0) - 1, -1):
            if self.words[at] in _RECEIVER_PREPOSITIONS:
                takes = not self._is_passive(at)
                break
            if self.words[at] in _PLACE_PREPOSITIONS:
                takes = self._is_posted(at)
                break
        return self.raw[noun - 1].strip(_EDGES), takes


def _bare_name(raw: str) -> str:
    return raw.strip(_EDGES).removesuffix("'s").removesuffix("’s")  # noqa: RUF001


def _runs(run: list[str]) -> Iterator[str]:
    """Yield a name and its beginnings: ``Carol Smith about`` may be ``Carol Smith``."""
    run = [word for word in run if word and word.lower() not in _NO_NAMES]
    for length in range(1, min(len(run), NAME_WORDS) + 1):
        yield " ".join(run[:length])
