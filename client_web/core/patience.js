/**
 * Whether a call that is not up is tried again by itself, when, and what the person is told meanwhile.
 *
 * Pure: time is an argument. Codes are those of `problems.js`.
 */

import { KEY_CODES } from './problems.js';

/** Pauses before each new try where the server does not say, ms; the last one over and over. */
const BACKOFF_MS = [500, 1000, 2000, 4000];
/** How long a server is looked for that was there, ms: a restart takes a minute or two. */
export const PATIENCE_MS = 180_000;

/** What passes: the server was there a moment ago. */
const PASSING = ['busy', 'too-often', 'server-starting', 'server-stopping', 'dropped'];
/** Those of them after which it is no wonder that the server does not answer. */
const RESTARTING = ['server-starting', 'server-stopping'];

export class Patience {
  #until = 0;
  #tries = 0;
  #reason = '';

  /**
   * The call did not come up, or is gone.
   * @param {string} code why
   * @param {number|null} retryAfterMs when the server wants to be asked again
   * @param {number} now
   * @returns {{code: string, pauseMs: number}|null} what is waited for, and how long; null: it is given up
   */
  after(code, retryAfterMs, now) {
    const passes = PASSING.includes(code);
    if (passes) this.#until = now + PATIENCE_MS;
    if (now >= this.#until || KEY_CODES.includes(code)) return null;
    if (passes || !RESTARTING.includes(this.#reason)) this.#reason = code;
    const pause = BACKOFF_MS[Math.min(this.#tries++, BACKOFF_MS.length - 1)] ?? 0;
    return { code: this.#reason, pauseMs: retryAfterMs ?? pause };
  }
}
