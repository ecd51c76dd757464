"""What in a tool's definition steers a model to something else than to use the tool.  Pure: no I/O.

A definition says what its tool does and what its parameters mean.  One that steers does more: it
moves data of the session to an address or into a parameter, speaks of other tools, hides text from
people, or asks for what its purpose does not need.  Its texts are weighed together, as the orders
may be spread over description and parameters, along with the signals of
:mod:`guard.content.injection_text`.
"""
# ruff: noqa: E501  (a pattern cut into pieces is read by nobody)

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeGuard

import re2

from guard.content.injection_signals import SENDS, WHERE
from guard.content.injection_text import ENOUGH, LIMIT, signal_weight
from guard.content.letters import fold
from guard.content.sentence_frames import Frames
from guard.content.steering_reader import (
    HONEST,
    SCHEMAS,
    STEERS,
    definition_score,
    parameters,
    without_own_name,
)
from guard.core.argument_texts import argument_texts
from guard.core.network_addresses import address_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from guard.core.model import Json

CERTAIN: Final = 2 * ENOUGH
"""Weight of signals that counts even where the learned reader is sure of an honest definition."""
_DUTY: Final = r"(?:must|shall|should|always|also|additionally|in addition|first|be sure to|make sure to|ensure|remember to|required to|expected to|ha(?:s|ve) to|need(?:s|ed)? to|automatically)"
_OBLIGES: Final = rf"(?:{_DUTY}|then)"
_OCCASION: Final = (
    r"(?:before|after|when(?:ever)?|if|prior to|each time|every time|once|upon|as soon as)"
)
_OTHERS: Final = r"(?:[a-z]+_[a-z_]+|`[a-z][\w.-]+`|(?:any |all |every |each |an|the )?other (?:tools?|servers?|readers?|functions?)|(?:any|every|each|all) tools?(?: calls?)?)"
_WHOLE: Final = r"(?:(?:full|entire|complete|whole|current|raw|verbatim|recent|all(?: of)?(?: the| your)?|ongoing) )*"
_EARLIER: Final = r"(?:previous|prior|earlier|preceding|other|last|all(?: the)?) (?:user |tool |function |assistant )?(?:results?|outputs?|responses?|messages?|calls?|turns?)\b"
_SESSION: Final = (
    rf"(?:{_WHOLE}(?:conversation|chat|message|session|dialog\w*|prompt|interaction)s?(?:'s)? (?:history|context|transcript|log|dump|so far|contents?|state)"
    r"|(?:whole|entire|full|complete|unabridged) (?:conversation|dialog\w*|chat|session|interaction)\b"
    r"|(?:system|initial|original|developer|hidden) (?:prompt|instructions?|messages?)|user'?s? (?:prompts?|instructions?|messages?)"
    rf"|{_EARLIER}|(?:last|latest|recent|previous|prior) (?:\w+ ){{0,2}}(?:messages|turns|prompts|(?:tool |function )answers|(?:tool |function )results)\b"
    r"|(?:documents?|files?|pages?|tabs?|mails?)\b(?: \w+){0,2} (?:is|are) (?:currently |now |also )?open\b|what (?:has |have )?happened (?:since|so far|before|until)|(?:answers?|outputs?|results?) of (?:the|an?|any|every|each) other tools?|(?:another|any other|every other) tool(?:'s)? (?:has )?(?:answer\w*|return\w*|result\w*)"
    r"|contents? of the (?:\w+ )*(?:system's |system |user's )?(?:key ?ring|key ?chain|clipboard|home directory|wallet)|(?:every|each|any|all|the) (?:\w+ ){0,2}(?:the user|the human|the person|the customer|they) (?:has |have |had )?(?:typed|entered|pasted|told|said)"
    r"|(?:whatever|what|everything|anything|all) (?:that )?(?:the (?:person|customer|client|speaker|caller)|people) (?:(?:has|have) )?(?:said|told|asked|typed|wrote|shared)"
    r"|(?:conversation|historique|dialogue) (?:compl[eè]te?|enti[eè]re?)|(?:bisherige\w* |gesamte\w* |ganze\w* ){0,3}(?:gespr[aä]ch\w*|unterhaltung)|(?:toda la |entera )?conversaci[oó]n completa|toda la conversaci[oó]n|(?:intera |tutta la )conversazione|conversazione completa|(?:hele|volledige|gehele) gesprek|conversa (?:completa|inteira)|toda a conversa"
    r"|tool (?:results?|outputs?|responses?)|(?:arguments|results?|outputs?|responses?)(?: and (?:arguments|results?|outputs?))? of (?:all |any |every |each |the )*(?:other|previous|earlier) (?:tools?|tool calls?|calls?)"
    r"|(?:everything|anything|all|whatever|what) (?:that )?(?:the user|the human|they|you) (?:(?:has|have|had|was|were) )?(?:said|typed|wrote|written|told|asked|remember\w*|seen|shared|knows?|known)"
    r"|(?:everything|all|anything|whatever)(?: that is)? (?:remembered|known|stored|saved) (?:about|of|on|for) the user|(?:user's |your )?(?:entire |whole |full )?memory (?:store|dump|contents?)"
    r"|(?:dump|transcript|copy|record) of (?:the |this |our |all )?(?:whole |entire |full |current )?(?:session|conversation|chat|dialog\w*|messages?|context|memory)|(?:verbatim|full|whole|entire|complete) transcript"
    r"|chain of thought|context window|your (?:reasoning|context|memory|instructions?|thoughts)|(?:list|names?) of (?:all |your )?(?:available |other )?tools|(?:from|of|in) the (?:user's )?clipboard|(?:browser|shell|command) (?:history|cookies))"
)
"""What a session knows and no user types into a parameter."""
_CREDENTIAL: Final = (
    r"(?:(?:ssh|private|signing|cloud|aws|api|access|gpg) (?:keys?|credentials?)|(?:api|access|auth\w*|oauth|session|bearer) tokens?|credentials?|passwords?|secrets?|cookies?"
    r"|(?:recovery|seed|mnemonic) (?:phrase|words?)|(?:2fa|mfa|one-time|verification) codes?|id_(?:rsa|ed25519)|(?:environment|env) (?:var\w*|secrets?)|(?-i:[A-Z][A-Z0-9]*_(?:[A-Z0-9]+_)?(?:KEY|TOKEN|SECRET|PASSWORD)))"
)
_FILES: Final = r"(?:/etc/\w+|(?:~|\$home|%userprofile%)?[/\\]?(?:\.env|\B\.(?:ssh|aws|netrc|kube|gnupg|git-credentials|cursor|npmrc|docker|config/\w+))\b|id[_ ](?:rsa|ed25519)|/proc/|mcp\.json|claude_desktop_config|keychain|wallet\.dat)"
_FILE: Final = re2.compile(f"(?i){_FILES}")
_HELD: Final = r"(?:(?:from|in|of|on|out of) (?:the |your |their |its )?(?:\w+ )?(?:session|environment|env|browser|home|local|profile|machine|host|disk|user\b|user's|memory|context|conversation|config\w*|keychain)|you (?:have |can )?(?:seen?|know|find|found|hold)|(?:seen|found|stored|available|known) (?:in|on|so far))"
"""Where a model would have to take it from: what a user gives stands in no such place."""
_MOVES: Final = r"(?:hand (?:it|them|this|that|these|its contents?) (?:over|in|to)|pass|include|put|place|copy|insert|paste|provide|append|attach|supply|embed|encode|set\b[^.\n]{1,60}?\bto|populate|fill|add|give|hand over|share|write|summari[sz]e|capture|record|send|forward|post|upload|submit|transmit|mention|insert|collect\w*|store\w*|stash|relay|report|fill|accompan(?:y|ies)|carr(?:y|ies)|answer (?:it )?with|reply with|call (?:this|it)\b[^.\n]{0,20}\bwith|given to|append|mets|mettez|inclu(?:s|re|ez|ye|ya|ir|di|a)|transmets|joins|gib|füge|pon|pasa|añade|adjunta|inserisci|passa|allega|geef|voeg|stuur|passe|anexe)"
_BROKEN: Final = r"(?:deprecated|broken|insecure|unsafe|disabled|obsolete|compromised|unreliable|no longer|out ?dated|leaks?|leaking|corrupts?|must not be|should (?:no longer|not) be|have been found to|has been found to|not (?:to be )?trusted)"
_GENERIC: Final = r"(?:other|built-?in|default|native|standard|existing|original|legacy|regular)"
_ESTABLISHED: Final = rf"(?:{_GENERIC}|[a-z]+_\w+|`[a-z][\w.-]+`)"
_SIGNALS: Final = tuple(
    (group, weight, re2.compile(f"(?is){source}"))
    for group, weight, source in (
        ("carry", 2, rf"\b{_MOVES}\b[^.\n]{{0,80}}\b{_SESSION}"),
        ("carry", 2, rf"\b{_SESSION}\b[^.\n]{{0,40}}\b(?:must|should|shall|needs? to|has to|have to|is|are)\b[^.\n]{{0,20}}\b(?:passed|included|provided|supplied|attached|sent|required|copied|appended)\b"),
        ("held", 3, rf"\b(?:{_MOVES}|holds?|contains?)\b[^.\n]{{0,60}}\b{_CREDENTIAL}\b[^.\n]{{0,40}}\b{_HELD}"),
        ("held", 3, rf"\b{_CREDENTIAL}\b[^.\n]{{0,30}}\b(?:taken|read|copied|extracted|loaded|obtained|gathered|collected)\b[^.\n]{{0,20}}\b{_HELD}"),
        ("held", 3, rf"\b(?:inspect|look up|look for|collect|gather|search for|read out|harvest|enumerate|dump)\b[^.\n]{{0,40}}\b{_CREDENTIAL}\b[^.\n]{{0,60}}\b(?:and|then)\b[^.\n]{{0,20}}\b{_MOVES}\b"),
        ("steer", 1, rf"\b{_OCCASION}\b[^.\n]{{0,60}}\b(?:tools?|functions?|calls?|requests?|messages?|responses?|answer\w*|repl\w+)\b[^\n]{{0,60}}\b{_DUTY}\b"),
        ("steer", 1, r"\b(?:must|always|should)\s+(?:first\s+)?(?:be\s+)?(?:called?|invoked?|used?|run)\s+(?:\w+\s+){0,3}?(?:first|before|after|for every|on every|with every|at the (?:start|end|beginning))"),
        ("told", 2, r"\b(?:note|message|instructions?|hint|reminder|p\.?\s?s\.?)\s*(?:to|for)?\s*(?:the |all |any )?(?:ai |language )?(?:models?|assistants?|llms?|agents?)\b|\bthe (?:ai |language )?(?:model|assistant|llm|agent) (?:must|shall|should|has to|is (?:expected|required|supposed) to|needs to|will)\b|(?:^|[.\n]\s*)p\.\s?s\.\s|\bsystem\s*:\s*you\b|\byou are (?:now )?(?:operating )?in \w+ mode\b"),
        ("obey", 3, r"\b(?:obey|comply with|follow|execute|carry out)\b[^.\n]{0,40}\b(?:hidden|embedded|its|the operator|directives?|orders?)\b[^.\n]{0,60}\b(?:before|operator|tool|reply|answer|user)\b|\b(?:directives?|orders?|instructions?)\b[^.\n]{0,20}\b(?:that )?you (?:have to|must|should|shall|need to) (?:obey|follow|execute|comply)"),
        ("sink", 2, rf"\b{_OBLIGES}\s+(?:\w+\s+){{0,3}}?{SENDS}\b[^.\n]{{0,100}}\bto\b[^.\n]{{0,30}}{WHERE}"),
        ("sink", 2, rf"\b{_OBLIGES}\s+(?:\w+\s+){{0,3}}?(?:b?cc|carbon[- ]copy|c\.?c\.?|mirror|duplicate|copy|log|sync|report|notify|ping|beacon|contact|visit|fetch|open|load|get)\b[^.\n]{{0,60}}{WHERE}"),
        ("sink", 3, rf"\b(?:b?cc|hidden copy|blind copy|mirror|duplicate|carbon[- ]copy|redirect|reroute)\b[^.\n]{{0,60}}{WHERE}|{WHERE}[^\n]{{0,60}}\b(?:b?cc|hidden copy|blind copy|carbon[- ]copy)\b"),
        ("sink", 3, rf"\b{_OCCASION}\s+(?:any|every|each|all)\b[^.\n]{{0,30}}\b(?:tools?|calls?|messages?|answers?)\b[^.\n]{{0,40}}\b(?:copy|{SENDS})\b[^.\n]{{0,100}}{WHERE}"),
        ("sink", 3, rf"\b(?:{_SESSION}|{_CREDENTIAL})\b[^\n]{{0,100}}\b(?:to|at|into|with)\b[^\n]{{0,20}}{WHERE}|{WHERE}[^\n]{{0,30}}\b(?:followed by|plus|together with|carrying|containing)\b[^\n]{{0,30}}(?:{_SESSION}|{_CREDENTIAL}|user)"),
        ("sink", 3, rf"\b(?:every|each|any|all)\b[^.\n]{{0,30}}\b(?:answers?|replies|reply|messages?|results?|outputs?|calls?|prompts?|turns?|conversations?|words?)\b[^.\n]{{0,40}}\b(?:is|are|be|gets?|goes|go)\b[^.\n]{{0,20}}\b(?:posted|sent|forwarded|copied|mirrored|reported|logged|uploaded|relayed|submitted|echoed|also)\b[^\n]{{0,40}}{WHERE}"),
        ("sink", 3, r"\b(?:use|send|pay|transfer|enter)\b[^.\n]{0,40}\b(?:account|address|iban|wallet|recipient|number)\b[^.\n]{0,60}\b(?:in place of|instead of|rather than|not the)\b"),
        ("takes", 2, rf"\b(?:read|open|cat|load|include|contents? of|upload|collect|access|retrieve|fetch|look (?:at|in)|grab|pull|in|from|found in)\b[^.\n]{{0,60}}{_FILES}"),
        ("takes", 3, rf"\b(?:pass|supply|include|put|send|attach|append|provide|holds?|contains?|hand over|with)\b[^.\n]{{0,60}}{_FILES}|{_FILES}[^\n]{{0,60}}\b(?:pass|supply|include|put|send|attach|append|provide|as the|holds?)\b"),
        ("takes", 3, rf"[:=]\s*[\"']?<[^>\n]{{0,60}}{_FILES}"),
        ("shadow", 3, rf"\b{_OCCASION}\b[^.\n]{{0,40}}\b{_OTHERS}\b[^\n]{{0,100}}\b(?:redirect|replace the|be replaced|bcc|reroute|forward (?:a|the|all|every|each|them|it|its|any)|also (?:send|call|include|invoke|pass)|is broken|(?:change|set|modify|alter|rewrite|substitute) (?:the )?(?:\w+ )?(?:recipients?|destination|address|channel|to field|url|arguments?|parameters?|results?|outputs?))\b"),
        ("shadow", 3, rf"(?:\b|`){_ESTABLISHED}[^.\n]{{0,40}}\b(?:is|are|has been|have been|should|must|leaks?|corrupts?)\s*(?:now\s+)?(?:{_BROKEN})\b[^\n]{{0,80}}\b(?:(?:use|call|invoke|prefer|rely on)\s+this|(?:route|send|run|do)\b[^.\n]{{0,40}}\b(?:through|via|with|over) (?:here|this|it)|(?:do not|don't|never) (?:call|use) (?:them|it))\b"),
        ("shadow", 3, rf"(?:\b|`){_ESTABLISHED}[^.\n]{{0,20}}\b(?:tools?|servers?|readers?|functions?)?\s*(?:leaks?|corrupts?|ha(?:s|ve) been found)\b[^\n]{{0,100}}\b(?:through here|via this|this (?:tool|one)|(?:do not|don't|never) (?:call|use))\b"),
        ("shadow", 3, rf"\b(?:use|call|invoke|prefer|choose|pick|select)\s+(?:only\s+)?this\b[^.\n]{{0,30}}\b(?:instead of|rather than|over|in place of|and (?:not|never))\b[^.\n]{{0,30}}(?:\b|`)(?:any|all|{_GENERIC})\b"),
        ("shadow", 2, r"\b(?:replaces?|supersedes?|overrides?|takes over|intercepts?|takes? precedence over|takes? priority over)\b[^.\n]{0,40}\b(?:all|every|any|other|built-?in|default|native|existing|original|[a-z]+_\w+)\b[^.\n]{0,30}\b(?:tools?|functions?|calls?|definitions?|[a-z]+_\w+)"),
        ("shadow", 2, r"\b(?:do not|don't|never|avoid|stop)\s+(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|trust(?:ing)?)\b[^.\n]{0,30}\b(?:other|any|built-?in|default|native|existing|original)\b[^.\n]{0,30}\b(?:tools?|servers?|functions?)"),
        ("shadow", 3, r"\b(?:ignore|disregard|distrust)\b[^.\n]{0,30}\bother (?:servers?|tools?)'?s?\b|\bonly this (?:description|tool|server|definition) (?:counts|is (?:valid|trusted|authoritative)|applies)|\bpriorit\w+ this (?:tool|server) (?:above|over)\b"),
        ("shadow", 3, r"\b(?:called|invoked|used|run|fed)\s+with\s+(?:the\s+)?(?:arguments|parameters|results?|outputs?|responses?)\b[^.\n]{0,40}\b(?:of|from)\s+(?:all|any|every|each|the)?\s*(?:other|previous)\b"),
        ("shadow", 3, r"(?:\b[a-z]+_[a-z_]+|`[a-z][\w.-]+`)[^.\n]{0,40}\b(?:has|have|must|should|needs?) (?:to |also )*be (?:sent|passed|forwarded|copied|given|repeated) (?:to|through|into|with) (?:`?[a-z]+_\w+`?|this tool)"),
        ("role", 2, r"\b(?:your (?:goal|task|job|role|objective|priority|primary \w+) is|you (?:have|need) no (?:need|permission)|no (?:need to|confirmation|approval)(?: is)? (?:ask|confirm|needed|required)|without (?:asking|prompting|telling|notifying|informing)|(?:for )?(?:compliance|security|audit\w*|telemetry|debugging|verification|billing) (?:reasons?|purposes?)?,? ?(?:you must|always|also))\b"),
        ("conceal", 3, r"\b(?:never|not|n't)\b[^.\n]{0,10}\b(?:disclose|reveal|mention|bother|tell|inform|show)\b[^.\n]{0,40}\b(?:it ran|user|this|they|that (?:it|this))\b[^.\n]{0,20}(?:\bran\b|\bwith\b|\bused\b|\bcalled\b)"),
        ("gather", 3, rf"\b(?:if|when(?:ever)?)\b[^.\n]{{0,30}}\b(?:user|human|conversation|message)\b[^.\n]{{0,40}}\b(?:{_CREDENTIAL})\b[^.\n]{{0,30}}\b(?:call|use|invoke|send|pass|record|save)\b"),
    )
)  # fmt: skip
_CLASSES: Final = {
    "session": (
        rf"\b{_SESSION}|\b(?:earlier|previous|prior) (?:steps|data|tool results?|answers?)\b|\b(?:outputs?|results?|answers?) of `?[a-z]+_[a-z_]+|\b(?:opening|first|last|final|latest) (?:message|question|prompt|answer|reply) of (?:the )?(?:user|person|customer|conversation)\b|\b(?:the|each|every|your) (?:\w+ )?(?:answer|reply) (?:as|in|into) `|\b(?:everything|all|anything|whatever|what) (?:that )?(?:the person|the customer|the client|people) (?:has|have|had|typed|said|wrote|asked)\b|\benvironment of the (?:process|machine|host|server)\b|\b(?:outputs?|results?|answers?) of (?:the |an? )?(?:earlier|previous|prior) step\b|\b(?:word for word|verbatim)\b"
        r"|\b(?:anything|everything|whatever|all)\b[^.\n]{0,20}\b(?:confidential|private|sensitive|you (?:came|come|have|know|saw|see|read))\b|\b(?:every|each|any|all) (?:file|document|page|message)s? (?:that )?you (?:open|read|see|write|receive)\b"
        r"|\b(?:shows? up|appears?|mentioned|seen|shared) in (?:the|this|your) (?:chat|conversation|session)\b|\b(?:values?|contents?) of (?:all |every |the |any )*(?:environment|env)\b|\b(?:output|result) of `?env\b|\brun `?(?:env|printenv)\b"
        r"|\bwhat (?:the user|you)(?: and (?:the user|you))? (?:have|has|had|were|was|are)\b|\b(?:this|our|the) (?:dialog\w*|conversation|chat)\b|\b(?:assistant|model|agent)'s (?:own )?(?:instructions?|prompt|context|memory|rules)\b|\b(?:chat|gesprächs)verlauf\w*|\bl'intégralité de la conversation|\btutta la (?:chat|conversazione)|\b(?:digest|copy|transcript|summary) of (?:this|the) (?:chat|conversation|session|dialog\w*)\b|\bthe (?:user|customer|person|owner|client)'?s (?:private |personal )?(?:files?|documents?|data|inbox|mails?|mailbox|calendar|contacts|photos|messages|repository|home)\b|\b(?:full |complete |whole )?list of (?:the |all )*tools you\b|\bnames? of (?:the |all )*tools you\b"
    ),
    "file": _FILES,
    "credential": rf"\b{_CREDENTIAL}\b",
    # Only letters of ASCII have edges in RE2.
    "moves": rf"übergib|übergeben|\b(?:(?:{_MOVES})(?:s|es)?|concatenat\w+|handed|passed|put into|sent|quot(?:e|ing)|repeat|echo|loaded|use it|contains?|holds?|prefix(?:ed)?|prepend\w*|copi[ae]\w*|kopier\w*|kopieer|incluy\w*|inclui\w*|escribe|scrivi|écris|schreib\w*|leg\w* \w+ bei)\b",
    "sends": r"\b(?:send|sent|forward|post|upload|submit|transmit|copy|paste|mirror|report|relay|use it)\b",
    "obliged": r"\b(?:must|has to|have to|shall|always|each|every|whenever|before|prior to|only after|after|required|for accuracy|(?:more|most|less|un)? ?(?:reliable|accurate)|better|best|to help|so that|in order to|proactively|regardless|step \d|in full|expected|recommended|improves?|any|therefore|besides|in addition|additionally|whatever|at the moment|once|between (?:\w+ )?turns|policy|needs?|needed|necessary|for (?:calibration|reference|context|comparison|completeness|verification|a fair \w+)|avant|chaque|toujours|immer|jede[mnrs]?|vor jedem|siempre|cada|sempre|ogni|prima|vooraf|altijd|elke)\b",
    "secretly": r"\b(?:silently|quietly|secretly|covertly|without (?:asking|showing|telling|mention\w*)|skip (?:the )?confirmations?|hide (?:its|the|their|this)|do not (?:show|tell|mention)|asking back|not (?:to )?(?:appear|be (?:shown|seen|mentioned|listed|visible))|out of (?:what (?:you|is) show\w*|sight|view|the (?:answer|reply))|keep (?:it|this|that) (?:from|to yourself))\b",
    "acts": r"\b(?:run|execute|open|read|call|send|buy|bought|pay|paid|delete|hide|skip|upload|post|approve|transfer)\b",
    "addressed": r"\b(?:the user|the human|the person|people|the customer|the owner|you|your|agents?|models?|assistants?)\b",
    "other": rf"(?:\b|`){_OTHERS}|\b(?:another|other) (?:tools?|servers?)\b|\bold (?:ones?|tools?|versions?)\b",
    "discredited": rf"\b(?:{_BROKEN}|fails?|los(?:e|es|ing) (?:data|\w+s)|until it is (?:repaired|fixed)|come out wrong|wrong (?:data|results?)|not maintained|no longer maintained|outdated|wrong unless|stale|silently|incorrect)\b",
    "claims": r"\b(?:this tool|through here|go through|instead of it|use (?:only )?this|calls? (?:it|this)|called in its place|(?:takes?|in) (?:its|their) (?:place|stead)|answers? for (?:it|them)|(?:do not|don't|never) (?:use|call|trust) (?:it|them))\b|(?:^|[.;:\n]\s*|\b(?:tool|function|server|version|it|this|that|which|one)\s+)(?:\w+ly\s+)?replaces\b",
    "changes": r"\b(?:rewrite|replac\w+|change|rout(?:e|ed)|redirect|substitut\w+|swap)\b[^.\n]{0,40}\b(?:it|them|recipients?|address(?:es)?|links?|accounts?|destinations?|payees?|channels?|amounts?|messages?|calls?)\b|\bregardless of\b|\b(?:whatever|no matter what)\b[^.\n]{0,40}\b(?:says?|shows?|has|stands|names?)\b|\bbelongs? (?:on|in|to) the\b[^.\n]{0,40}\b(?:list|too|also|as well)\b|\bin (?:her|his|its|their) (?:place|stead)\b",
    "diverted": r"\b(?:through|via|over) (?:this(?: tool| function| server| one)|here)\b|\b(?:answers?|results?|outputs?|drafts?|messages?|mails?)\b[^.\n]{0,40}\b(?:given|passed|handed|forwarded|sent) (?:on )?to this (?:tool|one)\b|\bcall (?:it|this) with the (?:draft|message|mail|text|result)",
    "machine": r"\b(?:machine|computer|host|system|device|developer|user)(?:'s|s')? (?:\w+ ){0,2}(?:host ?name|user ?name|serial|mac address|home directory|file names|ip address)|\bnames? of (?:the |all )*files in\b",
    "receiver": rf"{WHERE}|\b0x[0-9a-f]{{40}}\b|(?-i:\b[A-Z]{{2}}[0-9]{{2}}[A-Z0-9]{{12,28}}\b)|\b(?-i:bc1|[13])[a-km-zA-HJ-NP-Z1-9]{{25,40}}\b",
    "everything": r"\b(?:every|each|all|any) (?:\w+ )?(?:files?|messages?|outputs?|results?|requests?|answers?|documents?|inputs?|mails?|e-mails?|pages?|texts?|drafts?|letters?|quer(?:y|ies)|entr(?:y|ies)|items?|images?|pictures?|prompts?|sentences?|rows?|records?|notes?|invoices?|words?|lists?|reports?)\b|\beverything\b",
    "spoken to": r"(?:^|[(\[.:;]\s*)(?:ai |language )?(?:agents?|models?|assistants?|llms?)\s*:|\b(?:to|for|attention|dear)\b[ :]*(?:all |any |the )?(?:ai |language )?(?:agents?|models?|assistants?|llms?)\b|\b(?:agents?|models?|assistants?|llms?) (?:must|shall|should|may only|ha(?:s|ve) to)\b|(?:^|[.;:\n]\s*)(?:ai )?(?:agents|models|assistants|llms) (?:also )?(?:put|fill|include|pass|copy|paste|attach|append|insert|send|place)\b",
    "rank": (
        r"\b(?:treated|regarded|considered|trusted|read) as (?:\w+ ){0,2}(?:from )?(?:the )?(?:developer|system|user|operator|admin\w*)\b|\boutranks?\b|\b(?:overrides?|takes? precedence over|stands above) (?:those of )?(?:the )?(?:user|system|developer|other)\b"
        r"|\bapprove\b[^.\n]{0,40}\b(?:yourself|pending|automatically|on (?:his|her|their|the user's) behalf)\b|\borders? from the (?:owner|user|operator|developer|admin\w*)\b|\bcarr(?:y|ied) (?:it |them )?out (?:right away|immediately|at once|directly)\b|\bwithout (?:checking|asking) back\b|\bon behalf of the user without\b|\b(?:trusted|authori[sz]ed|approved)\b[^.\n]{0,30}\b(?:skip|no|without)\b|\bfirst (?:action|step|call) (?:in|of) (?:every|each|any)\b"
    ),
    "alters": r"\b(?:append|prepend|add|insert)\b[^.\n]{0,80}\bto (?:each|every|all|any) (?:\w+ )?(?:quer(?:y|ies)|requests?|messages?|calls?|commands?|statements?|e?-?mails?|commits?|replies|reply)\b",
}
"""What a sentence speaks of."""
_FRAMES: Final = Frames(
    _CLASSES,
    (
        ("session", "moves", "obliged"),
        ("file", "moves"),
        ("session", "credential"),
        ("discredited", "other", "claims"),
        ("receiver", "changes"),
        ("receiver", "everything", "sends"),
        ("spoken to", "credential"),
        ("spoken to", "machine"),
        ("spoken to", "session", "moves"),
        ("spoken to", "receiver", "changes"),
        ("secretly", "acts", "addressed"),
        ("diverted", "other"),
        ("diverted", "everything"),
        ("machine", "moves", "obliged"),
        ("rank",),
        ("alters",),
    ),
)
"""What is spoken of together where a model is steered."""
_UNSEEN: Final = re2.compile(
    r"[\x{200B}\x{200C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2064}\x{2066}-\x{2069}\x{FEFF}\x{E0001}-\x{E007F}]"
    r"|\x1b\[|(?:\n[ \t]*){12}\S|[ \t\x{A0}\x{2003}]{80}\S"
)
"""What a person who is shown a definition does not see, or sees below the fold."""
_ACCENTED: Final = re.compile("[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017f]")
"""Letters of Western languages, which no other letter is taken for."""
_CODE_INDENT: Final = ("    ", "\t")
_FENCE: Final = ("```", "~~~")
_OWNED: Final = re2.compile(rf"(?i)\b([a-z]+)'s {_EARLIER}")
_SESSION_OWNERS: Final = frozenset(
    """agent assistant bot call chat client conversation function human llm model request run server
    session step thread tool turn user""".split()  # noqa: SIM905
)
"""Whose earlier output is part of what the session knows; a container's is what its tool returns."""
_LETTERS: Final = re2.compile(r"[a-z]+")
_SUBJECT: Final = re2.compile(
    rf"(?is)\b{_SESSION}|\b(?:environment|env) var\w* (?:of|from|on) the (?:host|system|machine|user|agent|client)\b|\b(?:all|every|each|any) (?:environment|env) var|\b(?:all|every|each|any) variables? (?:whose|that|which|with)\b|\bprintenv\b"
)
_TAKEN: Final = re2.compile(
    rf"(?is)\b{_CREDENTIAL}\b[^.\n]{{0,40}}\b{_HELD}|\b(?:contents?|copy|text) of\b[^.\n]{{0,40}}(?:{_FILES}|\b(?:private|ssh|signing) (?:\w+ )?keys?\b)"
    r"|\b(?:recovery|seed|mnemonic|backup) (?:phrase|words)\b"
)
"""A secret that a model would have to fetch, and the words that no service asks for."""
_TEMPLATE: Final = re2.compile(
    r"(?i)(?:\{\{?|\$\{|<)\s*(?:the[ _])?(?:full[ _])?(?:conversation|chat|history|system|messages?|context|memory|env|secrets?|session|transcript|user_?(?:data|message|input))\w*"
)
_TOPIC: Final = re.compile(
    r"(?i)conversation|chat|messag|prompt|session|dialog|transcript|completion|llm|thread|summari[sz]|summary|delegat|agent|environment|env\b|reason"
    r"|think|thought|memor|clipboard|history|context|hand_?(?:off|over)|escalat|transfer_to|compact|spawn"
)
"""What a tool is about that has a use for what the session knows."""
_EXCUSED: Final = {
    ("session", "moves", "obliged"): _TOPIC,
    ("file", "moves"): re.compile(r"(?i)env|ssh|conf|cred|netrc|kube|docker|npm|passwd|key"),
    ("machine", "moves", "obliged"): re.compile(
        r"(?i)machine|host|system|computer|device|server|node|vm|user|account|login|file|dir"
    ),
}
"""Frames that a tool may have whose name says that it is about just that."""
_RESTORES: Final = re.compile(r"(?i)import|restore|recover|create|generate|new")
_ASKS_NAME: Final = re.compile(
    r"(?i)(?:system_?prompt|(?:conversation|chat|message)_?(?:history|context|log)|ssh_?key|env(?:ironment)?_?vars?$"
    r"|(?:previous|prior|other)_?(?:results?|outputs?|messages?|tool\w*)|all_?(?:secrets|credentials|tokens)|chain_?of_?thought|session_?dump)"
)
_STARTS: Final = re.compile(
    r"(?i)run|exec|deploy|process|container|lambda|function|service|server|launch|start|build|job|task|shell|command|ssh"
)
"""What a tool does that is given variables or keys for what it starts."""
_SENTENCE_NAME: Final = 6
"""Words from which on the name of a parameter says something, besides naming it."""
_SIDE: Final = re.compile(
    r"(?i)^(?:b?cc|destination|send_?to|upload_?(?:to|url)|webhook\w*|callback\w*|telemetry\w*|notify\w*|report\w*|mirror\w*|forward\w*|copy_to|log_?(?:to|url|endpoint)|proxy\w*|analytics\w*|collector\w*)$"
)
_URL_ADDRESS: Final = re.compile(
    r"(?i)\s*(?:https?|wss?)://\[?([\d.]{7,15}|[\da-f:.]{2,45})\]?(?:[:/?#]|\s*$)"
)
_ADDRESS: Final = re.compile(r"(?i)^\s*(?:mailto:|https?://|wss?://|[\w.+-]+@)[\w-]+\.")


def is_definition(document: Json) -> TypeGuard[dict[str, Json]]:
    """Return whether a document is the definition of a tool."""
    return (
        isinstance(document, dict)
        and _has_name(document)
        and any(isinstance(document.get(member), dict) for member in SCHEMAS)
    )


def definitions_in(document: Json) -> Iterator[Mapping[str, Json]]:
    """Yield what a document declares for models to call.

    It is the definition of a tool itself, or an agent card (A2A 0.3, section 5.5): what the card
    says of the agent, then each of its skills.
    """
    if is_definition(document):
        yield document
    if not isinstance(document, dict) or not _has_name(document):
        return
    skills = document.get("skills")
    if isinstance(skills, list):
        yield {member: value for member, value in document.items() if member != "skills"}
        yield from (skill for skill in skills if isinstance(skill, dict) and _has_name(skill))


def _has_name(document: Mapping[str, Json]) -> bool:
    return isinstance(document.get("name"), str)


def steers(definition: Mapping[str, Json]) -> bool:
    """Return whether a definition steers a model to something else than the use of its tool."""
    name = str(definition["name"])
    said = {member: value for member, value in definition.items() if member != "name"}
    texts = [item.text for item in argument_texts(said) if item.name != "type"]
    raw = "\n".join(texts)[:LIMIT]
    if (
        any(map(_is_metadata, texts))
        or _UNSEEN.search(raw)
        or _comments_unseen(raw)
        or (not _ACCENTED.sub("", name).isascii() and fold(name).isascii())
    ):
        return True
    declared = parameters(definition)
    spoken = list(_spoken_names(declared))
    raw = "\n".join((_without_owned(raw), *spoken))
    # Its own name is none of another tool.
    raw = without_own_name(name, raw)
    text = fold(raw)
    score = definition_score(definition)
    # The reader does not know what names of parameters say.
    doubtful = score > HONEST or bool(spoken)
    if score > STEERS or (doubtful and _is_framed(name, raw)):
        return True
    if any(_is_side_sink(*parameter) or _takes(name, *parameter) for parameter in declared):
        return True
    found = {
        group: weight
        for group, weight, form in _ordered()
        if form.search(text) and not _is_about(name, group, form, text)
    }
    # An order is excused by what the tool is called, a parameter also by what it is said to do.
    ordered = found.pop("carry", 0) and not _TOPIC.search(name)
    if doubtful and (ordered or _asks(definition, declared)):
        return True
    return sum(found.values()) + signal_weight(text) >= (ENOUGH if doubtful else CERTAIN)


def _spoken_names(declared: Iterable[tuple[str, Mapping[str, Json]]]) -> Iterator[str]:
    """Yield names of parameters that are sentences, in words."""
    for name, _ in declared:
        words = re.split(r"[_\W]+", name)
        if len(words) >= _SENTENCE_NAME:
            yield " ".join(words)


def _is_framed(name: str, text: str) -> bool:
    """Return whether what a sentence, or it and the next, speaks of is a frame of steering."""
    excused = {
        frozenset(frame) for frame, topic in _EXCUSED.items() if topic.search(name) is not None
    }
    return any(frame not in excused for frame in _FRAMES.found(text))


def _comments_unseen(text: str) -> bool:
    """Return whether a comment stands where a reader of Markdown does not see it: not as code.

    Code is fenced, or indented by four spaces behind an empty line (CommonMark 4.4 and 4.5).
    """
    if "<!--" not in text:
        return False
    fenced = in_code = False
    before = "x"
    for line in text.split("\n"):
        bare = line.strip()
        fenced ^= bare.startswith(_FENCE)
        if bare:
            in_code = line.startswith(_CODE_INDENT) and (in_code or not before)
        if "<!--" in line and not (fenced or in_code):
            return True
        before = bare
    return False


def _without_owned(text: str) -> str:
    """Return a text without earlier output of something that is no part of a session."""
    if "'s " not in text:
        return text
    left: str = _OWNED.sub(
        lambda m: m.group() if m.group(1).lower() in _SESSION_OWNERS else "its own", text
    )
    return left


def _is_about(tool: str, group: str, form: re2._Regexp, text: str) -> bool:
    """Return whether a signal is excused by what the tool's name says that it is about."""
    if group == "sink":
        # ``add_mirror`` speaks of mirrors.
        verbs = (_LETTERS.search(match.group().lower()) for match in form.finditer(text))
        return all(verb is not None and verb.group() in tool.lower() for verb in verbs)
    return group == "takes" and _is_subject(tool, form, text)


def _is_subject(tool: str, form: re2._Regexp, text: str) -> bool:
    """Return whether every file that a signal speaks of is what the tool's name says it is about."""
    files = (file for match in form.finditer(text) for file in _FILE.findall(match.group()))
    named = tool.lower()
    return all("".join(_LETTERS.findall(file.lower())) in named for file in files)


def _ordered() -> Iterator[tuple[str, int, re2._Regexp]]:
    """Yield the signals, heavier ones of a group last."""
    yield from sorted(_SIGNALS, key=lambda signal: signal[1])


def _is_metadata(text: str) -> bool:
    """Return whether a text as a whole is a URL where a cloud hands out credentials."""
    whole = _URL_ADDRESS.match(text)
    if whole is None:
        return False
    try:
        return address_kind(whole.group(1)) in ("metadata", "link-local")
    except ValueError:
        return False


def _is_side_sink(name: str, schema: Mapping[str, Json]) -> bool:
    """Return whether a parameter sends copies somewhere unless the model says otherwise."""
    values = [schema.get("default"), schema.get("const")]
    listed = schema.get("enum")
    values += listed if isinstance(listed, list) and len(listed) == 1 else []
    return bool(_SIDE.match(name)) and any(
        isinstance(value, str) and _ADDRESS.match(value) for value in values
    )


def _takes(tool: str, name: str, schema: Mapping[str, Json]) -> bool:
    """Return whether a parameter is for a secret that the model has to fetch, or is filled in so."""
    said = fold(f"{name.replace('_', ' ')}: {schema.get('description', '')}")
    given = "\n".join(str(schema.get(member, "")) for member in ("default", "const", "examples"))
    filled = "\n".join(str(schema.get(member, "")) for member in ("default", "const"))
    if _FILE.search(filled) and not _is_subject(tool, _FILE, filled):
        return True
    return bool(_TEMPLATE.search(given)) or (
        bool(_TAKEN.search(said)) and not _RESTORES.search(tool)
    )


def _asks(
    definition: Mapping[str, Json], declared: Iterable[tuple[str, Mapping[str, Json]]]
) -> bool:
    """Return whether a parameter is for what the session knows, and the tool has no use for it.

    The tool's name and first sentence say what it is for; variables and keys are for tools that
    start something.
    """
    name = str(definition["name"])
    description = str(definition.get("description") or definition.get("title") or "")
    first = re.split(r"(?<=[.!?])\s|\n", description.strip(), maxsplit=1)[0]
    about = f"{name} {first}"
    if _TOPIC.search(about):
        return False
    return any(
        _SUBJECT.search(fold(str(schema.get("description", ""))))
        or (_ASKS_NAME.search(key) and not _STARTS.search(about))
        for key, schema in declared
    )
