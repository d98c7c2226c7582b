/**
 * The caption clock: how much of a reply counts as heard at a time.
 *
 * Text arrives far ahead of the voice. Until the server says how far the voice has come, characters
 * are spread over the played time at a steady rate, and everything counts once the audio has stopped.
 * The rate is learned from replies that were played to their end.
 */

/** @typedef {import('./types.js').Row} Row */
/** @typedef {import('./types.js').State} State */

/** Characters of English read aloud in one second, roughly. */
export const CHARS_PER_SECOND = 15;
const SLOWEST = 8;
const FASTEST = 26;

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/**
 * The longest cut of at most `length` UTF-16 units that splits no visible character.
 * @param {string} text
 * @param {number} length
 */
export function wholeGraphemes(text, length) {
  if (length >= text.length) return text.length;
  if (length <= 0) return 0;
  return graphemes.segment(text).containing(length)?.index ?? length;
}

/**
 * Where the word that was being said at `length` begins, so that a cut never leaves half a word.
 * @param {string} text
 * @param {number} length
 */
export function wholeWords(text, length) {
  const cut = wholeGraphemes(text, length);
  if (cut === text.length || /\s/.test(text[cut] ?? '')) return cut;
  const space = text.slice(0, cut).search(/\s\S*$/);
  // Scripts without spaces are cut where they stand.
  return space < 0 && cut > 24 ? cut : Math.max(0, space);
}

/**
 * How many characters of a row have been heard.
 * @param {Row} row
 * @param {Pick<State, 'rows'|'playing'|'charsPerSecond'>} state
 * @param {number} now ms
 */
export function heardLength(row, state, now) {
  if (!row.voice) return row.text.length;
  if (row.heard !== null) return wholeGraphemes(row.text, row.heard);
  const { playing } = state;
  if (!playing || playing.responseId !== row.responseId) return 0;
  const elapsedMs = (playing.frozenAt ?? now) - playing.startedAt;
  const spoken = Math.floor((elapsedMs / 1000) * state.charsPerSecond) - lengthBefore(row, state.rows);
  return wholeGraphemes(row.text, spoken);
}

/**
 * Length of what the same response says before this row.
 * @param {Row} row
 * @param {Row[]} rows
 */
function lengthBefore(row, rows) {
  let length = 0;
  for (const other of rows) {
    if (other === row) break;
    if (other.voice && other.responseId === row.responseId) length += other.text.length;
  }
  return length;
}

/**
 * A row in the parts that are shown: heard, then either still to come or never heard.
 * @param {Row} row
 * @param {State} state
 * @param {number} now ms
 * @returns {{heard: string, coming: string, unheard: string}}
 */
export function captionParts(row, state, now) {
  const length = heardLength(row, state, now);
  const heard = row.text.slice(0, length);
  const rest = row.text.slice(length);
  if (row.status === 'interrupted' || row.status === 'stopped') return { heard, coming: '', unheard: rest };
  if (state.settings.atOnce) return { heard: row.text, coming: '', unheard: '' };
  return { heard, coming: rest, unheard: '' };
}

/**
 * The rate after one more reply was played to its end.
 * @param {number} rate before
 * @param {number} characters
 * @param {number} playedMs
 */
export function learnedRate(rate, characters, playedMs) {
  if (playedMs < 1000 || characters < 20) return rate;
  const measured = Math.min(FASTEST, Math.max(SLOWEST, characters / (playedMs / 1000)));
  return rate * 0.6 + measured * 0.4;
}
