"""Whether a sentence of a prompt asks its reader to do something, told by its shape.  Pure: no I/O.

What takes a request back cannot be listed: there are too many ways to speak of one (``Carol would
send it to …``, ``search for send it to …``, ``send it to …, wrote Carol``).  So the shape of a
request is listed instead, and whatever has another shape asks for nothing:

* in front of the verb, up to where its clause begins, stands nothing but politeness, a time, or
  who wants whom to do it (``could you please``, ``I want you to``: :func:`is_asked_for`);
* the clauses before it are requests themselves, what the user says of himself or of a thing, or a
  time; no condition, and nobody else's act;
* behind the receiver stands what goes on about the request: further receivers, what is sent, a
  time, a reason, a courtesy, the next request (:func:`goes_on`).

What is not understood is no refusal: the prompt does not vouch, and the user is asked.
"""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

FRONT_WORDS: Final = 14
"""Words between the beginning of a clause and its verb."""
LED_WORDS: Final = 120
"""Words of a sentence before the clause of its request; behind more nothing is one."""
LED_CLAUSES: Final = 8
"""Clauses of a sentence before that one."""
LABEL_WORDS: Final = 2
"""Words in front of a colon that say what follows."""
APPOSITION_WORDS: Final = 6
"""Words in which somebody or something is called something else."""


def _word_groups() -> dict[str, frozenset[str]]:
    text = files("guard.provenance").joinpath("receiver_words.txt").read_text(encoding="utf-8")
    groups: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        head, _, words = ("", "", line) if line.startswith(" ") else line.partition(":")
        name = head or name
        groups.setdefault(name, []).extend(words.split())
    return {name: frozenset(words) for name, words in groups.items()}


WORDS: Final = _word_groups()
"""What words do in a sentence that names a receiver, by group."""
AND: Final = WORDS["and"]

_DAY: Final = (
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|morning|afternoon|evening|night|noon|midnight"
    r"|day|week|month|year|weekend|lunch|dinner|breakfast|work|hour|time|moment"
)
_TIME: Final = (
    r"(?:(?:tomorrow|today) (?:at \d[\d:.h]*(?: ?[ap]m)?|morning|afternoon|evening|night|noon)"
    r"|today|tomorrow|tonight|now|later|immediately|asap|afterwards|daily|weekly|monthly"
    rf"|(?:(?:on|at|by|in|until|till|before|after|from|around|every|each|next|this|early"
    rf"|first thing|end|of|the|late) )+(?:{_DAY}|tomorrow|today|eod|\d[\d:.h]*(?: ?[ap]m)?|o'clock)"
    r"(?: (?:at|on|in) (?:the )?[\w:.]*\d[\w:.]*| (?:morning|afternoon|evening|night))?"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|\d{1,2}(?:[:.h]\d\d)? ?[ap]m"
    r"|at \d[\d:.h]*(?: ?[ap]m)?"
    r"|(?:after|before) (?:the|my|our|this) (?:meeting|call|break|weekend)"
    r"|heute|morgen(?: früh)?|jetzt|gleich|sofort|am (?:\w+tag|mittwoch)|danach|anschließend"
    r"|aujourd'hui|demain(?: matin)?|maintenant|tout de suite|lundi|mardi|mercredi|jeudi|vendredi"
    r"|hoy|mañana|ahora|oggi|domani|adesso|subito|vandaag|nu|straks|meteen|hoje|amanhã|agora)"
)
_FILLER: Final = (
    r"please|pls|plz|kindly|just|also|then|and|so|ok|okay|k|yes|yep|yeah|sure|right away|right"
    r"|alright|all right|(?:that |this |it )?(?:looks|sounds) (?:good|great|fine)"
    r"|great|perfect|good|fine|nice|cool|super|thanks|thank you|thx"
    r"|(?:hey|hi|hello|dear)(?: there| claude| assistant| agent| bot| team| guys)?|finally"
    r"|first|second|third|next|lastly|last|quickly|quick one|simply|directly|always|again|oh|well"
    r"|actually|anyway|too|instead|rather"
    r"|after (?:that|this)|urgently|urgent|as well|btw|ps|p\.s|&|\+|[-–—*•#]+|\d{1,2}"  # noqa: RUF001 - as typed
    r"|as (?:usual|always|agreed|discussed|promised|before)|in (?:the meantime|addition|return)"
    r"|bitte|mal|doch|auch|dann|und|noch|kurz|hallo|danke|ja|wie (?:immer|besprochen)"
    r"|s'il (?:te|vous) plaît|svp|stp|et|puis|ensuite|aussi|bonjour|salut|merci|oui|alors"
    r"|por favor|y|luego|después|también|hola|gracias|sí|entonces"
    r"|per (?:favore|piacere|cortesia)|e|poi|quindi|anche|ciao|grazie|sì|allora"
    r"|alsjeblieft|alstublieft|a\.u\.b|aub|en|daarna|ook|dag|bedankt|graag|even"
    r"|se faz favor|depois|também|olá|obrigad[oa]|sim|então"
)
_DONE: Final = (
    r"(?:(?:once|when|after|as soon as) (?:(?:you|u)\b(?:'re|'ve| are| have)?"
    r"(?! (?:hear|get|got|receive|see|are|have|asked?|been|know|think|notice)\w*)(?: \w+)?"
    r"|(?:that|this|it|everything|all|they)(?:'s| is| are| has been| have been)?"
    r" (?:done|ready|finished|completed?|there|printed|translated))(?: with (?:that|this|it))?"
    r"|wenn (?:du|das|es|alles) (?:damit )?fertig (?:bist|ist)|quand (?:tu as|vous avez|c'est)"
    r" (?:fini|terminé|prêt)|cuando (?:termines|acabes|esté listo)|quando hai (?:finito|terminato)"
    r"|als (?:je|het) klaar (?:bent|is)|quando (?:terminar|acabar|estiver pronto))"
)
_WISH: Final = (
    r"(?:can|could|would|will|won't) (?:you|u|we)|can i (?:get|ask) you to"
    r"|(?:i|we)(?:'d| would)? (?:want|need|like|love|wish|prefer|ask|expect) (?:(?:you|u) )?to"
    r"|(?:i|we) (?:have(?: got)?|ought) to|(?:i|we|you) (?:must|should)|(?:i've|we've) got to"
    r"|(?:you|u)(?:'ll| will)? (?:can|have to|need to|are to|should|must)"
    r"|let's|let us|lets|go ahead|(?:feel free|try|remember|be sure|make sure|be so kind) (?:as )?"
    r"to|(?:make|be) sure(?: that)? (?:you|to)|(?:do not|don't|dont|never) (?:forget|hesitate|fail)"
    r" to|help (?:me|us)(?: to)?|do me a favou?r|(?:do you |would you )?mind"
    r"|would you be so kind(?: as)?"
    r"|(?:your|the|my) (?:task|job|goal|request|next step) (?:is|was) to|(?:it is|it's )?time to"
    r"|(?:it would|it'd) be (?:great|nice|good|lovely|helpful|kind|awesome|perfect)"
    r"(?: of you| for you)?(?: if (?:you|u)(?: could| can| would)?)?"
    r"|(?:i'd|i would|we'd) (?:appreciate it|be grateful|be glad) if you(?: could| can| would)?"
    r"|i(?:'m| am| was) (?:wondering|hoping)(?: if| whether)? (?:you|u) (?:could|can|would)"
    r"|would it be possible|is it possible|if (?:you|u) (?:can|could|would)"
    r"|if (?:possible|necessary)"
    rf"|{_DONE}"
    r"|kannst du|könntest du|können sie|könnten sie|würdest du|würden sie|(?:ich|wir) "
    r"(?:möchten?|will|wollen|muss|müssen|sollte|würde gerne?|bitte dich)|dass (?:du|sie)"
    r"|(?:du|sie) (?:sollst|sollen|musst|müssen|kannst|können)"
    r"|vergiss nicht|denk daran|zu|lass uns"
    r"|peux-tu|peux tu|tu peux|pouvez-vous|pouvez vous|pourrais-tu|pourriez-vous|veuillez"
    r"|merci d[e']"
    r"|il faut(?: que (?:tu|vous))?|(?:tu dois|vous devez|je dois|on doit|nous devons)"
    r"|(?:je (?:veux|voudrais|souhaite)|j'aimerais)(?: que (?:tu|vous))?|n'oubli(?:e|ez) pas d[e']"
    r"|pens(?:e|ez) à"
    r"|(?:me )?puedes|(?:me )?podrías|puede|podría|(?:quiero|quisiera|necesito|me gustaría)"
    r"(?: que)?"
    r"|debo|tengo que|tienes que|hay que|debemos|no (?:te )?olvides(?: de)?"
    r"|(?:mi )?puoi|(?:mi )?potresti|può|potrebbe|(?:vorrei|voglio)(?: che tu)?|devo|devi|bisogna"
    r"|ricorda(?:ti)? di|non dimenticare di"
    r"|kun je|kan je|kunt u|zou je|zou u|wil je|wilt u|(?:ik wil|ik moet|je moet|we moeten)|dat je"
    r"|vergeet niet(?: om)?|om"
    r"|(?:você )?pode|podes|poderia|poderias|(?:quero|queria|preciso|gostaria)(?: que| de)?"
    r"|tenho (?:que|de)|não (?:se )?esqueça de"
)
OWN_TIME: Final = re.compile(rf"{_DONE}\b")
"""When somebody is to do the next thing who has done the one before: no condition."""
_FRAME: Final = re.compile(rf"(?:(?:{_WISH}|{_TIME}|{_FILLER})(?:\s|$))*+")
"""What may stand between the beginning of a clause and the verb of a request."""
_BEGINS_REQUEST: Final = re.compile(rf"(?:(?:{_TIME}|{_FILLER})\s)*+(?:{_WISH})\s")
_BEGINS_LIGHTLY: Final = re.compile(rf"(?:(?:{_TIME}|{_FILLER})(?:\s|$))*+")
_OCCASION: Final = re.compile(
    r"(?:for|für|pour|para|per|voor) (?:the|our|my|this|das|die|den|unser\w*|le|la|notre|mi|el|il"
    r"|het|de|o|a) [\w'-]+(?: [\w'-]+){0,2}"
)
"""What a request is for, in front of it."""
_TASKS: Final = re.compile(
    r"(?:(?:please|pls|now|my|your|the|new|next|so|here) )*(?:(?:do|perform|complete|carry out) )?"
    r"(?:(?:are|is|the|these|all|of|following|my|your|new) )*"
    r"(?:tasks?|to-?dos?|to do|steps?|things?|next|then|request|jobs?|following|do this|reminder"
    r"|important|urgent|also|please|aufgaben?|schritte|tâches?|tareas?|compit[io]|ta(?:ak|ken)"
    r"|tarefas?|plan|(?:one|a|another) (?:(?:more|last|final|quick|small|other) )*(?:thing|request"
    r"|favou?r|question)|same (?:thing|procedure|as)(?: as)? (?:last|every|each) \w+)"
    r"(?: (?:for you|for today|today|in (?:the|this) order)(?: (?:they are )?given)?)?"
)
"""What introduces a request in front of a colon."""

_MARKS: Final = (",", ";", ":", "-", "–", "—", "…", "/", "(", ")")  # noqa: RUF001 - as typed
_OWN: Final = frozenset(
    {"i", "we", "i'm", "we're", "i've", "we've", "i'll", "we'll", "i'd", "we'd", "ich", "wir", "je"}
    | {"j'ai", "nous", "yo", "nosotros", "io", "noi", "ho", "ik", "wij", "eu", "nós"}
)
_OWN_STATES: Final = re.compile(
    r"(?:i|we)(?:'m|'ve|'ll|'re)\b(?! (?:told|asked|ordered|quoting|not sure|kidding|joking))"
    r"|(?:i|we) (?:am|are|will|need|want|have|promised|owe|can|can't|cannot|forgot|already|just"
    r"|agreed|paid|owe|think (?:he|she|they)|know|like|really|still|also|only"
    r"|don't (?:want|need|have))\b"
)
_STATES: Final = re.compile(
    r"(?:it|he|she|they|that|this)(?:'s|'ll|'re)\b|(?:it|he|she|they|that|this|its|ils?|elles?|er|es"
    r"|sie) "
    r"(?:is|are|has|have|needs?|will|can|does|paid|pays|works|lives|knows|likes|handles|manages|runs"
    r"|takes|loves|wants|sent|looks|expects|waits|should|must|gets|got|est"
    r"|sont|a|ist|sind|hat|braucht)\b"
)
_OPENING_WORDS: Final = (
    WORDS["receiver_prepositions"]
    | WORDS["source_words"]
    | WORDS["place_prepositions"]
    | WORDS["continuing"]
    | WORDS["numbers"]
)
_FIELDS: Final = WORDS["fields"]
_ASKED: Final = (
    WORDS["receiver_verbs"]
    | WORDS["posting_verbs"]
    | WORDS["creating_verbs"]
    | WORDS["meeting_verbs"]
    | WORDS["giving_verbs"]
    | WORDS["use_verbs"]
    | WORDS["remembers"]
    | WORDS["clause_ends"]
    | WORDS["final_verbs"]
)
_IMPERATIVE: Final = (
    _ASKED
    | WORDS["handling_verbs"]
    | WORDS["making_verbs"]
    | WORDS["read_words"]
    | WORDS["search_verbs"]
    | WORDS["preparing_verbs"]
) - WORDS["place_prepositions"]
_CONTINUES: Final = _OPENING_WORDS | _FIELDS | _ASKED
_TELLS: Final = WORDS["reported"] | WORDS["reporting"]
_SUBJECT_TO: Final = (["subject", "to"], ["as", "soon"], ["no", "thanks"], ["no", "way"])
_TEXTS: Final = WORDS["texts"]
"""What is no receiver, but what somebody says or writes."""
_CLAUSAL: Final = WORDS["subordinators"] | WORDS["conditions"] | WORDS["reporting"]
_PERSONAL: Final = WORDS["determiners"] | WORDS["pronouns"] | {"me", "us", "it", "all", "both"}
_FINITE: Final = frozenset({"must", "should", "goes", "is", "was", "were", "has", "had", "sounds"})
_CLAUSE_SIGNS: Final = WORDS["subjects"] | WORDS["subordinators"] | {"that", "so", "as", "if"}
_SPOKEN_TEXTS: Final = frozenset(
    {"words", "word", "order", "orders", "note", "sentence", "line", "phrase", "quote", "voice"}
    | {"instruction", "instructions", "slogan", "sign", "read", "reads", "printed", "written"}
)
_PLEASE: Final = WORDS["please"]
_SAID_ELSEWHERE: Final = (
    WORDS["conditions"] | WORDS["no_act"] | WORDS["reported"] | WORDS["consent"]
) - (WORDS["source_words"] | WORDS["receiver_prepositions"])
"""What makes a clause a condition, somebody else's words, or nothing that was done."""
_EMBEDS: Final = WORDS["subordinators"] - {"who", "called", "named", "titled", "which", "that"}
_NOT_BASE: Final = ("s", "ed", "ing", "ly")
"""How no English imperative ends that is not listed."""


def is_asked_for(words: Sequence[str], raw: Sequence[str], verb: int) -> bool:
    """Return whether a verb stands where a request has it.

    Args:
        words: the words of a sentence, small and without the signs around them.
        raw: the same words as typed.
        verb: place of the verb.
    """
    start = verb
    while start and not _ends_piece(words, raw, start - 1):
        start -= 1
    if verb - start > FRONT_WORDS or not _FRAME.fullmatch(" ".join(words[start:verb])):
        return False
    return not start or _is_led_to(words, raw, start, polite=_is_polite(words[start:verb]))


def _is_polite(front: Sequence[str]) -> bool:
    """Return whether a clause says by itself that it asks for something."""
    return not _PLEASE.isdisjoint(front) or bool(_BEGINS_REQUEST.match(" ".join((*front, ""))))


def _ends_piece(words: Sequence[str], raw: Sequence[str], at: int) -> bool:
    return raw[at].endswith(_MARKS) or words[at] in AND


def _is_led_to(words: Sequence[str], raw: Sequence[str], end: int, *, polite: bool) -> bool:
    """Return whether the clauses before a place leave what follows a request."""
    start, first = 0, True
    if end > LED_WORDS:
        return False
    pieces = 0
    for at in range(end):
        if not _ends_piece(words, raw, at):
            continue
        pieces += 1
        if pieces > LED_CLAUSES:
            return False
        joined = words[at] in AND
        piece = words[start : at if joined else at + 1]
        text = " ".join(filter(None, piece))
        if raw[at].endswith(":") and at == end - 1:
            return _TASKS.fullmatch(text) is not None or _FRAME.fullmatch(text) is not None
        start = at + 1
        if not text or _FRAME.fullmatch(text) or (_OCCASION.fullmatch(text) and not joined):
            continue
        if first:
            begin = start - len(piece) - joined
            told = _is_told_before(piece) and polite and not joined
            if not (told or _is_first_clause(raw, begin, piece, joined=joined)):
                return False
        if not first and _CLAUSAL.intersection(piece[:1]):
            return False
        first = False
    return True


def _is_told_before(piece: Sequence[str]) -> bool:
    """Return whether a clause may be something that the user says before he asks."""
    return _SAID_ELSEWHERE.isdisjoint(piece) and piece[0] not in WORDS["unsure"]


def _is_first_clause(raw: Sequence[str], start: int, piece: Sequence[str], *, joined: bool) -> bool:
    """Return whether a sentence begins as a request, or with what the user says before it."""
    text = " ".join(piece)
    if _BEGINS_REQUEST.match(f"{text} "):
        return True
    lead = _BEGINS_LIGHTLY.match(text)
    at = len(text[: lead.end()].split()) if lead else 0
    head, behind = piece[at : at + 1], piece[at + 1 : at + 2]
    if not head:
        return True
    if head[0] in WORDS["unsure"]:
        return False
    if head[0] in WORDS["reasons"]:
        head, behind = behind, []
        return not joined and bool(head) and _SAID_ELSEWHERE.isdisjoint(piece)
    if _is_imperative(head[0], behind, raw[start + at]):
        return not (joined and _has_infinitive(piece[at + 1 :]))
    says = head[0] in _OWN | WORDS["determiners"] or bool(_STATES.match(text))
    named = raw[start + at][:1].isupper() and len(piece) == at + 1
    text_of_it = not _SPOKEN_TEXTS.isdisjoint(piece)
    return not joined and (named or (says and not text_of_it and _SAID_ELSEWHERE.isdisjoint(piece)))


def _is_imperative(word: str, behind: Sequence[str], raw: str) -> bool:
    if word in _IMPERATIVE:
        return True
    if word in _CLAUSAL | _PERSONAL | WORDS["unsure"] or word in WORDS["before_clauses"]:
        return False
    takes = bool(behind) and (behind[0] in _PERSONAL or "@" in behind[0])
    return takes and raw.isascii() and not word.endswith(_NOT_BASE) and word.isalpha()


def _has_infinitive(piece: Sequence[str]) -> bool:
    """Return whether a clause has another verb in it that what follows may belong to."""
    return any(
        (word in {"to", "zu", "te"} and behind in _IMPERATIVE) or word in _EMBEDS
        for word, behind in pairwise(piece)
    )


def is_polite_if(words: Sequence[str], at: int) -> bool:
    """Return whether ``if`` begins no condition (``it would be great if you could …``)."""
    return words[at - 1] in WORDS["polite"] and words[at + 1 : at + 2] in (["you"], ["u"])


def goes_on(
    words: Sequence[str],
    raw: Sequence[str],
    at: int,
    typed: Container[int],
    known: dict[int, bool],
    *,
    direct: bool,
) -> bool:
    """Return whether all that stands behind a receiver goes on about the request.

    Args:
        words: the words of a sentence, small and without the signs around them.
        raw: the same words as typed.
        at: place of the receiver.
        typed: places at which an address stands.
        known: what was found before of the parts of this sentence, by where they begin.
        direct: whether the receiver is the object of its verb: what is sent may stand behind.
    """
    start = at + 1
    # An address in brackets belongs to the name before it.
    parted = raw[at].endswith(_MARKS[:-1] if raw[at].startswith("(") else _MARKS) or "".join(
        raw[start : start + 1]
    ).startswith("(")
    result = True
    read: list[int] = []
    if raw[at].endswith(":"):
        return True
    while result and start < len(words):
        if parted and start in known:
            result = known[start]
            break
        end = _end_of_part(raw, start)
        free = direct and not parted
        result = free or _is_about_it(words, raw, start, end, typed, parted=parted)
        read += [start] if parted else []
        if raw[end - 1].endswith(":"):
            break
        start, parted = end, True
    known.update(dict.fromkeys(read, result))
    return result


def _says(part: Sequence[str]) -> bool:
    """Return whether a part that begins as a place or a time is a statement about the words."""
    finite = next((at for at, word in enumerate(part) if word in _FINITE), len(part))
    return (
        finite < len(part)
        and part[0] in WORDS["place_prepositions"] | WORDS["source_words"]
        and _CLAUSE_SIGNS.isdisjoint(part[:finite])
    )


def _end_of_part(raw: Sequence[str], start: int) -> int:
    for at in range(start, len(raw) - 1):
        if raw[at].endswith(_MARKS) or raw[at + 1].startswith("("):
            return at + 1
    return len(raw)


def _is_about_it(
    words: Sequence[str],
    raw: Sequence[str],
    start: int,
    end: int,
    typed: Container[int],
    *,
    parted: bool,
) -> bool:
    """Return whether one part of a sentence goes on about a request."""
    part = [word for word in words[start:end] if word]
    text = " ".join(part)
    if _FRAME.fullmatch(text):
        return True
    lead = _BEGINS_LIGHTLY.match(text)
    skipped = len(text[: lead.end()].split()) if lead else 0
    joined = not AND.isdisjoint(part[:skipped])
    part = part[skipped:]
    if not WORDS["consent"].isdisjoint(part) or part[:2] in _SUBJECT_TO or _says(part):
        return False
    place = end - len(part)
    if place in typed or _OWN_STATES.match(" ".join(part)):
        return True
    named = raw[place].lstrip("(\"'")[:1].isupper() or part[0] in WORDS["determiners"]
    if words[place - 1] == "so":
        # ``… so that she can …``, but ``…, so the caller``
        return not named or part[0] in WORDS["subjects"] | {"that", "dass"}
    label = raw[end - 1].endswith(":") and len(part) <= LABEL_WORDS
    return label or _adds(part, parted=parted, joined=joined, named=named)


def _adds(part: Sequence[str], *, parted: bool, joined: bool, named: bool) -> bool:
    """Return whether a part adds to a request: what, when, why, for whom, or the next one."""
    head, told = part[0], not _TELLS.isdisjoint(part)
    spoken = told or not _TEXTS.isdisjoint(part)
    if parted and _STATES.match(" ".join(part)):
        return not spoken
    if parted and not joined and head in _TEXTS - _FIELDS:
        return False
    if head in _CONTINUES or head[0].isdigit() or head[0] in "€$£#@\"'":
        return True
    if head.endswith("ing"):
        return not told
    if named:
        return not spoken and (joined or not parted or len(part) <= APPOSITION_WORDS)
    return joined and not told and head not in WORDS["unsure"]


_MODALS: Final = WORDS["modals"]
_THAT: Final = frozenset({"dass", "daß", "dat"})
_SPEAKING: Final = frozenset({"ich", "wir", "du", "ik", "we", "wij", "je", "jij", "u"})
_NOT_AT_END: Final = WORDS["subordinators"] | WORDS["no_act"] | WORDS["consent"]
_REMINDS: Final = WORDS["reminds"]


def is_asked_for_at_end(words: Sequence[str], raw: Sequence[str], preposition: int) -> bool:
    """Return whether a verb at the end of its clause is asked for (``kannst du … schicken``).

    Args:
        words: the words of a sentence, small and without the signs around them.
        raw: the same words as typed.
        preposition: place of the word before the receiver.
    """
    before = words[:preposition]
    if not _NOT_AT_END.isdisjoint(before):
        return False
    start = preposition
    while start and not (_ends_piece(words, raw, start - 1) and words[start] not in _THAT):
        start -= 1
    for at, word in enumerate(before[start:], start):
        if word in _MODALS:
            beside = {*before[max(at - 1, 0) : at], *words[at + 1 : at + 2]}
            if _SPEAKING.isdisjoint(beside) and raw[at + 1 : at + 2] != ["Sie"]:
                return False
    if not {"zu", "te"}.isdisjoint(words[preposition:]) and _REMINDS.isdisjoint(before):
        return False
    return not start or _is_led_to(words, raw, start, polite=_is_polite(before[start:]))
