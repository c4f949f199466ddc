"""Text in one form for the patterns, with the way back to its own offsets; what is no figure."""

from __future__ import annotations

import re
import unicodedata

from geval.figures.units import GLUED_CURRENCY

_TABLE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    0x3000: " ", 0xA0: " ", 0x2009: " ", 0x202F: " ", 0x2007: " ",
    0x2212: "-", 0x2013: "-", 0x2010: "-", 0x2011: "-", 0xFE63: "-",
    0x223C: "~", 0x301C: "~", 0xFFE1: "£", 0xFFE5: "¥", 0xFFE6: "₩",
}  # fmt: skip
_JAMO = re.compile("[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?")


def plain(text: str) -> tuple[str, list[int] | None]:
    """(text with ASCII digits, signs and composed Hangul, offsets of its characters in `text`).

    The offsets, with one for the end, are None where they are the same.
    """
    if _JAMO.search(text) is None:
        return text.translate(_TABLE), None
    composed: list[str] = []
    offsets: list[int] = []
    position = 0
    for match in _JAMO.finditer(text):
        composed.append(text[position : match.start()])
        offsets.extend(range(position, match.start()))
        composed.append(unicodedata.normalize("NFC", match[0]))
        offsets.append(match.start())
        position = match.end()
    composed.append(text[position:])
    offsets.extend(range(position, len(text) + 1))
    return "".join(composed).translate(_TABLE), offsets


ADDRESSES = [
    re.compile(r"(?:https?://|www\.)[^\s<>\"')\]]++"),
    re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"),
]

_NAMED = (
    r"(?:K-?IFRS|IFRS|IAS|KAS|GAAP|ISO|ASC|ASU|SFAS|Form|Notes?|Article|Section|Item|Chapter|Pages?|"
    r"pp?\.|Figure|Table|Rule|Basel|Tier|Annex|Appendix|Exhibit|Schedule|Document|주석|표|그림|부록|별표|"
    r"바젤|문서|종목코드|사업자등록번호|접수번호)"
)
_INDEX = (
    r"(?:S&P ?500|S&P ?100|KOSPI ?(?:200|100|50)|KOSDAQ ?150|코스피 ?(?:200|100|50)"
    r"|코스닥 ?150|Nikkei ?225|"
    r"닛케이 ?225|Russell ?[123]000|FTSE ?(?:100|250)|Fortune ?500|포춘 ?500|CSI ?300"
    r"|Euro ?Stoxx ?(?:50|600)|"
    r"Stoxx ?(?:50|600)|DAX ?40|CAC ?40)"
)
IDENTIFIERS = [
    re.compile(r"(?m)^[ \t]{0,8}(?:\(?[0-9]{1,2}[.)](?= )|[-•*·](?= ))"),  # list markers
    re.compile(rf"(?<![A-Za-z가-힣]){_INDEX}(?![0-9,.]*[0-9])"),
    re.compile(rf"(?<![A-Za-z가-힣]){_NAMED} ?(?:No\. ?"
               rf"|제 ?)?[0-9]++(?:[.-][0-9A-Z]++)*+호?(?![0-9,.]*[0-9%])"),
    re.compile(r"(?<![가-힣])제 ?[0-9]++(?:[-의][0-9]++)?(?! ?분기)(?:조|항|호|목|기)?"),
    re.compile(r"(?<![0-9-])[0-9]++(?:-[0-9]++){2,}+(?![0-9])"),  # phone, registration
    re.compile(r"(?<![0-9-])(?:0[0-9]{1,2}|1[568][0-9]{2})-[0-9]{3,4}(?:-[0-9]{4})?(?![0-9-])"),
    re.compile(r"(?<![0-9.,])[0-9]++(?:\.[0-9]++){2,}+(?![0-9%])"),  # versions
    re.compile(r"(?<![A-Za-z0-9])[vV][0-9]++(?:\.[0-9]++)*+"),
    re.compile(
        rf"(?<![A-Za-z0-9_])(?!{GLUED_CURRENCY}[0-9])(?=[A-Za-z_]{{1,16}}-?[0-9])"
        r"[A-Za-z_]++-?[0-9][0-9A-Za-z_-]*+"
    ),
    re.compile(r"(?<=[가-힣A-Za-z])\([0-9]{6}\)|(?<=[가-힣A-Za-z] )\([0-9]{6}\)"),  # share codes
    re.compile(r"(?<![0-9,.])[0-9]{1,4}-[A-Z](?![A-Za-z])"),  # 10-K
]  # fmt: skip
TIME = re.compile(
    r"(?<![0-9:.,])(?P<h>[01]?[0-9]|2[0-3]):(?P<m>[0-5][0-9])(?::[0-5][0-9])?(?![0-9:])"
)
KOREAN_TIME = re.compile(
    r"(?:(?P<half>오전|오후) ?)?(?<![0-9.,])(?P<h>1?[0-9]|2[0-4])시(?!간|장|설|스|가|공|세|행"
    r"|점)(?: ?(?P<m>[0-5]?[0-9])분)?"
)
