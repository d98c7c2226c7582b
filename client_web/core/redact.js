/** The event log: a ring that keeps the last events of both directions, without secrets or sound. */

/** @typedef {{at: number, from: 'client'|'server'|'page', event: import('./types.js').WireEvent}} LoggedEvent */

const SECRET = /^(authorization|api_?key|client_secret|value|credential|password|token)$/i;
const LONG = 4000;

/**
 * A copy that is safe to show and to paste into a report.
 * @param {any} value
 * @param {string} [key]
 * @returns {any}
 */
export function redact(value, key = '') {
  if (typeof value === 'string') {
    if (SECRET.test(key)) return '[hidden]';
    if (key === 'audio' || value.startsWith('data:')) return `[${value.length} characters]`;
    return value.length > LONG ? `${value.slice(0, LONG)}… [${value.length} characters]` : value;
  }
  if (Array.isArray(value)) return value.map((item) => redact(item));
  if (value && typeof value === 'object') {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, redact(item, name)]));
  }
  return value;
}

export class EventRing {
  /** @type {LoggedEvent[]} */
  #events = [];
  #limit;

  /** @param {number} [limit] */
  constructor(limit = 1000) {
    this.#limit = limit;
  }

  /**
   * @param {LoggedEvent['from']} from
   * @param {import('./types.js').WireEvent} event
   * @param {number} at ms
   */
  add(from, event, at) {
    this.#events.push(Object.freeze({ at: Math.round(at), from, event: redact(event) }));
    // Trimming in blocks keeps the cost of one event constant.
    if (this.#events.length > this.#limit * 1.2) this.#events.splice(0, this.#events.length - this.#limit);
  }

  /** @returns {LoggedEvent[]} oldest first, a copy */
  list() {
    return this.#events.slice(-this.#limit);
  }
}
