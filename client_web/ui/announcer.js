/**
 * The two live regions. Status speaks of what the person cannot hear (connected, muted, cut);
 * alert only of what stops the call. Streaming text never goes here.
 */

import { noticeWords } from '../core/notice.js';
import { phaseWords } from '../core/phase.js';
import { byId } from './dom.js';

/** @typedef {import('../core/types.js').State} State */

/** @param {{title: string, hint: string}} words */
const spoken = ({ title, hint }) => `${title}. ${hint}`;

/** Least time between two polite remarks, ms. */
const GAP_MS = 1500;

export function announcer() {
  const status = byId('say-status', HTMLElement);
  const alert = byId('say-alert', HTMLElement);
  /** @type {State|null} */
  let before = null;
  let lastAt = -GAP_MS;
  let pending = '';
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let timer;

  /** @param {string} words */
  function say(words) {
    // The newest remark replaces one that still waits: two in a row would only be behind.
    pending = words;
    clearTimeout(timer);
    timer = setTimeout(() => {
      lastAt = performance.now();
      status.textContent = pending;
    }, Math.max(0, lastAt + GAP_MS - performance.now()));
  }

  /** @param {State} state */
  function update(state) {
    const was = before;
    before = state;
    if (!was || was === state) return;
    if (state.problem && state.problem.code !== was.problem?.code) alert.textContent = `${state.problem.title}. ${state.problem.cause}`;
    if (!state.problem && was.problem) alert.textContent = '';
    if (state.mic !== was.mic && state.mic === 'muted') say('Microphone muted');
    if (was.mic === 'muted' && state.mic === 'live') say('Microphone on');
    if (state.mic === 'lost' && was.mic !== 'lost') say('Microphone lost');
    if (state.outputBlocked && !was.outputBlocked) say('Sound is off. Press Tap to hear.');
    if (state.stopping && !was.stopping) say(phaseWords(state, 0).hint);
    if (state.phase === was.phase) return;
    if (was.phase === 'connecting' && state.phase === 'listening') say(['Connected', noticeWords(state.kept)].filter(Boolean).join('. '));
    if (was.phase === 'reconnecting' && state.phase === 'listening') say('Connected again');
    if (state.phase === 'reconnecting') say(spoken(phaseWords(state, 0)));
    if (state.phase === 'interrupted') say('Interrupted');
    if (state.phase === 'ended') say('Call ended');
  }

  return { update };
}
