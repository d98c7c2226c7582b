/** Puts the views together: they are drawn once a frame, and only then. */

import { noticeWords } from '../core/notice.js';
import { LIVE, shownHealth } from '../core/phase.js';
import { announcer } from './announcer.js';
import { byId, setAttribute, setHidden, setText } from './dom.js';

/** @typedef {import('../core/types.js').State} State */
/** @typedef {{update: (state: State, now: number) => void}} View */

/** @type {Record<import('../core/types.js').Health, string>} */
const HEALTH_WORDS = {
  unknown: 'Looking for the server',
  ready: 'Server ready',
  loading: 'Models are loading',
  stopping: 'Server is being updated',
  down: 'Server not reachable',
};

/** Between two pictures of the orb, ms: a slow thing needs few, and batteries are small. */
const MOVING_MS = 30;
const RESTING_MS = 80;
/** @type {import('../core/types.js').Phase[]} */
const RESTING = ['idle', 'blocked', 'error', 'ended'];

/**
 * @param {object} parts
 * @param {() => State} parts.state
 * @param {(listener: (state: State) => void) => void} parts.subscribe
 * @param {View[]} parts.views
 * @param {ReturnType<typeof import('./stage.js').stageView>} parts.stage
 * @param {{level: (level: number) => void}} parts.controls
 * @param {import('../call/levels.js').LevelMeter} parts.meter
 */
export function runApp({ state, subscribe, views, stage, controls, meter }) {
  const health = byId('health', HTMLElement);
  const healthWords = byId('health-words', HTMLElement);
  const timer = byId('timer', HTMLElement);
  const notice = byId('notice', HTMLElement);
  const stillness = matchMedia('(prefers-reduced-motion: reduce)');
  const { update: announce } = announcer();
  let stale = true;
  let drawnAt = 0;
  let orbAt = 0;

  // The phase must be right in the page as soon as it is right in the state, also in a hidden tab.
  subscribe((next) => {
    stale = true;
    announce(next);
    draw(performance.now());
  });

  /** @param {number} now */
  function draw(now) {
    const current = state();
    stale = false;
    drawnAt = now;
    for (const view of views) view.update(current, now);
    const shown = shownHealth(current);
    setAttribute(health, 'data-health', shown);
    setText(healthWords, HEALTH_WORDS[shown]);
    setText(notice, noticeWords(current.kept));
    const calling = current.callAt !== null && (LIVE.includes(current.phase) || current.phase === 'reconnecting');
    setHidden(timer, !calling);
    if (calling) setText(timer, clock(now - (current.callAt ?? now)));
  }

  /** @param {number} now */
  function frame(now) {
    const current = state();
    // Captions move with the voice; everything else can wait for the next quarter of a second.
    if (stale || current.playing || now - drawnAt > 250) draw(now);
    const levels = meter.read(now);
    const muted = current.mic !== 'live';
    if (now - orbAt >= (RESTING.includes(current.phase) ? RESTING_MS : MOVING_MS)) {
      orbAt = now;
      stage.orb.draw(now, muted ? 0 : levels.mic, levels.out, stillness.matches || current.settings.calm);
    }
    controls.level(muted ? 0 : levels.mic);
    requestAnimationFrame(frame);
  }

  draw(performance.now());
  requestAnimationFrame(frame);
}

/** @param {number} ms */
function clock(ms) {
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}
