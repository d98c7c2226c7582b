/** The call buttons. Each keeps its name; pressed and hidden say the rest. */

import { LIVE } from '../core/phase.js';
import { byId, setAttribute, setHidden, setText } from './dom.js';
import { setIcon } from './icons.js';

/** @typedef {import('../core/types.js').State} State */

/**
 * @typedef {object} ControlHandlers
 * @property {() => void} onstart
 * @property {() => void} onend
 * @property {(muted: boolean) => void} onmute
 * @property {() => void} onstop
 * @property {() => void} onhear
 */

const BUSY = ['asking', 'connecting', 'reconnecting', ...LIVE];

/** @param {ControlHandlers} handlers */
export function controlsView(handlers) {
  const start = byId('start', HTMLButtonElement);
  const end = byId('end', HTMLButtonElement);
  const mute = byId('mute', HTMLButtonElement);
  const stop = byId('stop', HTMLButtonElement);
  const hear = byId('hear', HTMLButtonElement);
  const meter = byId('meter', HTMLElement);
  const endLabel = byId('end-label', HTMLElement);
  const muteIcon = byId('mute-icon', HTMLElement);
  setIcon(byId('start-icon', HTMLElement), 'mic');
  setIcon(byId('end-icon', HTMLElement), 'hangUp');
  setIcon(byId('stop-icon', HTMLElement), 'stop');

  start.addEventListener('click', handlers.onstart);
  end.addEventListener('click', handlers.onend);
  stop.addEventListener('click', handlers.onstop);
  hear.addEventListener('click', handlers.onhear);
  mute.addEventListener('click', () => handlers.onmute(mute.getAttribute('aria-pressed') !== 'true'));

  /** @param {State} state */
  function update(state) {
    const busy = BUSY.includes(state.phase);
    const swapped = start.hidden !== busy;
    const hadFocus = document.activeElement === start || document.activeElement === end;
    setHidden(start, busy);
    setHidden(end, !busy);
    // Start and End are one place for the keyboard.
    if (swapped && hadFocus) (busy ? end : start).focus();
    start.disabled = state.phase === 'blocked';
    setText(endLabel, LIVE.includes(state.phase) || state.phase === 'reconnecting' ? 'End call' : 'Cancel');
    const muted = state.mic === 'muted';
    setHidden(mute, !busy || (state.mic !== 'live' && !muted));
    setAttribute(mute, 'aria-pressed', String(muted));
    setIcon(muteIcon, muted ? 'micOff' : 'mic');
    setHidden(stop, !LIVE.includes(state.phase));
    stop.disabled = !state.playing && !state.activeResponse;
    setHidden(hear, !(state.outputBlocked && busy));
  }

  /** @param {number} level 0 to 1 */
  function level(level) {
    meter.style.setProperty('--level', level.toFixed(3));
    setAttribute(meter, 'aria-valuenow', String(Math.round(level * 20) * 5));
  }

  return { update, level };
}
