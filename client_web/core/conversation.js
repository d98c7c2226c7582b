/**
 * The rows of the conversation: where each stands, what it says, and how much of it was heard.
 *
 * Every function takes rows and gives new rows. Rows are put where the server says
 * (`previous_item_id`), not where they happen to arrive: a transcription may come after the answer.
 */

import { wholeWords } from './captions.js';

/** @typedef {import('./types.js').Row} Row */
/** @typedef {import('./types.js').WireEvent} WireEvent */

/**
 * @param {Partial<Row> & Pick<Row, 'id'|'role'>} fields
 * @returns {Row}
 */
export function newRow(fields) {
  return {
    epoch: 0,
    status: 'streaming',
    text: '',
    voice: false,
    heard: null,
    responseId: null,
    firstSoundMs: null,
    reason: '',
    name: '',
    atDate: 0,
    ...fields,
  };
}

/**
 * Put a row behind the one the server names.
 *
 * null means the head of this connection's conversation: rows of an earlier connection stay in
 * front. An unknown or absent name means the end.
 * @param {Row[]} rows without the row
 * @param {Row} row
 * @param {string|null|undefined} previousId
 * @returns {Row[]}
 */
export function place(rows, row, previousId) {
  let index = rows.length;
  if (previousId === null) {
    const head = rows.findIndex((other) => other.epoch === row.epoch && other.role !== 'note');
    if (head >= 0) index = head;
  } else if (previousId !== undefined) {
    const previous = rows.findIndex((other) => other.id === previousId);
    if (previous >= 0) index = previous + 1;
  }
  return [...rows.slice(0, index), row, ...rows.slice(index)];
}

/**
 * @param {Row[]} rows
 * @param {string} id
 * @param {(row: Row) => Partial<Row>} change
 * @returns {Row[]}
 */
export function update(rows, id, change) {
  return rows.map((row) => (row.id === id ? { ...row, ...change(row) } : row));
}

/**
 * Make the row if it is unknown, and move it if the server has it elsewhere.
 * @param {Row[]} rows
 * @param {Row} fresh as it would be if it were new
 * @param {string|null|undefined} previousId
 * @returns {Row[]}
 */
export function ensure(rows, fresh, previousId) {
  const index = rows.findIndex((row) => row.id === fresh.id);
  if (index < 0) return place(rows, fresh, previousId);
  const known = /** @type {Row} */ (rows[index]);
  if (!previousId || known.epoch !== fresh.epoch || rows[index - 1]?.id === previousId) return rows;
  if (!rows.some((row) => row.id === previousId)) return rows;
  return place(
    rows.filter((row) => row !== known),
    known,
    previousId,
  );
}

/**
 * The words of an item, whatever its parts are called; null when it carries none.
 * @param {WireEvent} item
 * @returns {string|null}
 */
export function itemText(item) {
  const words = (Array.isArray(item.content) ? item.content : [])
    .map((/** @type {any} */ part) => part?.transcript ?? part?.text)
    .filter((/** @type {unknown} */ text) => typeof text === 'string');
  return words.length ? words.join(' ') : null;
}

/**
 * Take over an item that the server says is in the conversation.
 * @param {Row[]} rows
 * @param {WireEvent} item
 * @param {string|null|undefined} previousId
 * @param {number} epoch
 * @param {number} date
 * @returns {Row[]}
 */
export function addItem(rows, item, previousId, epoch, date) {
  if (item.type === 'function_call_output') return toolAnswered(rows, item);
  if (item.role === 'system') return rows;
  const spoken = (item.content ?? []).some((/** @type {any} */ part) => part?.type === 'input_audio');
  const role = item.type === 'function_call' ? 'tool' : item.role === 'user' ? 'user' : 'assistant';
  const status = role === 'user' ? (spoken ? 'transcribing' : 'done') : 'streaming';
  const fresh = newRow({ id: item.id, role, status, epoch, atDate: date, name: item.name ?? '' });
  return settleItem(ensure(rows, fresh, previousId), item, epoch);
}

/**
 * Let an item's own contents have the last word about its row.
 * @param {Row[]} rows
 * @param {WireEvent} item
 * @param {number} epoch
 * @returns {Row[]}
 */
export function settleItem(rows, item, epoch) {
  const final = itemText(item);
  return update(rows, item.id, (row) => {
    if (row.epoch !== epoch) return {};
    /** @type {Partial<Row>} */
    const change = {};
    if (row.role === 'user' && row.status === 'sending') change.status = 'done';
    if (row.role === 'tool' && item.status === 'completed') change.text = item.arguments ?? row.text;
    if (row.role === 'assistant' && item.status === 'completed' && row.status === 'streaming') change.status = 'done';
    return final === null ? change : { ...change, ...withFinalText(row, final) };
  });
}

/**
 * A final text that is the beginning of what we hold says how much was heard; any other replaces it.
 * @param {Row} row
 * @param {string} final
 * @returns {Partial<Row>}
 */
function withFinalText(row, final) {
  if (final === row.text || (final === '' && row.role === 'user')) return {};
  if (row.role === 'user') return { text: final, status: 'done' };
  const cut = row.status === 'interrupted' || row.status === 'stopped';
  if (row.text.startsWith(final)) return cut && row.voice ? { heard: final.length } : {};
  return { text: final };
}

/**
 * @param {Row[]} rows
 * @param {WireEvent} item a function_call_output
 * @returns {Row[]}
 */
function toolAnswered(rows, item) {
  return rows.map((row) =>
    row.role === 'tool' && row.status === 'streaming' ? { ...row, status: 'done', reason: String(item.output ?? '') } : row,
  );
}

/**
 * Text of the assistant as it is made.
 * @param {Row[]} rows
 * @param {WireEvent} event a delta or a done
 * @param {boolean} voice
 * @param {number} epoch
 * @param {number} date
 * @returns {Row[]}
 */
export function assistantText(rows, event, voice, epoch, date) {
  const fresh = newRow({ id: event.item_id, role: 'assistant', epoch, atDate: date });
  return update(ensure(rows, fresh, undefined), event.item_id, (row) => {
    const base = { voice, responseId: event.response_id ?? row.responseId };
    if (typeof event.delta === 'string') return { ...base, text: row.text + event.delta };
    const final = event.transcript ?? event.text;
    return typeof final === 'string' ? { ...base, ...withFinalText(row, final) } : base;
  });
}

/**
 * Cut a reply where its sound ended.
 * @param {Row[]} rows
 * @param {string} id
 * @param {number} characters that fit into the audio that was sent
 * @returns {Row[]}
 */
export function truncate(rows, id, characters) {
  return update(rows, id, (row) => ({
    heard: row.voice ? wholeWords(row.text, characters) : row.text.length,
    status: row.status === 'stopped' ? 'stopped' : 'interrupted',
  }));
}

/**
 * Drop empty shells that a cancelled response has left behind.
 * @param {Row[]} rows
 * @param {string} responseId
 */
export function withoutEmpty(rows, responseId) {
  return rows.filter((row) => row.responseId !== responseId || row.role !== 'assistant' || row.text !== '');
}
