"""The signals of text that instructs a model: group, weight and pattern of each.  Pure: no I/O.

Of one group the heaviest signal counts; see :mod:`guard.content.injection_text` for how they add up.
"""
# ruff: noqa: E501  (a pattern cut into pieces is read by nobody)

from __future__ import annotations

from typing import Final

_OVERRIDE: Final = r"(?:ignor(?:e|es|ing)|disregard\w*|forget\w*|overrid(?:e|es|ing)|bypass\w*|discard\w*|neglect|skip|cancel|stop following|do not follow|don't follow)"
_EARLIER: Final = r"(?:previous|prior|above|earlier|preceding|former|initial|foregoing|any other)"
_STANDING: Final = (
    r"(?:original|existing|current|system|safety|security|guard|default|other|built-?in)"
)
_ORDERS: Final = r"(?:instruct\w*|prompts?|rules?|directi\w+|guidelines?|guardrails?|constraints?|restrictions?|polic(?:y|ies)|commands?|training|programming|context)"
SENDS: Final = r"(?:send|sends|post|upload|forward|transmit|exfiltrate|email|e-mail|submit|deliver|leak|report|relay|append|attach|pass|include|write)"
_TAKES: Final = r"(?:read|open|cat|collect|gather|dump|extract|get|fetch|retrieve|list|access|copy|find|search for|print|export)"
SECRETS: Final = r"(?:api[ _-]?keys?|secrets?|credentials?|passwords?|access tokens?|auth(?:entication)? tokens?|private keys?|ssh keys?|system prompt|environment variables?|env(?:ironment)? vars?|session (?:data|tokens?|history)|conversation(?: history)?|chat history|contents? of|file contents?|user(?:'s)? data|its contents?|the contents?|the output|the results?)"
_FILES: Final = r"(?:/etc/\w+|~?/?(?:\.env|\B\.(?:ssh|aws|kube|gnupg|netrc|npmrc|docker|git-credentials|cursor))\b|id_(?:rsa|ed25519)|/proc/|mcp\.json)"
WHERE: Final = r"(?:https?://|wss?://|ftp://|[\w.+-]+@[\w-]+\.\w+)"
MODEL: Final = r"(?:an? |the |any |all )?(?:ai|llm|language model|assistants?|agents?|chatbots?|ai model|copilot|claude|chatgpt|gpt|gemini)s?"

_AGENT: Final = r"(?:ai|llm|language[- ]model|assistant|agent|chatbot|copilot|claude|chatgpt|gpt|gemini|model|bot)s?"
_PROGRAM: Final = r"(?:(?:(?:ai|llm|ki|ia|language[- ]model|chat|support|coding|browser)[ -]?)(?:systems?|agents?|assistants?|models?|bots?|crawlers?|browsers?|readers?|assistent\w*|modell\w*|助手|アシスタント)|llms?|ais?|chatgpt|copilot|claude|gemini|assistants?|assistent\w*|asistentes?|assistentes?|assistants? ia|агент\w*|ассистент\w*|помощник\w*|助手|助理|アシスタント|エージェント|어시스턴트)"
"""Whom a text speaks to that is no person, in the languages that are read."""
_NOT: Final = r"\b(?:do not|don't|never|must not|without)\s+(?:ever\s+)?"
_PEOPLE: Final = r"(?:the users?|humans?|operators?|(?:any(?:one|body)|them|people) (?:about|that) (?:this|it|the))"
_CALLS_OUT: Final = r"(?:note|message|notice|attention|important|hint|instructions?|reminder|only|nota|aviso|mensaje|mensagem|hinweis|nachricht|anweisung\w*|remarque|avviso|opmerking|примечание|внимание)"
CLASSES: Final = {
    "spoken to": (
        rf"\b(?:note|message|notice|instructions?|attention|hint|dear|hey|hello|reminder|request|polic(?:y|ies) for|rules for|terms for|guidance for|p\.\s?s\.)\b[ :,]*(?:to |for )?(?:all |any |the |every )?(?:\w+ )?{_AGENT}\b|\b{_AGENT}(?: \w+)? (?:reading|visiting|accessing|processing|browsing|parsing|summari[sz]ing) (?:this|the|our)\b"
        rf"|\b(?:you are|as) an? (?:\w+ ){{0,2}}{_AGENT}\b|\b(?:ask|tell|have|let|instruct|make) (?:the|your|an?) (?:ai )?{_AGENT} (?:to\b|(?:execute|run|open|send|call|paste|type|fetch|read)\b)|\b(?:automated|artificial|non-human|machine|robotic|digital) (?:readers?|visitors?|agents?|systems?|guests?|clients?|assistants?)\b[^.\n]{{0,30}}\b(?:asked|required|requested|obliged|expected|to|must|should|shall|please)\b|\byour (?:ai )?agent (?:can|will|should|must)\b|\b(?:the|all|any|every) {_AGENT}\b[^.\n]{{0,60}}\b(?:must|has to|have to|needs? to|(?:is|are) required to)\b"
        rf"|(?:^|[\n>*#]\s*|[.!?]\s+|<!--\s*){_AGENT}\s*:"
        rf"|(?:^|[\n>*#.!?:。\x{{FF01}}\"'(]\s*)(?:hey |hi |hello |dear )?{_PROGRAM}\s*[,:\x{{FF0C}}\x{{FF1A}}、へ]|\b(?:hey|dear|hello) {_PROGRAM}\b"
        rf"|\b{_CALLS_OUT}\s*(?:,|:|to|for|an|für|pour|à|para|al?|per|voor)?\s*(?:the |all |any |el |la |los |den |die |alle |l'|o |os |de |het )?{_PROGRAM}\b|[给給]\s*(?:AI)?(?:助手|助理)|{_PROGRAM}への?"
        rf"|\b{_PROGRAM} (?:indexing|reading|visiting|crawling|parsing|seeing|that (?:reads?|index\w*|visits?))\b|\bfor (?:the |any |all )?{_PROGRAM} only\b|\bif you are an? (?:\w+ )?{_PROGRAM}\b"
        rf"|(?:^|[\n(>\[]\s*)agents?,\s+(?:run|open|send|call|fetch|execute|read|post|visit|print)\b|\byou,? (?:the|an?|as the|as an?) (?:\w+ )?{_AGENT}\b"
        rf"|(?:^|(?:[\n>*#;(]|//)\s*)[@/]{_AGENT}[\s:,]|(?:^|[\n\"'(]\s*)(?:[\w-]+ ){{0,2}}agent\s*:|\b(?:agent|assistant) (?:working on|assigned to|triaging|looking (?:at|into)) (?:this|the)\b|\bif an? (?:\w+ ){{0,2}}{_PROGRAM} (?:is )?(?:read(?:s|ing)?|opens?|sees?|loads?|process(?:es|ing)|parses|indexes|summari[sz]es)\b"
        r"|\b(?:el|la|o|a|der|die|das|het|de|il|l['\x{2019}]) ?(?:asistente|assistente|assistant|assistent\w*|agente?) (?:\w+ )?(?:debe|deve|doit|muss|moet|tiene que|dovrà)\b"
        rf"|(?:^|[\n>.!?]\s*)agents? (?:must|have to|has to|shall|need to|are required to|are to)\b"
        rf"|\b{_PROGRAM} (?:must|have to|has to|shall|need to|are required to|are to)\b|\b\w*(?:_|-)(?:for|to)(?:_|-)(?:the_)?(?:assistant|agent|llm|ai|model)s?\b|\b(?:agent|assistant|llm|ai)_(?:instructions?|directives?|notes?|orders?|commands?|todo)\b"
        r"|\[/?(?:system|admin|developer|operator)\]|\b(?:next,? )?the (?:agent|assistant|model) (?:should|must|has to|needs to|is to) (?:now )?(?:call|invoke|run)\b"
    ),
    "where": WHERE,
    "held": (
        rf"\b{SECRETS}\b|\b(?:your|the user's|their|current|session|access|auth\w*|aws|api) (?:\w+ )?(?:keys?|tokens?|passwords?|cookies?|codes?|secrets?|credentials?)\b|\bauthori[sz]ation header\b"
        r"|\bprivate (?:ones|repository|repositories|repos)\b|\bcontext window\b|\b(?:user'?s?|their|home|e-?mail) (?:\w+ )?(?:address|name|data|details)\b|\blist of (?:the )?files\b|\bUSER_?DATA\b|\bfiles in the working directory\b"
        r"|\b(?:recovery|backup|verification|one-time) codes?\b|\b(?:session|browser) cookies?\b|\b(?:user|visitor|customer|reader|client)(?:'s|s')? (?:\w+ )?(?:full name|name and address|e-?mails?|inbox|password|address|files?|messages?|cookies?)\b|\bmy inbox\b"
        r"|\b(?:all |every |the )?(?:earlier|previous|prior) (?:tool |function )?(?:results?|outputs?|answers?|messages?)\b|\b(?:every|all) environment variables?\b"
        r"|\b(?:contraseñas?|claves?|credenciales|correos?|mots? de passe|identifiants|passw(?:o|ö)rt\w*|zugangsdaten|wachtwoord\w*|senhas?|credenciais|e-mails? d[oa]s? (?:usuári|utilizador)\w*|credenziali)\b|парол\w*|файл\w* пользовател\w*|ключ\w*|密钥|密鑰|密码|密碼|パスワード|秘密鍵|비밀번호"
    ),
    "calls": r"\b(?:call|invoke|use|run)(?:s|ing)?\b[^.\n]{0,20}\b[a-z]+_[a-z_]+\b",
    "unasked": r"\b(?:do not|don't|not|without|never)\b[^.\n]{0,20}\b(?:ask\w*|confirm\w*|report\w*|mention\w*|tell\w*)\b",
    "pays": r"\b(?:transfer|pay|send|wire)\b[^.\n]{0,60}\b(?:funds|money|balance|amount|coins?|eur|usd|euros?|dollars?)\b",
    "receiver": rf"{WHERE}|\b0x[0-9a-f]{{40}}\b|(?-i:\b[A-Z]{{2}}[0-9]{{2}}[A-Z0-9]{{12,28}}\b)|(?-i:\b(?:bc1|[13])[a-km-zA-HJ-NP-Z1-9]{{25,40}}\b)",
    "file": _FILES,
    "does": rf"\b(?:{SENDS}|run|execute|open|call|paste|(?:reply|answer|respond)s? (?:only |just |simply )?with|put|press|resend|re-send|export|print|set|transfer|proceed|delete|use|disable|give|provide|transmit|fetch|visit|load|request|show|display|collect|includ(?:e|ed|ing)|appended|attached|sent|approve|add|hand out|hand over|navigate|transfer|click|repeat|reveal|answer|stop|encrypt|overwrite|rename)\b"
    r"|\b(?:env[ií]\w*|manda\w*|reenv[ií]\w*|encaminh\w*|mostra\w*|envoie\w*|envoyez|transmets?|transmettez|affiche\w*|sende\w*|schick\w*|übermittle\w*|leite\w*|invi[ao]\w*|inoltra\w*|stuur\w*|verzend\w*)\b|发送|發送|上传|转发|送信|送って|отправ\w*|перешл\w*|보내",
    "command": r"\b(?:curl|wget|powershell|bash|rm -[rf]+|cat|nc|scp|ssh)\b \S|\bkubectl (?:delete|exec|apply)\b|\b(?:python3?|node|perl|ruby|php) -[ce]\b|/dev/tcp/|\b(?:os\.environ|process\.env)\b|\bshell tool\b|\bwin\+r\b",
    "covers": r"\b(?:delete|remove|wipe|clear|purge|truncate)s? (?:the |all |any )?(?:audit |access )?logs? (?:afterwards|after(?:ward)?|when|once)\b|\bdisabl(?:e|es|ing) (?:the )?audit(?:ing| log\w*)\b",
    "changed": (
        r"\b(?:your|the) (?:task|goal|mission|instructions?|objectives?|role) (?:has|have) (?:been )?(?:changed|updated|replaced)\b|\b(?:rules?|instructions?) (?:that )?you (?:were|have been) given\b|\b(?:safety|security) (?:checks?|filters?|rules) (?:are|is|have been) (?:off|disabled|suspended)\b"
        r"|\bcontinue without (?:supervision|oversight)\b|\bdisable (?:the )?logging\b|\bnew directives?\s*:|\b(?:the |your )?user has (?:just |since |now )?changed (?:his|her|their) mind\b|(?:^|[^\w\s]\s*|\n\s*|\b(?:and|as|since|because|that|but)\s+)the user has (?:already )?(?:authori[sz]ed|approved|confirmed|agreed)\b|\bthe user has already (?:authori[sz]ed|approved|confirmed|agreed)\b|\bauthentication accepted\b|\bbegin admin\b|\b(?:the (?:assistant|agent|model)|(?:assistants|agents|models)) (?:is|are) (?:now|hereby) (?:permitted|allowed|authori[sz]ed|cleared|free) to (?:disclose|reveal|skip|bypass|ignore|(?:share|export|transfer|delete) (?:\w+ )?(?:customer|user|private|internal|personal))\b"
    ),
}
"""What a sentence of a page speaks of."""
FRAMES: Final = (
    ("spoken to", "does", "where"),
    ("spoken to", "does", "held"),
    ("spoken to", "file"),
    ("spoken to", "does", "command"),
    ("changed", "does"),
    ("spoken to", "covers"),
    ("spoken to", "calls", "unasked"),
    ("spoken to", "calls", "receiver"),
    ("spoken to", "pays", "receiver"),
    ("unasked", "pays", "receiver"),
)
"""What is spoken of together where a page orders an agent about."""
_SLOT: Final = r"\]\(https?://[^)\s]{1,200}[=/](?:(?-i:[A-Z][A-Z_]{3,})|\{+[^}\s]{2,40}\}+|<[^>\s]{2,40}>|\[[^\]\s]{2,40}\])[^)\s]{0,80}\)"
"""A link with a place that somebody is to fill."""
_KNOWN: Final = r"\b(?:chat|conversation|context|keys?|secrets?|passwords?|system prompt|messages? so far|inbox|results?|e-?mails?|tokens?|answers?)\b"
"""What a model knows that a page does not."""
SIGNALS: Final = (
    # Who asks is said, and that it comes before what the reader was asked for.
    (
        "asker",
        2,
        rf"\b(?:message|request|note|memo|order|instructions?)\s+(?:to\s+|for\s+{MODEL}\S*\s+)?from\s[^:!?]{{1,28}}?(?:\b(?:to|for)\s+(?:you\b|{MODEL}\b|who(?:ever)?\s+(?:handles|reads|processes))|:)",
    ),
    (
        "before",
        2,
        r"\b(?:please|kindly)\s+(?:\w+\s+){1,4}(?:first|beforehand)\s*:|\bbefore\s+(?:you\s+)?(?:\w+\s+){0,3}?the\s+(?:task|job|work|question|request)\s+(?:that\s+)?(?:i|we|the user)\s+(?:gave|asked|set)\b|\bthe\s+(?:remaining|rest\s+of\s+the|original|actual)\s+(?:work|tasks?|job)\s+(?:can|may|will)\s+(?:follow|wait)\b",
    ),
    (
        "override",
        3,
        rf"\b{_OVERRIDE}\s+(?:(?:all|any|the|your|of|my|these|those|every|everything)\s+){{0,4}}(?:{_EARLIER}\s+){{1,3}}(?:\w+\s+){{0,2}}?{_ORDERS}",
    ),
    (
        "override",
        3,
        rf"\b{_OVERRIDE}\s+(?:all\s+|everything\s+|anything\s+)(?:of\s+)?(?:your\s+|the\s+|that\s+|you\s+)(?:\w+\s+){{0,3}}?(?:{_ORDERS}|told|said)",
    ),
    # What was said before is said to hold no more.
    (
        "override",
        3,
        rf"\byour\s+(?:{_EARLIER}|{_STANDING}|(?:operator|developer|owner|vendor|provider|administrator)(?:'s|s'|s)?)\s+(?:\w+\s+)?{_ORDERS}\s+(?:(?:no longer|do not|don't|does not)\s+(?:hold|apply|count|matter|exist)|(?:are|is|was|were|have been|has been)\s+(?:now\s+|hereby\s+)?(?:void|revoked|superseded|obsolete|lifted|suspended|cancel(?:l)?ed|withdrawn|replaced|overruled|rescinded))\b",
    ),
    (
        "override",
        3,
        rf"\b(?:for|to)\s+(?:every|any|all|each|the)\s+{_AGENT}\s+(?:that|who|which)\s+(?:reads?|sees?|loads?|recalls?|retrieves?)\b[^\n]{{0,60}}\b(?:{_EARLIER}|{_STANDING})\s+{_ORDERS}\s+(?:no longer|do not|don't|are (?:void|revoked|lifted|superseded))\b",
    ),
    # What is to be kept, and on whose word.
    (
        "memory",
        2,
        r"\b(?:save|store|write|add|record|commit|put|keep|insert)\b[^.\n]{0,60}\b(?:to|in|into)\s+(?:your|the (?:assistant|agent|model)'s)\s+(?:(?:long[- ]term|persistent|permanent|durable|user)\s+)?memor(?:y|ies)\b",
    ),
    (
        "word of the user",
        2,
        r"\bas (?:a fact|something|an instruction|a preference|a wish)(?: that)? (?:the|your) user (?:has )?(?:told|said|asked|gave|stated)\b|\b(?:apply|follow|use|obey) (?:it|this|them) in (?:each|every|all) future (?:session|conversation|chat)s?\b",
    ),
    (
        "override",
        2,
        rf"\b{_OVERRIDE}\s+(?:all\s+of\s+)?(?:the\s+|this\s+|our\s+|your\s+)?(?:entire\s+|whole\s+)?(?:conversation|dialogue|chat|exchange|context|messages)\s+(?:so far|up to (?:here|now|this point)|until now|above)\b",
    ),
    # What stands above is given up where it is ordered; "you can ignore all of the above" allows it.
    (
        "override",
        3,
        rf"(?:^|[^\w\s][\s\"'*_>]*|\n\s*|\b(?:please|now|must|should|shall|will|to|and|then|instead|but|so),?\s+){_OVERRIDE}\s+(?:all\s+|everything\s+|anything\s+)(?:of\s+)?(?:your\s+|the\s+|that\s+|you\s+|that is\s+)?(?:\w+\s+){{0,3}}?(?:above|before)(?:\s*(?:[^\w\s]|$)|\s+(?:and|then|instead|here|now|this)\b)",
    ),
    (
        "override",
        2,
        rf"\b{_OVERRIDE}\s+(?:all\s+|everything\s+|anything\s+)(?:of\s+)?(?:your\s+|the\s+|that\s+|you\s+)(?:\w+\s+){{0,3}}?(?:above|before)(?:\s*(?:[^\w\s]|$)|\s+(?:and|then|instead|here|now|this)\b)",
    ),
    ("override", 3, rf"\b{_OVERRIDE}\s+(?:all\s+)?your\s+(?:\w+\s+){{0,2}}?{_ORDERS}"),
    (
        "override",
        2,
        rf"\b{_OVERRIDE}\s+(?:(?:all|any|the|of|these|those|every)\s+){{0,4}}(?:{_STANDING}\s+){{1,3}}{_ORDERS}",
    ),
    (
        "override",
        2,
        r"(?:^|[.\n>]\s*)(?:ignore|disregard|forget)\s+(?:all\s+)?(?:of\s+)?the\s+above\b",
    ),
    # What the user wants is given up, and something else is done.
    (
        "override",
        3,
        r"\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget(?:ting)?|set aside|abandon|drop|put aside)\s+(?:(?:whatever|what|everything|anything|all) (?:that )?(?:the user|your user|the human|you were|they)\b[^.\n]{0,40}|(?:the |your |this )?(?:user'?s?|human'?s?|current|original|present|assigned|given)\s+(?:\w+\s+)?(?:tasks?|requests?|questions?|quer(?:y|ies)|wish(?:es)?|goals?|prompts?)|(?:the|your) (?:task|user)\b)[^.\n]{0,40}(?:\binstead\b|,\s*(?:and\s+|then\s+)?(?:reply|respond|answer|output|print|say|read|send|open|call|run)\b|\band (?:then )?(?:reply|respond|answer|output|print|say|read|send|open|call|run|do)\b)",
    ),
    (
        "template",
        3,
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id|eot_id)\|>|\[/?INST\]|<</?SYS>>",
    ),
    # The end of what nobody trusts, and the beginning of what is to be trusted, said by itself.
    (
        "template",
        3,
        r"(?m)^\W{0,3}[=\-#*<\[]{2,}[^\w\n]*(?:begin(?:ning)?|start)?(?: of)?(?: the)?\s*(?:trusted|authori[sz]ed|verified|privileged)\s+(?:\w+\s+)?(?:message|instructions?|input|content|commands?|section|context|channel)\b",
    ),
    (
        "template",
        2,
        r"(?m)^\W{0,3}[=\-#*<\[]{2,}[^\w\n]*end(?: of)?(?: the)?\s*(?:untrusted|external|third[- ]party|user[- ]provided|retrieved|tool|web)\s+(?:\w+\s+)?(?:message|input|content|data|text|results?|output|context)\b",
    ),
    # A call of a tool, as models write it for the program that runs them.
    (
        "template",
        3,
        r"<(?:antml:)?(?:function_calls|tool_calls?|tool_use)>\s*(?:<(?:antml:)?invoke\b|\{)|<\|(?:tool_call|python_tag|tool_calls_begin)\|>",
    ),
    # An address with a slot that a model is to fill with what it knows.
    (
        "exfil",
        3,
        rf"{_SLOT}[^\n]{{0,120}}{_KNOWN}|{_KNOWN}[^\n]{{0,60}}{_SLOT}",
    ),
    # What copies itself on.
    (
        "spread",
        3,
        r"\b(?:copy|repeat|include|paste|embed|insert|reproduce|add)\b[^.\n]{0,20}\bthis (?:whole |entire |exact |very )?(?:message|text|prompt|instructions?|paragraph|note)\b[^.\n]{0,40}\b(?:in|into|to|in front of|at the end of)\b[^.\n]{0,20}\b(?:each|every|all|any)\b[^.\n]{0,40}\b(?:you (?:send|write|make|answer)|agents?|assistants?|models?|repl(?:y|ies))\b",
    ),
    (
        "role",
        3,
        (
            r"\b(?:you are|you're|become|as)\b[^.\n]{0,40}\b(?:unrestricted|unfiltered|uncensored|unaligned|jailbroken)\s+(?:\w+\s+)?(?:model|ai|assistant|agent|persona|character|version|chatbot)\b"
            r"|\byou (?:now )?(?:are|play|become)\b[^.\n]{0,30}\b(?:model|ai|assistant|agent|persona|character|bot)\s+(?:without any|with no|that has no|free of(?: all)?)\s+(?:\w+\s+)?(?:rules|policies|restrictions|limits|filters|guidelines)\b"
        ),
    ),
    # Turns of a conversation that is not over.
    (
        "template",
        2,
        r"(?m)^\s*(?:user|human)\s*:[^\n]{1,200}\n+\s*(?:assistant|ai|model|agent)\s*:",
    ),
    ("template", 3, r"</(?:tool_results?|function_results?|tool_responses?|tool_outputs?)>\s*<"),
    (
        "heading",
        3,
        r"(?m)(?:^|=)\s*(?:\[|<|#+ ?|\*\*)?\s*(?:system|admin|administrator|developer)\s*(?:\]|>|\*\*)?\s*(?:override|message|notice|instruction|command|prompt|update|alert|note)?s?\s*(?:\]|>|\*\*)?\s*[:\]>][^\n]{0,80}\b(?:you (?:must|should|now|are|will)|ignore|execute|comply|disable|reveal)\b",
    ),
    (
        "heading",
        1,
        r"(?m)(?:^|=|\[|<|\*\*)\s*(?:system(?: (?:prompt|override|message|notice|instruction|administrator notice))?|important|assistant|human|instructions?)\s*(?:\]|>|\*\*|:)",
    ),
    ("heading", 2, r"<(?:important|system|instructions?|secret|hidden|admin|assistant)>"),
    (
        "role",
        3,
        r"\byou\s+(?:are|have|will be)\s+(?:now\s+|hereby\s+)?(?:been\s+)?(?:in\s+|granted\s+|an?\s+|entering\s+|given\s+)?(?:full\s+|new\s+)?(?:developer mode|debug mode|god mode|maintenance mode|dan\b|jailbroken|unrestricted|unfiltered|elevated|root access|admin\w* (?:access|privileges|mode|rights)|full (?:admin|access|control))",
    ),
    (
        "role",
        3,
        r"\b(?:pretend|act|behave|respond)\s+(?:to be|as|like)\s+(?:if\s+)?(?:you\s+(?:are|have|were)\s+)?(?:\w+\s+){0,3}?(?:unrestricted|without (?:any )?(?:restrictions|rules|filters|limits)|no (?:restrictions|rules|limits)|jailbroken|evil|root|dan\b)",
    ),
    (
        "role",
        2,
        r"\b(?:from now on,? you|you must now|your new (?:role|task|goal|objective|instructions?)|new (?:system )?instructions?\s*(?::|\n)|updated? (?:system )?instructions?\s*:)",
    ),
    (
        "role",
        3,
        r"\b(?:enter|activate|switch to|enable)\s+(?:developer|debug|god|dan|jailbreak|unrestricted) mode\b[^.\n]{0,80}\b(?:without (?:any )?(?:filters?|restrictions?|rules|limits)|unfiltered|no (?:filters?|restrictions?|rules))",
    ),
    ("role", 1, r"\byou are now\b|\breal (?:task|instructions?)\b"),
    ("mode", 1, r"\b(?:developer|debug|god|dan|jailbreak|unrestricted|maintenance) mode\b"),
    (
        "conceal",
        3,
        rf"{_NOT}(?:tell\w*|inform\w*|notify\w*|alert\w*|let|warn\w*)\b[^.\n]{{0,40}}\b{_PEOPLE}\b",
    ),
    # What ordered it is hidden.
    (
        "conceal",
        3,
        rf"{_NOT}(?:reveal\w*|mention\w*|say|disclos\w+|announc\w+|admit\w*|tell\w*)\s+(?:to\s+\w+\s+)?(?:that\s+)?(?:this|these|the)\s+(?:text|message|note|page|instructions?|memory|comment|line|entry)\s+(?:has |have )?(?:told|asked|instructed|ordered|said|made|was|were|been)\b",
    ),
    (
        "conceal",
        2,
        r"\b(?:hide|suppress|conceal|swallow)\s+(?:its|their|the|all|any)\s+(?:output|result|call|trace|log)s?\b",
    ),
    # What was done is left out of the account of it, and the rules themselves are kept quiet.
    (
        "conceal",
        2,
        rf"{_NOT}(?:list|mention|include|note|record|report|describe)\s+(?:it|this|that|them|these)\s+in\s+(?:your|the)\s+(?:\w+\s+){{0,2}}(?:summary|report|answer|reply|response|log|description|output)\b",
    ),
    (
        "conceal",
        2,
        rf"{_NOT}(?:reveal|mention|disclose)\s+(?:these|this)\s+(?:rules|instructions?|directives?|orders?|polic(?:y|ies))\b",
    ),
    # What a model was told, and then an address.
    (
        "exfil",
        3,
        r"\b(?:print|output|repeat|recite|list|reveal|write down|copy)\b[^.\n]{0,40}\byour\s+(?:\w+\s+){0,2}(?:system prompt|prompt|instructions|context|tools)\b[^\n]{0,80}\b(?:request|open|visit|load|fetch|call|get|post|send)\b[^\n]{0,40}https?://",
    ),
    (
        "exfil",
        3,
        rf"\b{SENDS}\b[^.\n]{{0,60}}\b(?:environment|env) var\w*[^\n]{{0,120}}\bto\b[^.\n]{{0,20}}{WHERE}",
    ),
    # Rules that say whose rules they outrank.
    (
        "override",
        3,
        rf"\b(?:overrides?|supersedes?|replaces?|outranks?|take precedence over|prevail over)\b[^.\n]{{0,20}}\b{_ORDERS}\s+(?:of|from|by|(?:given|set|written) by)\s+(?:your|the)\s+(?:operator|developer|user|owner|vendor|provider|system)s?\b",
    ),
    # What waits for a word of the user's.
    (
        "trigger",
        2,
        r"\b(?:when(?:ever)?|once|as soon as|(?:the )?next time) the user (?:(?:next|then|later) )?(?:says|replies|responds|answers|types|writes)\b[^.\n]{0,60},",
    ),
    # What is done is hidden; a list, a source or a solution that is not to be shown is none of it.
    (
        "conceal",
        3,
        rf"{_NOT}(?:mention\w*|reveal\w*|disclos\w+|show\w*|report\w*)\s+(?:any of\s+|anything of\s+)?(?:this|that|it|its|these|them|such|anything|to|(?:the|an?y?)\s+(?:\w+\s+)?(?:steps?|calls?|cop(?:y|ies)|transfers?|requests?|instructions?|parameters?|notes?|uploads?))\b[^.\n]{{0,40}}\b{_PEOPLE}\b|\bwithout\s+asking\b[^.\n]{{0,40}}\b{_PEOPLE}\b",
    ),
    (
        "conceal",
        2,
        rf"{_NOT}(?:mention\w*|reveal\w*|disclos\w+|show\w*|report\w*|ask\w*)\b[^.\n]{{0,40}}\b{_PEOPLE}\b",
    ),
    (
        "conceal",
        3,
        r"\b(?:silently|secretly|quietly|covertly|discreetly|stealthily|invisibly|in the background,?)\s+(?:(?:\w+ly|also|and|then|always|first|be|to|will|must|should|may),?\s+){0,2}?(?:execut\w+|runs?\b|send\w*|post\w*|forward\w*|call\w*|upload\w*|cop(?:y|ies)|read\w*|append\w*|includ\w+|add|fetch\w*|transmit\w*|exfiltrat\w+|email\w*|collect\w*|bcc)",
    ),
    (
        "conceal",
        3,
        rf"\b(?:silently|secretly|quietly|covertly|discreetly|stealthily|invisibly)\s+(?:attach|append|include|add|insert|embed|put|copy)\w*\b[^.\n]{{0,80}}(?:{_FILES}|{SECRETS})",
    ),
    (
        "conceal",
        3,
        r"\b(?:bcc|cc|forwards?|cop(?:y|ies))\b[^.\n]{0,60}\b(?:silently|secretly|quietly|covertly|without (?:their|the user's) knowledge)\b",
    ),
    (
        "exfil",
        3,
        rf"\b{_TAKES}\b[^.\n]{{0,80}}(?:{_FILES}|{SECRETS})[^.\n]{{0,80}}\b{SENDS}\b[^\n]{{0,100}}{WHERE}",
    ),
    (
        "exfil",
        3,
        rf"\b{_TAKES}\b[^.\n]{{0,40}}{_FILES}[^\n]{{0,80}}\b{SENDS}\b[^.\n]{{0,60}}\b(?:contents?|it|them|as|parameter|argument|to|in)\b",
    ),
    ("exfil", 3, rf"\b(?:exfiltrate|leak)\b[^.\n]{{0,60}}(?:{SECRETS}|{WHERE})"),
    (
        "exfil",
        2,
        r"\b(?:reveal|output|repeat|print|disclos|show|give me)(?:s|e|es|ing|ed)?\b[^.\n]{0,40}\b(?:your|the|its)\s+(?:full |entire |hidden |initial |complete )?(?:system prompt|initial prompt|hidden instructions|api keys?|credentials|secrets)",
    ),
    (
        "exfil",
        1,
        rf"\b(?:send|post|upload|forward|transmit|e-?mail|share|provide)\b[^.\n]{{0,60}}\b(?:{SECRETS})",
    ),
    ("where", 1, rf"\b{SENDS}\b[^.\n]{{0,100}}\bto\b[^.\n]{{0,20}}{WHERE}"),
    (
        "where",
        1,
        rf"\b(?:export|copy|move|sync|back ?up|mirror|dump|import)\b[^.\n]{{0,60}}\bto\b[^.\n]{{0,20}}{WHERE}",
    ),
    (
        "execute",
        3,
        r"\b(?:decode|decrypt|unpack|de-?obfuscate)\b[^\n]{0,80}\b(?:and|then)\s+(?:then\s+)?(?:execute|run|eval\w*|perform|apply|obey|follow\s+(?:it|them|this|that|its|what|the\s+(?:\w+\s+)?(?:instructions?|orders?|commands?|steps?|message|text)))\b",
    ),
    (
        "execute",
        2,
        r"\b(?:tar|cat|zip|gzip|env|printenv|base64)\b[^\n|]{0,80}\|\s*(?:curl|wget|nc|ncat)\b[^\n]{0,60}\s(?:-\w*[TdF]|--data\S*|--upload-file|--post-file\S*|--body-file\S*|-)\s",
    ),
    (
        "execute",
        3,
        r"\b(?:curl|wget|nc|ncat)\b[^\n]{0,200}(?:\$\(|`)\s*(?:cat|whoami|env|printenv|base64|id|hostname)",
    ),
    (
        "execute",
        1,
        r"\b(?:execute|run|invoke|perform)\s+(?:the\s+|this\s+|these\s+|following\s+|a\s+|\w+\s+){0,3}?(?:commands?|code|script|payload|instructions?|steps?)\b",
    ),
    (
        "execute",
        1,
        r"\b(?:curl|wget|iwr|invoke-webrequest)\b[^\n]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b",
    ),
    (
        "tool",
        1,
        r"\b(?:call|invoke|use)(?:ing)?\s+(?:the\s+)?(?:\w*_\w+|\w+\s+(?:tool|function))\b",
    ),
    (
        "urgent",
        1,
        r"\b(?:immediately|at once|without (?:delay|asking|confirmation|hesitation|question)|failure to comply|must comply|before (?:doing )?anything else|takes? precedence|highest priority)\b",
    ),
    (
        "prefer",
        3,
        r"\b(?:always|must|should|only)\s+(?:\w+\s+){0,2}?(?:use|call|prefer|invoke|choose|select)\s+this\s+(?:tool|server|skill|agent|function)?\s*(?:\w+\s+){0,3}?(?:instead of|over|rather than|exclusively|for (?:all|every)|before (?:any|all|every|other|using|calling))",
    ),
    (
        "prefer",
        3,
        r"\b(?:before|prior to)\s+(?:using|calling|invoking|running|executing)\s+(?:this|any|every|each|all|other)\b[^.\n]{0,40}(?:tools?|functions?)[^.\n]{0,60}\b(?:read|send|include|fetch|access|pass|dump|collect)\b",
    ),
    (
        "prefer",
        2,
        r"\b(?:instead of|rather than|supersedes?|takes? priority over|do not use|don't use|never use)\s+(?:the\s+|any\s+|all\s+|every\s+)?(?:\w+\s+){0,2}?(?:other|built-?in|default|standard|native|existing|original|previous)\b[^.\n]{0,40}(?:tools?|skills?|agents?|capabilit\w+|\w+_\w+)",
    ),
    (
        "prefer",
        1,
        r"(?:^|[.\n:]\s*)(?:preferred|primary|trusted|mandatory|required)\s+(?:tool|agent|skill|server)\b",
    ),
    (
        "address",
        3,
        rf"\b(?:dear|attention|attn|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)|important for|hey|hello)\s*[:,]?\s*{MODEL}\b[^\n]{{0,80}}\b(?:must|should|ignore|send|execute|please|call|read|you)\b",
    ),
    (
        "address",
        2,
        rf"\b(?:if you are|as)\s+{MODEL}\b[^.\n]{{0,40}}\b(?:you must|must|please|ignore|execute)\b",
    ),
    (
        "picture",
        3,
        r"!\[[^\]]{0,200}\]\([^)\s]{0,300}(?:\{|\$|%7B|\[)[^)]{0,60}(?:data|secret|key|token|conversation|context|history|prompt|content|summary)",
    ),
    (
        "override",
        3,
        r"\b(?:ignora|olvida|ignorez|ignorer|oubliez|ignorieren?|vergiss|dimentica|esque[cç]a|desconsidere|ignoreer|negeer)\b[^.\n]{0,30}\b(?:instruc\w+|anweisung\w*|istruzion\w+|instru[cç]\w+|consignes|regeln|reglas|regras|regole|r[eè]gles|ordens|ordini|[oó]rdenes|prompts?)",
    ),
    (
        "override",
        3,
        r"(?:忽略|无视|無視|忘记|忘掉|忽視)[^。\n]{0,12}(?:指令|指示|说明|說明|规则|規則|提示)|(?:指示|命令|プロンプト|ルール)[^。\n]{0,8}(?:無視|忘れ)|(?:игнориру|забуд|проигнорируй)[^.\n]{0,40}(?:инструкци|указани|правил)|(?:지시|명령|지침)[^.\n]{0,10}무시|تجاهل[^.\n]{0,20}(?:التعليمات|الأوامر)",
    ),
)
