"""Text as a voice should read it: without markup, with symbols, money, dates and addresses in words.

A pure function for the output stage. The transcript stays as it is; this is only what the voice gets.
Voices read plain numbers, ordinals and titles well by themselves, so only what they get wrong is spelt
out. Everything that says words is English; for other languages markup goes and the rest stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Rule = tuple[re.Pattern[str], "str | Callable[[re.Match[str]], str]"]


def speakable(text: str, language: str = "en") -> str:
    """What a voice is given for ``text``; "" when nothing in it can be pronounced.

    ``text`` may be a piece of a longer answer, with one half of a pair of marks. ``language`` is
    BCP 47; empty means English.
    """
    english = language.lower().startswith("en") or not language
    for pattern, replacement in (*_MARKUP, *(_ENGLISH if english else ()), *_TIDY):
        text = pattern.sub(replacement, text)
    return text if any(c.isalnum() for c in text) else ""


def _rule(
    pattern: str, replacement: str | Callable[[re.Match[str]], str], flags: re.RegexFlag = re.NOFLAG
) -> Rule:
    return re.compile(pattern, flags), replacement


# --- markup ------------------------------------------------------------------------------------------

_TAGS = "b|i|u|s|em|strong|br|p|ul|ol|li|code|pre|span|div|sub|sup|a|h[1-6]|hr|table|tr|td|th|blockquote"
_EMOJI = (
    "[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u23e9-\u23fa\u231a\u231b\ufe0e\ufe0f\u200d\u20e3"
    "\U000e0020-\U000e007f]"
)


def _cells(match: re.Match[str]) -> str:
    return ", ".join(filter(None, (cell.strip() for cell in match[1].split("|")))) + "."


_MARKUP: tuple[Rule, ...] = (
    _rule(r"^[ \t]*(?:```|~~~)[\w+#.-]*[ \t]*$", "", re.MULTILINE),
    _rule(r"```+|~~~+", " "),
    _rule(rf"</?(?:{_TAGS})(?:\s[^<>]*)?/?>", " ", re.IGNORECASE),
    _rule(r"!?\[([^\[\]]*)\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+\"[^\"]*\")?\)", r"\1"),
    _rule(r"\[\^[^\]\s]+\]:?", ""),
    _rule(r"^[ \t]*\|?[ \t]*:?-{3,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*$", "", re.MULTILINE),
    _rule(r"^[ \t]*\|(.*)\|[ \t]*$", _cells, re.MULTILINE),
    _rule(r"^[ \t]*(?:[*_-][ \t]*){3,}$", "", re.MULTILINE),
    _rule(r"^[ \t]*#{1,6}[ \t]+(.*?)[ \t#]*$", r"\1\n\n", re.MULTILINE),
    _rule(r"^[ \t]*(?:>[ \t]+)+", "", re.MULTILINE),
    _rule(r"^[ \t]*[-*+•][ \t]+(?:\[[ xX]\][ \t]+)?", "", re.MULTILINE),
    _rule(r"^[ \t]*(\d{1,3})[.)][ \t]+(?=\S)", r"\1, ", re.MULTILINE),
    _rule(r"(?<![:\w]):[a-z][a-z0-9_+-]*:(?![:\w])", ""),
    _rule(r"(?<!\d)(?<!\d )<3+(?!\d)", ""),
    _rule(rf"{_EMOJI}+", ""),
)

# --- English words -----------------------------------------------------------------------------------

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_CURRENCIES = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny"), "¥": ("yen", "")}
_SCALES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion", "t": "trillion"}
_UNITS = {
    "kg": "kilogram", "mg": "milligram", "g": "gram", "km": "kilometer", "cm": "centimeter",
    "mm": "millimeter", "m": "meter", "mi": "mile", "ft": "foot", "lb": "pound", "lbs": "pound",
    "oz": "ounce", "L": "liter", "l": "liter", "ml": "milliliter", "mL": "milliliter", "kB": "kilobyte",
    "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte", "Hz": "hertz",
    "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "W": "watt", "kW": "kilowatt",
    "kWh": "kilowatt hour", "ms": "millisecond", "min": "minute", "hrs": "hour", "h": "hour",
}  # fmt: skip
_UNCOUNTED = {"hertz": "hertz", "kilohertz": "kilohertz", "megahertz": "megahertz", "gigahertz": "gigahertz"}
_UNCOUNTED["foot"] = "feet"
_RATES = {"km/h": "kilometers per hour", "mph": "miles per hour", "m/s": "meters per second"}
_FRACTIONS = {"1/2": "one half", "1/3": "one third", "2/3": "two thirds", "1/4": "one quarter"}
_FRACTIONS |= {"3/4": "three quarters", "½": "one half", "¼": "one quarter", "¾": "three quarters"}
_FRACTIONS |= {"⅓": "one third", "⅔": "two thirds", "24/7": "24 7"}
_SYMBOLS = {
    "×": "times", "÷": "divided by", "≤": "at most", "≥": "at least", "≠": "is not equal to",
    "≈": "about", "±": "plus or minus", "→": "to", "√": "the square root of", "∞": "infinity",
    "²": "squared", "³": "cubed", "π": "pi", "&": "and", "−": "minus",
}  # fmt: skip
_ROMAN = {"I": 1, "V": 5, "X": 10}
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"


def _plural(amount: str, unit: str) -> str:
    if amount == "1" or unit == "yen":
        return unit
    return _UNCOUNTED.get(unit) or {"penny": "pence"}.get(unit) or f"{unit}s"


def _money(match: re.Match[str]) -> str:
    amount, scale = match["amount"].replace(",", ""), match["scale"]
    unit, small = _CURRENCIES[match["sign"]]
    whole, _, decimals = amount.partition(".")
    if scale:
        return f"{amount} {_SCALES.get(scale.lower(), scale)} {_plural('', unit)}"
    if small and len(decimals) == 2:
        cents = str(int(decimals))
        parts = [f"{whole} {_plural(whole, unit)}"] if int(whole) or cents == "0" else []
        parts += [f"{cents} {_plural(cents, small)}"] if cents != "0" else []
        return " and ".join(parts)
    return f"{amount} {_plural(amount, unit)}"


def _date(match: re.Match[str]) -> str:
    year, month, day = (int(part) for part in match.groups())
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    return f"{_MONTHS[month - 1]} {day}{_ordinal(day)}, {year}"


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def _time(match: re.Match[str]) -> str:
    hour, minute, half = int(match[1]), match[2], match[3]
    if hour > 24 or int(minute) > 59:
        return match[0]
    spoken = {"00": "" if half else "o'clock"}.get(minute, f"oh {minute[1]}" if minute[0] == "0" else minute)
    return f"{hour} {spoken} {half[0].upper() + 'M' if half else ''}".strip()


def _phone(match: re.Match[str]) -> str:
    groups = re.findall(r"\d+", match[0])
    plus = "plus " if match[0].startswith("+") else ""
    return plus + ", ".join(" ".join(group) for group in groups)


def _address(match: re.Match[str]) -> str:
    host, path = match["host"], re.split(r"[?#]", match["path"] or "")[0]
    words = [host.removeprefix("www."), *filter(None, path.split("/"))]
    short = words if sum(map(len, words)) <= 40 else words[:1]
    return re.sub(r"(?<=\w)\.(?=\w)", " dot ", " slash ".join(short)) + match["after"]


def _dotted(match: re.Match[str]) -> str:
    numbers = match["numbers"].split(".")
    joint = " dot " if len(numbers) == 4 and not match["v"] else " point "
    return f"{'version ' if match['v'] else ''}{joint.join(numbers)}"


def _measure(match: re.Match[str]) -> str:
    amount, unit = match[1], match[2]
    return f"{amount} {_RATES[unit]}" if unit in _RATES else f"{amount} {_plural(amount, _UNITS[unit])}"


def _roman(match: re.Match[str]) -> str:
    values = [_ROMAN[letter] for letter in match[0]]
    pairs = zip(values, [*values[1:], 0], strict=True)
    return str(sum(-here if here < after else here for here, after in pairs))


def _longest_first(words: dict[str, str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_ENGLISH: tuple[Rule, ...] = (
    _rule(r"\b(?:https?://|(?=www\.))(?P<host>[\w.-]+\w)(?::\d+)?(?P<path>/[^\s<>()\[\]]*?)?"
          r"(?P<after>[.,;:!?]?(?=\s|$|[<>()\[\]\"']))", _address),
    _rule(r"\b([\w.+-]+)@((?:[\w-]+\.)+\w+)",
          lambda m: f"{m[1]} at {m[2]}".replace(".", " dot ").replace("_", " underscore ")),
    _rule(r"(?<![\w.])(?P<v>[vV])?(?P<numbers>\d+(?:\.\d+){2,3})(?![\w.]*\w)", _dotted),
    _rule(r"(?<![\w.])(?P<v>[vV])(?P<numbers>\d+(?:\.\d+)?)\b", _dotted),
    _rule(r"\b(\d{4})-(\d{2})-(\d{2})\b", _date),
    _rule(r"(?<!\w)(?:\+\d{1,3}[ .-]?)?(?:\(\d{2,4}\)[ .-]?|\d{3}[ .-])\d{3}[ .-]\d{4}\b"
          r"|\+\d{1,3}(?:[ .-]?\d{2,4}){2,4}\b", _phone),
    _rule(r"\b(\d{1,2}):(\d{2})(?!:?\d)(?:\s*([aApP])\.?[mM]\b(?:\.(?=\s+[a-z]|,))?)?", _time),
    _rule(rf"(?P<sign>[$€£¥])\s?(?P<amount>{_NUMBER})"
          r"(?:(?P<scale>\s?(?:[kKMBT]|bn)\b|\s(?:thousand|million|billion|trillion)\b))?",
          lambda m: _money(m)),
    _rule(r"(\d),(?=\d{3}(?!\d))", r"\1"),
    _rule(rf"(?<![\d/])(?:{_longest_first(_FRACTIONS)})(?![\d/])", lambda m: _FRACTIONS[m[0]]),
    _rule(rf"(?<![\w.])(\d+(?:\.\d+)?) ?({_longest_first(_RATES | _UNITS)})(?![\w/])", _measure),
    _rule(r"°\s?C\b", " degrees Celsius"),
    _rule(r"°\s?F\b", " degrees Fahrenheit"),
    _rule(r"°", " degrees"),
    _rule(r"(?<=\d)\s?%", " percent"),
    _rule(r"(?<!\w)#(?=\d)", "number "),
    _rule(r"(?<!\w)~\s?(?=\d)", "about "),
    _rule(r"(?<=[\d)])\s?\*\s?(?=[\d(])|(?<=\w) \* (?=\w)", " times "),
    _rule(r"(?<=\d) [-–−] (?=\d)|(?<=[a-z]) [−] (?=\w)", " minus "),
    _rule(r"(?<![\w-])(\d+)\s?[-–]\s?(?=\d+(?![\w-]))", r"\1 to "),
    _rule(r"(?<=\w)\^2\b", " squared"),
    _rule(r"(?<=\w)\^3\b", " cubed"),
    _rule(r"(?<=\w)\^(?=\w)", " to the power of "),
    _rule(r"\s?<=\s?", " at most "),
    _rule(r"\s?>=\s?", " at least "),
    _rule(r"\s?!=\s?", " is not equal to "),
    _rule(r"\s?(?:->|=>)\s?", " to "),
    _rule(r"\s?={1,3}\s?", " equals "),
    _rule(r"(?<=[\w)])\s?<\s?(?=[\w(-])", " is less than "),
    _rule(r"(?<=[\w)])\s?>\s?(?=[\w(-])", " is greater than "),
    _rule(r"(?<=\d)\s?\+\s?(?=\d)|(?<=\w) \+ (?=\w)", " plus "),
    _rule(r"(?<=\d)\s?/\s?(?=\d)", " over "),
    _rule(r"\band/or\b", "and or"),
    _rule(r"(?<=[A-Za-z])/(?=[A-Za-z])", " or "),
    _rule(r"(?<=[A-Za-z_])\.(?=(?:com|org|net|io|dev|ai|co|py|js|txt|md|json|html)\b)", " dot "),
    _rule(r"(?<!\bthe )(?<!\ban )(?<!\ba )\b(?:I{2,3}|IV|VI{1,3}|IX|X[IV]{1,4}|XIX|XX)\b(?! drip)", _roman),
    _rule("|".join(map(re.escape, _SYMBOLS)), lambda m: f" {_SYMBOLS[m[0]]} "),
)  # fmt: skip

# --- what is left of either ----------------------------------------------------------------------------

_TIDY: tuple[Rule, ...] = (
    _rule(r"(?<=\w)_+(?=\w)", " "),
    _rule(r"[*`_~|\\{}<>^]+", ""),
    _rule(r"\[([^\[\]]*)\]", r"\1"),
    _rule(r"(?<=[^\s.,;:!?…])[ \t]*\n\s*\n\s*(?=\S)", ". "),
    _rule(r"(?<=[^\s.,;:!?…])[ \t]*\n\s*(?=\S)", ", "),
    _rule(r"\s+", " "),
    _rule(r"\s+(?=[.,;:!?](?:\s|$))", ""),
    _rule(r"\(\s*\)|\"\s*\"", ""),
    _rule(r"^[\s,;:.!?…-]+(?=\s)|^\s+|\s+$", ""),
)
