/** What a new connection has to be told so that the conversation can go on. */

/** @typedef {import('./types.js').Row} Row */

const LAST = 30;

/**
 * The events that put earlier turns into a new session: only what was said and heard, under the
 * ids that it already has, so that no row appears twice.
 * @param {Row[]} rows
 * @param {number} epoch of the new connection
 * @returns {import('./types.js').WireEvent[]}
 */
export function replay(rows, epoch) {
  return rows
    .filter((row) => row.epoch !== epoch && (row.role === 'user' || row.role === 'assistant'))
    .map((row) => ({ row, text: heardText(row) }))
    .filter(({ text }) => text !== '')
    .slice(-LAST)
    .map(({ row, text }) => ({
      type: 'conversation.item.create',
      event_id: `replay_${row.id}`,
      item: {
        id: row.id,
        type: 'message',
        role: row.role,
        content: [{ type: row.role === 'user' ? 'input_text' : 'output_text', text }],
      },
    }));
}

/** @param {Row} row */
function heardText(row) {
  return (row.voice && row.heard !== null ? row.text.slice(0, row.heard) : row.text).trim();
}
