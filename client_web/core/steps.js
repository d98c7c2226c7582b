/** The two steps that the reducer and the wire both take: moving the phase, and cutting a reply off. */

import { heardLength } from './captions.js';
import { nextPhase } from './phase.js';

/** @typedef {import('./types.js').State} State */
/** @typedef {import('./types.js').Signal} Signal */

/**
 * @param {State} state
 * @param {Signal} signal
 * @param {number} now
 * @returns {State}
 */
export function move(state, signal, now) {
  const phase = nextPhase(state.phase, signal);
  return phase === state.phase ? state : { ...state, phase, phaseAt: now, note: '' };
}

/**
 * Freeze what is being played where the caption clock stands.
 * @param {State} state
 * @param {import('./types.js').RowStatus} status
 * @param {number} now
 * @returns {State}
 */
export function cutPlaying(state, status, now) {
  const { playing } = state;
  if (!playing) return state;
  const rows = state.rows.map((row) =>
    row.role === 'assistant' && row.responseId === playing.responseId && row.voice
      ? { ...row, heard: heardLength(row, state, now), status }
      : row,
  );
  return { ...state, rows, playing: null };
}
