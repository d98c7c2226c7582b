/** What the page tells the server, as events. */

/** @typedef {import('./types.js').WireEvent} WireEvent */

/**
 * A typed turn and the wish for an answer.
 * @param {string} id
 * @param {string} text
 * @returns {WireEvent[]}
 */
export function typedTurn(id, text) {
  const content = [{ type: 'input_text', text }];
  return [
    { type: 'conversation.item.create', item: { id, type: 'message', role: 'user', content } },
    { type: 'response.create' },
  ];
}

/**
 * Stop an answer: both the making of it and the sound that is already on its way.
 * @param {Pick<import('./types.js').State, 'activeResponse'|'playing'>} state
 * @returns {WireEvent[]}
 */
export function silence({ activeResponse, playing }) {
  /** @type {WireEvent[]} */
  const events = [];
  if (activeResponse) events.push({ type: 'response.cancel' });
  if (activeResponse || playing) events.push({ type: 'output_audio_buffer.clear' });
  return events;
}

/**
 * Ask how much of a cut answer the server counts as heard, rather than guess.
 * @param {string} itemId
 * @returns {WireEvent}
 */
export function askHeard(itemId) {
  return { type: 'conversation.item.retrieve', event_id: `replay_${itemId}`, item_id: itemId };
}
