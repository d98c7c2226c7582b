"""English text to the phonemes that Kokoro was trained on, by espeak-ng.

The library comes with ``espeakng-loader``, so nothing has to be installed and one path serves every
Python version; it is called through ctypes. espeak-ng drops punctuation, which Kokoro uses for rhythm,
so text is cut at punctuation, each piece is turned into phonemes, and the marks are put back between.
The spelling of espeak's phonemes in Kokoro's alphabet is that of ``misaki.espeak.EspeakFallback``.
"""

from __future__ import annotations

import ctypes
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

MARKS = ';:,.!?—…"()“”'
"""Punctuation that Kokoro knows."""

_AUDIO_OUTPUT_RETRIEVAL = 1
_CHARS_UTF8 = 1
_PHONEMES_IPA_TIED = 0x02 | 0x80 | ord("^") << 8
"""International alphabet, a caret between the letters of one sound (speak_lib.h)."""

_MARK = re.compile(r"([,;:.!?…]+(?=[\s\"'”’)\]]|$)|[—\"“”()])")
_TITLE = re.compile(r"\b(Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Mt|Lt|Gen|Capt)\.(?=\s)")
_INITIALS = re.compile(r"(?<=\.[A-Za-z])\.(?=\s+[a-z])")
_LATIN = (
    (re.compile(r"\bi\.e\."), "that is"),
    (re.compile(r"\be\.g\."), "for example"),
    (re.compile(r"\bvs\."), "versus"),
)
_LANGUAGE_FLAG = re.compile(r"\([a-z-]+\)")
_UNSTRESSED_I = re.compile(r"(?<!\S)I(?=(?:əm|[mvdl])?(?!\S))")
"""The word I (I'm, I've): without the stress it has in misaki's lexicon, Kokoro swallows it."""
_SYLLABIC = "\u0329"

_SPELLING = (
    ("ʔˌn\u0329", "ʔn"), ("ʔn\u0329", "ʔn"), ("a^ɪ", "I"), ("a^ʊ", "W"), ("d^ʒ", "ʤ"), ("e^ɪ", "A"),
    ("t^ʃ", "ʧ"), ("ɔ^ɪ", "Y"), ("ə^l", "ᵊl"), ("ʲo", "jo"), ("ʲə", "jə"), ("e^ə", "ɛ^ə"), ("e", "A"),
    ("ʲ", ""), ("ɚ", "əɹ"), ("r", "ɹ"), ("x", "k"), ("ç", "k"), ("ɐ", "ə"), ("ɬ", "l"), ("\u0303", ""),
)  # fmt: skip
_BRITISH = (("ɛ^ə", "ɛː"), ("iə", "ɪə"), ("ə^ʊ", "Q"))
_AMERICAN = (("o^ʊ", "O"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪə", "iə"), ("ː", ""))
_LAST = (("o", "ɔ"), ("ɾ", "T"), ("ʔ", "t"), ("^", ""), ("-", ""))


def phonemes(text: str, *, british: bool = False) -> list[str]:
    """Clauses of ``text`` in Kokoro's alphabet, each with the punctuation that follows it.

    Joined with spaces they are the whole text. Scripts that English voices cannot read, emoji and
    lone punctuation give nothing, so the list may be empty. Safe to call from several threads.
    Raises OSError when the espeak-ng library cannot be loaded.
    """
    say = _espeak()
    pieces = _MARK.split(_readable(text))
    return list(_clauses(pieces, lambda piece: _respelt(say(piece, british), british)))


def _readable(text: str) -> str:
    """``text`` without what espeak would spell out: other scripts, emoji, control characters."""
    text = unicodedata.normalize("NFC", text).replace("‘", "'").replace("’", "'")
    text = text.translate(_FULL_WIDTH).replace("«", "“").replace("»", "”")
    text = " ".join("".join(c if _known(c) else " " for c in text).split())
    for abbreviation, words in _LATIN:
        text = abbreviation.sub(words, text)
    return _TITLE.sub(r"\1", _INITIALS.sub("", text))


_FULL_WIDTH = str.maketrans(
    {"，": ", ", "。": ". ", "！": "! ", "？": "? ", "：": ": ", "；": "; ", "、": ", ", "–": "—"}
)


def _known(character: str) -> bool:
    if ord(character) < 0x250:
        return character.isprintable()
    if character in MARKS or unicodedata.category(character) == "Sc":
        return True
    return unicodedata.name(character, "").startswith(("LATIN", "GREEK", "COMBINING"))


def _clauses(pieces: list[str], say: Callable[[str], str]) -> Iterator[str]:
    """Pieces alternate between words and marks."""
    clause, spoken = "", False
    for index, piece in enumerate(pieces):
        if index % 2:
            mark = piece[0]
            clause += mark if spoken or mark in '(“"' else ""
            if spoken and mark in ";:,.!?—…":
                yield " ".join(clause.split())
                clause, spoken = "", False
        elif any(c.isalnum() or unicodedata.category(c) in ("Sc", "Sm") for c in piece):
            sounds = say(piece)
            spoken = spoken or bool(sounds)
            clause += f"{' ' * piece[0].isspace()}{sounds}{' ' * piece[-1].isspace()}"
        else:
            clause += piece[:1] if piece[:1].isspace() else ""
    if spoken:
        yield " ".join(clause.split())


def _respelt(ipa: str, british: bool) -> str:
    for old, new in _SPELLING:
        ipa = ipa.replace(old, new)
    ipa = re.sub(rf"(\S){_SYLLABIC}", r"ᵊ\1", ipa).replace(_SYLLABIC, "")
    for old, new in (*(_BRITISH if british else _AMERICAN), *_LAST):
        ipa = ipa.replace(old, new)
    return _UNSTRESSED_I.sub("ˌI", ipa.strip())


@cache
def _espeak() -> Callable[[str, bool], str]:
    """Initialise the library once per process; what it returns takes text and whether it is British.

    espeak-ng keeps its voice and its buffers in globals, hence the lock.
    """
    import espeakng_loader  # type: ignore[import-untyped]

    library = ctypes.CDLL(espeakng_loader.get_library_path())
    to_phonemes = library.espeak_TextToPhonemes
    to_phonemes.restype = ctypes.c_char_p
    to_phonemes.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int]
    data = str(espeakng_loader.get_data_path()).encode()
    if library.espeak_Initialize(_AUDIO_OUTPUT_RETRIEVAL, 0, data, 0) < 0:
        raise OSError("espeak-ng could not be initialised")
    lock = threading.Lock()

    def say(text: str, british: bool) -> str:
        buffer = ctypes.create_string_buffer(text.encode())
        rest = ctypes.c_void_p(ctypes.addressof(buffer))
        spoken = []
        with lock:
            library.espeak_SetVoiceByName(b"gmw/en" if british else b"gmw/en-US")
            while rest.value:
                piece: bytes | None = to_phonemes(ctypes.byref(rest), _CHARS_UTF8, _PHONEMES_IPA_TIED)
                spoken.append((piece or b"").decode())
        return _LANGUAGE_FLAG.sub("", " ".join(filter(None, spoken)))

    return say
