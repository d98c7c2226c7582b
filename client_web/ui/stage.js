/** The stage: orb, the state in words, the newest caption of each side. */

import { captionParts } from '../core/captions.js';
import { LIVE, phaseWords } from '../core/phase.js';
import { byId, setAttribute, setHidden, setText } from './dom.js';
import { Orb } from './orb.js';

/** @typedef {import('../core/types.js').State} State */

/** The end of a caption that fits the stage, in characters. */
const TAIL = 170;

export function stageView() {
  const main = /** @type {HTMLElement} */ (document.querySelector('main'));
  const title = byId('state-title', HTMLElement);
  const hint = byId('state-hint', HTMLElement);
  const orb = new Orb(byId('orb', HTMLCanvasElement));
  const captions = { user: byId('caption-user', HTMLElement), assistant: byId('caption-assistant', HTMLElement) };

  /**
   * @param {State} state
   * @param {number} now
   */
  function update(state, now) {
    setAttribute(main, 'data-phase', state.phase);
    setAttribute(main, 'data-mode', state.mode);
    setAttribute(document.body, 'data-phase', state.phase);
    const words = phaseWords(state, now);
    setText(title, words.title);
    setText(hint, words.hint);
    orb.setPhase(state.phase);
    for (const side of /** @type {const} */ (['user', 'assistant'])) caption(captions[side], side, state, now);
  }

  return { update, orb };
}

/**
 * @param {HTMLElement} element
 * @param {'user'|'assistant'} side
 * @param {State} state
 * @param {number} now
 */
function caption(element, side, state, now) {
  const shown = LIVE.includes(state.phase) || state.phase === 'reconnecting';
  const row = shown ? state.rows.findLast(({ role, epoch }) => role === side && epoch === state.epoch) : undefined;
  const text = row ? captionParts(row, state, now).heard : '';
  setHidden(element, text === '');
  const holder = element.lastElementChild;
  if (holder) setText(holder, tail(text));
}

/** @param {string} text */
function tail(text) {
  if (text.length <= TAIL) return text;
  const from = text.indexOf(' ', text.length - TAIL);
  return `… ${text.slice(from < 0 ? -TAIL : from + 1)}`;
}
